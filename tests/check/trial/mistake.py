"""A planted mistake: which pieces of a program are written wrong, where, and what it may be called.

All were written from `attnctl check --help` and from how attention code goes wrong; the names were
put beside them afterwards. Of several names each is right: the numbers cannot tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

EVERYONE = ("textbook", "module", "llama", "kernel")
WITH_WEIGHTS = ("textbook", "module", "llama")


@dataclass(frozen=True)
class Mistake:
    """The kinds of attention it is planted in, the people who make it, the pieces they write."""

    kinds: tuple[str, ...]
    names: frozenset[str]
    pieces: dict = field(compare=False)
    families: tuple[str, ...] = EVERYONE
    dtypes: tuple[str, ...] = ("float64", "float32", "float16", "bfloat16")


def m(kinds, names, families=EVERYONE, dtypes=None, **pieces):
    more = {} if dtypes is None else {"dtypes": tuple(dtypes.split())}
    kinds = tuple(each.strip() for each in kinds.split(","))
    return Mistake(kinds, frozenset(names.split()), pieces, families, **more)


def side_by_side(z):
    *batch, heads, n, d = z.shape
    return z.swapaxes(-3, -2).reshape(*batch, n, heads * d)


def cast(value, like):
    return np.asarray(value).astype(like.dtype)

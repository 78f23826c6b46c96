"""Log-sum-exps as others write them down: in base 2, and with a number for rows that see nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.names import BIAS, CHUNK_LOGSUMEXP, LOGSUMEXP, gradient_of
from attnctl.math.ops import Hide, LogSumExp

SUMS = (LOGSUMEXP, CHUNK_LOGSUMEXP)
OF_BASE = {**dict.fromkeys(SUMS, log(2)), gradient_of(LOGSUMEXP): 1 / log(2)}
"""What makes natural numbers of those in base 2: L = L₂ ln 2, and so d_L = d_L₂ / ln 2."""


def in_base_e(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with natural log-sum-exps. Raises AttnError where there are none to say it of."""
    problems = []
    for option, names in (("lse_base", [*OF_BASE]), ("lse_empty", [*SUMS])):
        if getattr(settings, option) is not None and not arrays.keys() & set(names):
            problems.append(
                f"{settings.where((option,))}: nothing read here is a log-sum-exp; leave it out"
            )
    if problems:
        raise AttnError(problems)
    if settings.lse_base != "2":
        return dict(arrays)
    return {
        name: times(array, OF_BASE[name]) if name in OF_BASE else array for name, array in arrays.items()
    }


def times(array: Array, factor: float) -> Array:
    """The product in as many digits as the array has; bfloat16 comes as float32."""
    product = (array.astype(np.float64) * factor).astype(array.dtype)
    if array.dtype != np.float32 or (np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any():
        return product
    mantissa, exponent = np.frexp(product)
    return np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent).astype(array.dtype)


def with_empty_rows(
    arrays: Mapping[str, Array], derivation: Derivation, empty: float | None, keys: int
) -> dict[str, Array]:
    """The arrays with −∞ for rows that see nothing and were written down as another number."""
    out = dict(arrays)
    for name in SUMS if empty is not None else ():
        if name in arrays and name in derivation:
            *lead, heads, queries = arrays[name].shape
            rows = (*(lead[:-1] if name == CHUNK_LOGSUMEXP else lead), heads, queries)
            op = derivation[name].op if name == CHUNK_LOGSUMEXP else LogSumExp()
            nothing = np.isneginf(op.apply(hide(np.zeros((*rows, keys)), arrays, derivation)))
            out[name] = np.where(nothing & (arrays[name] == empty), -inf, arrays[name])
    return out


def hide(s: Array, arrays: Mapping[str, Array], derivation: Derivation) -> Array:
    """The scores with −∞ where rules, a mask or a bias hide a key."""
    for step in derivation:
        if isinstance(step.op, Hide):
            s = step.op.apply(s, *(arrays[name] for name in step.inputs[1:]))
        elif BIAS in step.inputs:
            s = np.where(np.isneginf(arrays[BIAS]), -inf, s)
    return s

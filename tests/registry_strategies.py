"""Ops and rules of every registered kind, drawn by the types of their fields and by their signatures."""

import re
from dataclasses import fields
from typing import get_type_hints

import numpy as np
from hypothesis import strategies as st

import attnctl.math.derivation  # noqa: F401  (an op registers itself where it is imported)
from attnctl.base.errors import AttnError
from attnctl.math.axes import LEAD
from attnctl.math.kind import Chunks
from attnctl.math.ops import Block, LayerNorm, Placed, RMSNorm
from attnctl.math.ops.base import parse_signature, size_of
from attnctl.math.ops.lookups import ByIndex
from attnctl.math.ops.models import BucketsBack
from attnctl.math.ops.pages import ByTable
from attnctl.math.ops.vectors import GivenPlaces, Rotate, Sinusoid
from attnctl.math.rules import RULES, Composed, Documents, Padding, PerBatch, VisibilityRule

VALUES = {
    int: st.integers(1, 6),
    int | None: st.none() | st.integers(0, 6),
    float: st.floats(0.1, 50),
    float | None: st.none() | st.floats(0.1, 2),
    bool: st.booleans(),
    str: st.sampled_from(["", "--causal"]),
    Chunks: st.integers(1, 5),
    PerBatch: st.integers(0, 4) | st.tuples(st.integers(0, 4), st.integers(0, 4)),
    PerBatch | None: st.integers(0, 9),
    Block | None: st.none(),
    tuple[int, ...]: st.lists(st.integers(0, 9), max_size=3).map(tuple),
    tuple[tuple[int, ...], ...]: st.integers(1, 2).flatmap(  # pages of two sequences, or of one more
        lambda size: st.tuples(*[st.tuples(*[st.integers(0, 1)] * size)] * 2)
    ),
    GivenPlaces: st.just(())
    | st.tuples(st.sampled_from([1, 3]), st.integers(1, 4)).flatmap(  # of all members of a batch
        lambda sizes: st.tuples(*[st.tuples(st.tuples(*[st.integers(0, 9)] * sizes[1]))] * sizes[0])
    ),
    tuple[float, ...]: st.lists(st.floats(0.1, 2), max_size=2).map(tuple),
    RMSNorm | LayerNorm: st.deferred(lambda: instances(RMSNorm) | instances(LayerNorm)),
    tuple[VisibilityRule, ...]: st.deferred(lambda: st.lists(visibility(), max_size=2).map(tuple)),
}
"""What a field of each type may hold; a field of another type adds a line here. A batch has two members."""


@st.composite
def instances(draw, kind):
    """An op or a rule of this class with any parameters that it takes."""
    hints = get_type_hints(kind)
    own = TOGETHER if issubclass(kind, Composed) else VALUES
    values = {each.name: draw(own[hints[each.name]]) for each in fields(kind)}
    if kind is Documents:  # they begin at 0, and go up
        values = {name: tuple(sorted({0, *starts})) for name, starts in values.items()}
    if issubclass(kind, ByTable) and not isinstance(values["lengths"], tuple):  # of one sequence
        values["table"] = values["table"][:1]
    if kind is Sinusoid and values["given"]:  # a position for each row
        values["length"] = len(values["given"])
    if issubclass(kind, Rotate):  # as many pairs as there are columns for
        values["sections"] = ()
    if issubclass(kind, Placed | BucketsBack) and draw(st.booleans()):  # positions are counted
        values["places"] = ()
    try:
        return kind(**values)
    except AttnError:  # its own bounds
        return draw(st.nothing())


def visibility(*without):
    """A rule that hides keys."""
    hiding = [kind for kind in RULES.values() if issubclass(kind, VisibilityRule) and kind not in without]
    return st.one_of([instances(kind) for kind in hiding])


TOGETHER = {
    tuple[VisibilityRule, ...]: st.deferred(
        lambda: st.lists(visibility(Padding), min_size=1, max_size=2).map(tuple)
    )
}
"""What a rule is made of that is made of others."""


def by_member(op):
    """Whether a parameter of an op differs from member to member of a batch."""
    hints = get_type_hints(type(op))
    if isinstance(op, Placed | BucketsBack) and op.places:
        return True
    return any(
        hints[each.name] == PerBatch and isinstance(getattr(op, each.name), tuple) for each in fields(op)
    )


@st.composite
def examples(draw, kind):
    """An op of this class, and inputs of any shapes that its signature has; scores may be hidden."""
    op = draw(instances(kind))
    takes, gives = parse_signature(op.signature)
    text = op.signature.partition("->")[0]
    masks = re.findall(r"(bool )?[^,\s[\]][^,[\]]*", text)
    required = len(re.findall(r"[^,\s][^,]*", text.partition("[")[0]))
    least = 1 if (LEAD,) in (*takes, gives) else 0
    lead = tuple(draw(st.lists(st.integers(1, 2), min_size=least, max_size=2)))
    sizes = {}
    if isinstance(op, ByTable):  # as many keys as there are slots in its pages, which are 0 and 1
        slot = draw(st.integers(1, 3))
        sizes = {"page": 2, "slot": slot, "key": slot * len(op.table[0])}
    if isinstance(op, Placed | BucketsBack) and op.places:  # of the tokens that are queries and keys
        sizes = dict.fromkeys(("query", "key"), len(op.places[0]))
    if isinstance(op, ByIndex):  # which holds 0 and 1
        sizes = {"bucket": 2, "query": len(op.index), "key": len(op.index[0])}
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    inputs = []
    for axes, is_mask in zip(takes, masks, strict=True):
        if len(inputs) >= required and draw(st.booleans()):
            break
        first = not inputs
        optional = [axis for axis in axes if axis.endswith("?")]
        dropped = 0 if first and by_member(op) else draw(st.integers(0, len(optional)))
        names = [axis.rstrip("?") for axis in axes if axis not in optional[:dropped]]
        names = [name for name in names if first or name in sizes or f"{name}?" not in optional]
        shape = []
        for name in names:
            for part in name.replace(" +", "").split():
                if part not in sizes:
                    drawn = 2 if part == "batch" else draw(st.integers(1, 4))
                    sizes[part] = getattr(op, part, drawn)
            shape += lead if name == LEAD else [size_of(name, sizes, op)]
        array = random.standard_normal(shape)
        hides = first and names[-1] == "key" and draw(st.booleans())
        inputs.append(array > 0 if is_mask else np.where(array > 0.5, -np.inf, array) if hides else array)
    try:
        with np.errstate(all="ignore"):
            return op, inputs, op.apply(*inputs)
    except (IndexError, ValueError):  # parameters that do not go with these shapes
        return draw(st.nothing())

"""The conventions in which programs differ and each is right: axes, masks, corners, windows."""

from __future__ import annotations

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import BFLOAT16, DTYPES, Precision
from attnctl.inputs.config.settings import Settings

USUAL, MERGED = "bhnd", "bnd"

AXES = ("bhnd", "bnhd", "bnd", "nbd", "hnd", "nd")
"""The layouts of Q, K, V and the output: b batch, h heads, n rows, d columns."""

MASKS = ("bhnm", "b1nm", "bnm", "nm", "b11m", "bm")
"""The shapes of a mask; m are its keys, 1 is an axis of one."""

MASK_KINDS = ("boolean", "1 and 0", "added")
"""The forms of a mask that says who sees whom: truth values, numbers, or 0 and −∞ to be added."""

NOTHING = Settings()
"""No attention is always on."""

TYPES: dict[str, Precision] = {
    **{name: DTYPES[name] for name in ("float64", "float32", "float16")},
    BFLOAT16.name: BFLOAT16,
}
"""The types that a target is called with, the finest first."""

CORNER, HIDDEN_ROWS, PADDING = "causal corner", "rows that see nothing", "NaN in padding"
HIDDEN_GRADIENTS = "gradients of rows that see nothing"
LENGTHS_CORNER = "causal with key lengths"
SLIDING, AHEAD, FLOAT_MASK = "sliding window", "ahead of a sliding window", "float mask"
MASK_KIND, MASK_SHAPE, TRUE = "mask", "mask shape", "true in a mask"
MASKED = "always causal, given a mask"

OUTPUT_TYPE, THE_INPUTS = "output type", "the inputs'"

NEITHER, ADDED, TRUTHS = "neither", "added", "read as truth values"

KNOWN: dict[str, tuple[str, ...]] = {
    CORNER: ("top-left", "bottom-right"),
    LENGTHS_CORNER: ("first key", "each length"),
    HIDDEN_ROWS: ("zeros", "NaN", "mean"),
    HIDDEN_GRADIENTS: ("zeros", "NaN"),
    PADDING: ("hidden", "spreads"),
    SLIDING: ("W", "W + 1"),
    AHEAD: ("none", "the same", "all"),
    FLOAT_MASK: (ADDED, TRUTHS),
    OUTPUT_TYPE: (THE_INPUTS, *TYPES),
    MASK_KIND: MASK_KINDS,
    MASK_SHAPE: MASKS,
    TRUE: ("may attend", "hidden"),
    MASKED: ("both", "the mask alone"),
}
"""Every convention with the values that may be declared."""


@dataclass(frozen=True)
class Conventions:
    """The choices of a target where programs differ; they are found out before it is judged."""

    corner: str = "top-left"
    """The corner at which the diagonal of a causal mask starts when there are more keys than queries."""
    window: str = "W"
    """The keys that a query sees of a sliding window W, itself among them: W or W + 1."""
    ahead: str = "none"
    """The keys ahead of the query that a sliding window without causal sees: none, the same, or all."""
    lengths: str = "first key"
    """The diagonal with key lengths: it is counted from the first key, or ends at each length."""
    layout: str = USUAL
    """The axes of its arrays, as `AXES` has them, or IN:OUT."""
    packed: str = ""
    """The axes of Q, K and V in one array, heads in an axis of their own; 3 is that of Q, K and V."""
    mask: str = MASKS[0]
    """The shape of a mask."""
    mask_kind: str = "boolean"
    """A mask that is no bias is given as `boolean`, as `1 and 0`, or as 0 and −∞ which are `added`."""
    true: str = "may attend"
    """The meaning of true in a boolean mask: a query may attend there, or the key is hidden."""
    masked: str = "both"
    """Always causal and given a mask, a target applies both, or the mask alone."""

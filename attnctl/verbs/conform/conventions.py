"""Where programs of attention differ and each is right: the conventions, and what may be declared."""

from __future__ import annotations

from attnctl.verbs.conform.case import MASK_KINDS, TYPES
from attnctl.verbs.conform.layout import MASKS

CORNER, HIDDEN_ROWS, PADDING = "causal corner", "rows that see nothing", "NaN in padding"
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

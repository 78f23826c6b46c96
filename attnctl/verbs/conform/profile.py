"""How a target is called: one profile of what libraries document, people declare and probes find out.

Each is laid over what was known before. The conventions are those in which programs differ and each is
right: corners, windows, masks. What is not declared is found out before a target is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import SimpleNamespace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import BFLOAT16, DTYPES, Precision
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary

USUAL, MERGED = "bhnd", "bnd"

AXES = {
    "bhnd": "b h n d",
    "bnhd": "b n h d",
    "bnd": "b n (h d)",
    "nbd": "n b (h d)",
    "hnd": "(b h) n d",
    "nd": "(b h n) d",
}
"""The layouts of Q, K, V and the output: b batch, h heads, n rows, d columns; two have one member."""

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

CONVENTIONS: dict[str, tuple[str, ...]] = {
    CORNER: ("top-left", "bottom-right"),  # where the diagonal starts, of more keys than queries
    LENGTHS_CORNER: ("first key", "each length"),  # what the diagonal is counted from, or ends at
    HIDDEN_ROWS: ("zeros", "NaN", "mean"),
    HIDDEN_GRADIENTS: ("zeros", "NaN"),
    PADDING: ("hidden", "spreads"),
    SLIDING: ("W", "W + 1"),  # keys that a query sees of a window W, itself among them
    AHEAD: ("none", "the same", "all"),  # keys ahead of it that it sees without causal
    FLOAT_MASK: (ADDED, TRUTHS),
    OUTPUT_TYPE: (THE_INPUTS, *TYPES),
    MASK_KIND: MASK_KINDS,
    MASK_SHAPE: MASKS,
    TRUE: ("may attend", "hidden"),
    MASKED: ("both", "the mask alone"),
}
"""Every convention with the values that may be declared, the usual one first."""


@dataclass(frozen=True)
class TargetProfile:
    """How a target is called, and what it is said to do."""

    layout: str = ""
    """The axes of its arrays, as `AXES` has them, or IN:OUT; empty where nobody says."""
    packed: str = ""
    """The axes of Q, K and V in one array, heads in an axis of their own; 3 is that of Q, K and V."""
    conventions: Mapping[str, str] = field(default_factory=dict)
    always: Settings = NOTHING
    """The attention that is always on, whatever it is called with."""

    head_sizes: tuple[int, ...] = ()
    """The only head sizes that it takes; none where it takes any."""
    multiple_of: int = 1
    """Its numbers of queries and keys are multiples of this."""
    heads: int | None = None
    batch: int | None = None
    tokens: int | None = None
    """The only number of queries and keys that it takes."""
    tells_kv_heads: bool = False
    """Its number of kv heads is fixed, or passed to it."""

    features: tuple[str, ...] = ()
    """The features that it is said to have: an exception is a failure."""
    without: tuple[str, ...] = ()
    """The features that it is said not to have, though it takes their keywords."""
    returns: tuple[str, ...] = ()
    """What it is said to return, in order."""
    deterministic: bool = False
    """Gradients have the same bits in every call."""

    parameters: tuple[str, ...] = ()
    """The keywords of its function, where the function itself does not tell them."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Its keyword of an option, where the keyword means another option elsewhere."""
    passes: Mapping[str, Callable[[str, Any], dict[str, Any]]] = field(default_factory=dict)
    """The functions that make its keywords of an option's keyword and value."""
    gives: Callable[[int, int], dict[str, Any]] = lambda *_: {}
    """Other keywords that follow from the numbers of heads."""
    bool_mask_only: bool = False

    def __getitem__(self, convention: str) -> str:
        """The value of a convention; the usual one where another is not known."""
        return self.conventions.get(convention, CONVENTIONS[convention][0])

    def lay_over(self, given: Mapping[str, Any]) -> TargetProfile:
        """Lay fields over it; `mask_shape` is a convention, and conventions stay that are not given."""
        fields = dict(given)
        shape = fields.pop("mask_shape", None)
        more = {**fields.pop("conventions", {}), **({MASK_SHAPE: shape} if shape else {})}
        return replace(self, **fields, conventions={**self.conventions, **more})

    @property
    def axes(self) -> str:
        """The axes of Q, K and V."""
        return (self.layout or USUAL).partition(":")[0]

    @property
    def axes_out(self) -> str:
        return self.layout.partition(":")[2] or self.axes

    @property
    def rotary(self) -> Rotary | None:
        """Rotary positions, which turn pairs of columns, the first `dims` of them."""
        return self.always.positions if isinstance(self.always.positions, Rotary) else None


# --- the ways of libraries ---


def pass_module(heads: int, kv_heads: int) -> dict[str, Any]:
    """Make the layer that an attention function of transformers is handed, as far as it reads it."""
    share = heads // kv_heads
    layer = {"num_key_value_groups": share, "training": False, "is_causal": False, "layer_idx": 0}
    return {"module": SimpleNamespace(**layer)}


LIBRARIES = {
    "sdpa": TargetProfile(
        layout="bhnd",
        parameters=("query", "key", "value", "attn_mask", "is_causal", "scale", "enable_gqa"),
        gives=lambda heads, kv_heads: {"enable_gqa": True} if heads != kv_heads else {},
        conventions={CORNER: "top-left"},
    ),
    "flash": TargetProfile(
        layout="bnhd",
        parameters=("q", "k", "v", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"),
        conventions={CORNER: "bottom-right"},
    ),
    "onnx": TargetProfile(
        layout="bhnd",
        parameters=("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen",
                    "is_causal", "scale", "softcap", "left_window_size", "right_window_size"),
        keywords={"window": "left_window_size"},
        passes={
            "causal": lambda keyword, value: {keyword: int(value)},
            "window": lambda keyword, ends: {keyword: ends[0], "right_window_size": ends[1]},
        },
        conventions={CORNER: "top-left"},
    ),
    "transformers": TargetProfile(
        layout="bhnd:bnhd",
        parameters=("module", "query", "key", "value", "attention_mask", "scaling"),
        conventions={MASK_KIND: "added"},
        gives=pass_module,
    ),
    "jax": TargetProfile(
        layout="bnhd",
        parameters=("query", "key", "value", "bias", "mask", "scale", "is_causal",
                    "key_value_seq_lengths", "local_window_size"),
        bool_mask_only=True,
        conventions={CORNER: "top-left"},
    ),
}  # fmt: skip
"""The libraries whose ways of taking options `--like NAME` asks for."""

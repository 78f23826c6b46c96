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
from attnctl.inputs.config.settings import LENGTHS as FROM_LENGTHS
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.math.rules import PerBatch
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.places import BY_PLACES, BY_POSITIONS, BY_QUERIES, OF_ALL, OF_IMAGES, OF_MEMBERS
from attnctl.verbs.conform.stored import SCALE_SHAPES, TYPES

USUAL = "bhnd"
BESIDE_PAGES = "bnhd"
MERGED = "bnd"
PACKED_ROWS = "nhd"

AXES = {
    "bhnd": "b h n d",
    "bnhd": "b n h d",
    "nbhd": "n b h d",
    "bnd": "b n (h d)",
    "nbd": "n b (h d)",
    "hnd": "(b h) n d",
    "nhd": "(b n) h d",
    "nd": "(b h n) d",
}
"""The layouts of Q, K, V and the output: b batch, h heads, n rows, d columns; three have one member."""

FOR_W_O = ("bhnd:bnd", "bnhd:bnd", "nbhd:nbd")
"""Layouts whose output has heads side by side, as W_O reads them."""

MASKS = ("bhnm", "b1nm", "bnm", "nm", "b11m", "bm")
"""The shapes of a mask; m are its keys, 1 is an axis of one."""

MASK_KINDS = ("boolean", "1 and 0", "added")
"""The forms of a mask that says who sees whom: truth values, numbers, or 0 and −∞ to be added."""

NOTHING = Settings()
"""No attention is always on."""

CORNER = "causal corner"
LENGTHS_CORNER = "causal with key lengths"
HIDDEN_GRADIENTS = "gradients of rows that see nothing"
SLIDING = "sliding window"
AHEAD = "ahead of a sliding window"
FLOAT_MASK = "float mask"
MASK_KIND = "mask"
MASK_SHAPE = "mask shape"
TRUE = "true in a mask"
MASKED = "always causal, given a mask"
PAGE_AXES, TABLE_END = "pages", "page table beyond a length"
POSITION_SHAPE, RULES_BY = "positions", "rules go by"
SCALE_SHAPE = "scales"
SLOTS_THEN_HEADS, HEADS_THEN_SLOTS = "(page, slot, head, d)", "(page, head, slot, d)"
SOME_PAGE = "some page"

OUTPUT_TYPE = "output type"
SUMS = "sums"
IN_TYPE = "in the inputs' type"
IN_TYPE_BY_LAYOUT = "in the inputs' type, by layout"

CONVENTIONS: dict[str, tuple[str, ...]] = {
    CORNER: ("top-left", "bottom-right"),  # where the diagonal starts, of more keys than queries
    LENGTHS_CORNER: ("first key", "each length"),  # what the diagonal is counted from, or ends at
    "rows that see nothing": ("zeros", "NaN", "mean"),
    HIDDEN_GRADIENTS: ("zeros", "NaN"),
    "NaN in padding": ("hidden", "spreads"),
    SLIDING: ("W", "W + 1"),  # keys that a query sees of a window W, itself among them
    AHEAD: ("none", "the same", "all"),  # keys ahead of it that it sees without causal
    FLOAT_MASK: ("added", "read as truth values"),
    OUTPUT_TYPE: ("the inputs'", *TYPES),
    SUMS: ("in float32", IN_TYPE, IN_TYPE_BY_LAYOUT),  # as NumPy's einsum keeps them of float16
    MASK_KIND: MASK_KINDS,
    MASK_SHAPE: MASKS,
    TRUE: ("may attend", "hidden"),
    MASKED: ("both", "the mask alone"),
    PAGE_AXES: (SLOTS_THEN_HEADS, HEADS_THEN_SLOTS),
    TABLE_END: (
        "no page",
        SOME_PAGE,
    ),  # behind the last page of a sequence: −1, or any number
    POSITION_SHAPE: (OF_MEMBERS, OF_ALL, OF_IMAGES),
    RULES_BY: (BY_PLACES, BY_POSITIONS, BY_QUERIES),
    SCALE_SHAPE: SCALE_SHAPES,
}
"""Every convention with the values that may be declared, the usual one first."""

SAVED = {
    "corner": CORNER, "window": SLIDING, "ahead": AHEAD, "lengths": LENGTHS_CORNER, "mask": MASK_SHAPE,
    "mask_kind": MASK_KIND, "true": TRUE, "masked": MASKED, "pages": PAGE_AXES, "table": TABLE_END,
    "positions": POSITION_SHAPE, "rules_by": RULES_BY, "scales": SCALE_SHAPE,
}  # fmt: skip
"""The keys of conventions in the dump of a failing case."""

LENGTHS = "lengths"
OTHER_D_V = "d_v ≠ d_k"
GROUPED = "grouped heads"
"""The features that arrays of a target may have no room for."""


def is_merged(axes: str) -> bool:
    """Heads stand side by side in the columns."""
    return "(h d)" in AXES[axes]


def split_axes(axes: str) -> str:
    return axes.replace("d", "hd") if is_merged(axes) else axes


USUAL_PAGES = (16, 1)
"""The slots of a page, and the pages that are free before the first, where nothing else is asked for."""


def give_nothing(_heads: int, _kv_heads: int, _d_k: int) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class TargetProfile:
    layout: str = ""
    """The axes of its arrays, as `AXES` has them, or IN:OUT; empty where nobody says."""
    packed: str = ""
    """The axes of Q, K and V in one array, heads in an axis of their own; 3 is that of Q, K and V."""
    conventions: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] | None = None
    """The options that are on where they are left out, with their values; None where nobody says."""
    always: Settings = NOTHING
    """The attention that is always on, whatever it is called with."""

    handed: Mapping[str, str] = field(default_factory=dict)
    """The type of its arrays, by the type that it computes in, where that is another: autocast."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """The type of K, V and a cache, by the type of Q, where that is another."""
    scaled: tuple[str, ...] = ()
    """Which of Q, K and V come with scales."""
    head_sizes: tuple[int, ...] = ()
    """The only head sizes that it takes; none where it takes any."""
    multiple_of: int = 1
    heads: int | None = None
    batch: int | None = None
    tokens: int | None = None
    """The only number of queries and keys that it takes."""
    paged: bool = False
    """It takes K and V in pages alone."""
    tells_kv_heads: bool = False
    """Its number of kv heads is fixed, or passed to it."""

    features: tuple[str, ...] = ()
    """The features that it is said to have: an exception is a failure."""
    without: tuple[str, ...] = ()
    """The features that it is said not to have, though it takes their keywords."""
    returns: tuple[str, ...] = ()
    deterministic: bool = False
    """Gradients have the same bits in every call."""

    parameters: tuple[str, ...] = ()
    """The keywords of its function, where the function itself does not tell them."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Its keyword of an option, where the keyword means another option elsewhere."""
    passes: Mapping[str, Callable[[str, Any], dict[str, Any]]] = field(default_factory=dict)
    """The functions that make its keywords of an option's keyword and value."""
    gives: Callable[[int, int, int], dict[str, Any]] = give_nothing
    """Other keywords that follow from the numbers of heads, and d_k."""
    bool_mask_only: bool = False

    def __getitem__(self, convention: str) -> str:
        """The value of a convention; the usual one where another is not known."""
        return self.conventions.get(convention, CONVENTIONS[convention][0])

    def lay_over(self, given: Mapping[str, Any]) -> TargetProfile:
        """Lay fields over it; `mask_shape` is a convention, and conventions stay that are not given."""
        fields = dict(given)
        mask_shape = fields.pop("mask_shape", None)
        conventions = {**self.conventions, **fields.pop("conventions", {})}
        if mask_shape:
            conventions[MASK_SHAPE] = mask_shape
        return replace(self, **fields, conventions=conventions)

    @property
    def axes(self) -> str:
        return (self.layout or USUAL).partition(":")[0]

    @property
    def axes_out(self) -> str:
        return self.layout.partition(":")[2] or self.axes

    @property
    def is_packed_in_columns(self) -> bool:
        """The columns of Q, of K and of V stand side by side, however many they are."""
        return is_merged(self.axes) and self.packed.endswith("3hd")

    @property
    def rotary(self) -> Rotary | None:
        """Rotary positions, which turn pairs of columns, the first `dims` of them."""
        return self.always.positions if isinstance(self.always.positions, Rotary) else None

    def type_of(self, name: str, dtype: str) -> str:
        """The type of Q, K or V."""
        return dtype if name == "Q" else self.stored.get(dtype, dtype)

    @property
    def lacking(self) -> dict[str, str]:
        """The features that such arrays have no room for, each with why."""
        lacking = {}
        if self.tokens:
            lacking[LENGTHS] = f"it takes {self.tokens} queries and as many keys alone"
        if "h" not in split_axes(self.axes):
            lacking[GROUPED] = f"the layout {self.axes} has one head"
        elif is_merged(self.axes) and not self.tells_kv_heads:
            lacking[GROUPED] = "heads stand side by side, and nothing tells it how many kv heads there are"
        if self.packed:
            alike = [] if self.is_packed_in_columns else [GROUPED]
            lacking |= dict.fromkeys([LENGTHS, OTHER_D_V, *alike], "Q, K and V come in one array")
        return lacking

    def keys_before(self, case: Case) -> PerBatch:
        """The number of keys before query 0, or one for each member."""
        offset = self.always.causal_offset
        if isinstance(offset, int):
            return offset
        if self[LENGTHS_CORNER] == "each length" and not case.past:
            offset = FROM_LENGTHS
        if offset == FROM_LENGTHS and case.has_lengths:
            return tuple(length - case.queries for length in case.lengths)

        if case.past:
            return case.past
        return 0 if self[CORNER] == "top-left" else case.keys - case.queries

    # --- a case in the sizes that it takes ---

    def fit(self, case: Case) -> Case:
        for fit in (self.with_heads, self.with_columns, self.with_tokens, self.in_layout):
            case = fit(case)
        return case

    def with_heads(self, case: Case) -> Case:
        """Take the fixed numbers of heads, and keep how many share a kv head as far as possible."""
        heads = self.heads or case.heads
        share = case.heads // case.kv_heads
        fixed = self.always.kv_heads
        if fixed:
            return replace(case, heads=self.heads or fixed * share, kv_heads=fixed)
        most = max(heads // share, 1)
        kv_heads = max(count for count in range(1, most + 1) if heads % count == 0)
        return replace(case, heads=heads, kv_heads=kv_heads)

    def with_columns(self, case: Case) -> Case:
        d_k = self.fit_width(case.d_k)
        d_v = d_k if case.d_v == case.d_k else self.fit_width(case.d_v, of_k=False)
        return replace(case, d_k=d_k, d_v=d_v)

    def fit_width(self, d: int, *, of_k: bool = True) -> int:
        """The nearest head size that it takes, not below where there is one; even for rotary positions."""
        if self.head_sizes:
            return min((size for size in self.head_sizes if size >= d), default=max(self.head_sizes))
        if self.rotary is not None and of_k:
            return max(d + d % 2, self.rotary.dims or 2)
        return d

    def with_tokens(self, case: Case) -> Case:
        """Round the queries, the keys of a cache and the new keys up to multiples, or take those fixed."""
        if self.tokens and not case.past:
            return replace(case, queries=self.tokens, keys=self.tokens)

        past = self.round_up(case.past)
        new_keys = self.round_up(case.keys - case.past)
        may_differ = self[RULES_BY] == BY_QUERIES and self.rotary is None
        if "positions" in case.option_values and not may_differ:
            # Positions are those of queries and keys alike.
            case = replace(case, queries=case.keys - case.past)
        is_square = case.queries == case.keys - case.past
        queries = new_keys if is_square else self.round_up(case.queries)
        slots, _ = self.pages_of(case)
        new_keys += -new_keys % slots  # whole pages

        if past != case.past:
            case = case.having(cache=past)
        return replace(case, queries=queries, keys=past + new_keys)

    def pages_of(self, case: Case) -> tuple[int, int]:
        """The slots of a page of K and V, and the pages that are free before; −1 where they come whole."""
        whole = (1, -1)
        slots, before = case.option_values.get("pages", USUAL_PAGES if self.paged else whole)
        return slots, before

    def round_up(self, n: int) -> int:
        return -(-n // self.multiple_of) * self.multiple_of

    def in_layout(self, case: Case) -> Case:
        """Cut the case to its layout: (head, n, d) has no batch, (n, d) one head."""
        axes = self.axes
        lacking = self.lacking
        if "h" not in split_axes(axes):
            case = replace(case, heads=1)
        if GROUPED in lacking:
            case = replace(case, kv_heads=case.heads)
        if OTHER_D_V in lacking:
            case = replace(case, d_v=case.d_k)
        if LENGTHS in lacking:
            case = replace(case, queries=case.keys - case.past)
        if "b" not in axes or self.batch:
            case = replace(case, batch=self.batch or 1)

        # Members share K and V in memory where the batch is the first axis of arrays of their own.
        may_share = case.batch > 1 and axes[0] == "b" and not self.packed and not self.paged
        if case.memory == "broadcast" and not may_share:
            case = replace(case, memory="plain")
        return case


@dataclass(frozen=True)
class Request:
    profile: TargetProfile = TargetProfile()
    """How the target is called, as far as it is documented or declared."""
    renames: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(TYPES)
    calls: tuple[Case, ...] = ()
    """Calls that were captured, whole."""
    only: tuple[str, ...] = ()
    """Features to run; none means all."""
    shape: tuple[int, ...] = ()
    """Batch, heads, queries and head size of the cases of relations, where they are asked for."""
    block_sizes: tuple[int, ...] = ()
    """Sizes of the target's blocks, about which cases are made; none means those that are usual."""
    quick: bool = False
    xfail: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """The features that are known to fail: why, and the types in which they do."""
    save: str | None = None
    flags: tuple[str, ...] = ()
    """The words of the command line that say how the target is called, which a replay takes again."""
    backward: bool = False
    merge: bool = False
    """The target merges two parts of attention."""
    replay: str = ""
    """The file of the one case that is run instead."""
    framework: str = "numpy"
    """Whose arrays it takes."""
    device: str = ""
    timeout: float | None = None


# --- the ways of libraries: functions with names, which workers are sent ---


def ask_for_groups(heads: int, kv_heads: int, _d_k: int) -> dict[str, Any]:
    return {"enable_gqa": True} if heads != kv_heads else {}


def pass_as_number(keyword: str, value: Any) -> dict[str, Any]:
    return {keyword: int(value)}


def pass_both_ends(keyword: str, ends: Any) -> dict[str, Any]:
    return {keyword: ends[0], "right_window_size": ends[1]}


def pass_module(heads: int, kv_heads: int, d_k: int) -> dict[str, Any]:
    """Make the layer that an attention function of transformers is handed, as far as it reads it."""
    layer = SimpleNamespace(
        num_key_value_groups=heads // kv_heads, head_dim=d_k, layer_idx=0, training=False, is_causal=False
    )
    return {"module": layer}


LIBRARIES = {
    "sdpa": TargetProfile(
        layout="bhnd",
        parameters=("query", "key", "value", "attn_mask", "is_causal", "scale", "enable_gqa"),
        gives=ask_for_groups,
        conventions={CORNER: "top-left"},
    ),
    "flash": TargetProfile(
        layout="bnhd",
        parameters=("q", "k", "v", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"),
        conventions={CORNER: "bottom-right"},
    ),
    "vllm": TargetProfile(
        layout="nhd",
        parameters=("q", "k", "v", "max_seqlen_q", "cu_seqlens_q", "max_seqlen_k", "cu_seqlens_k",
                    "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "s_aux",
                    "seqused_k", "block_table"),
        conventions={CORNER: "bottom-right"},
    ),
    "flashinfer": TargetProfile(
        layout="nhd",
        parameters=("q", "k", "v", "custom_mask", "causal", "sm_scale", "window_left", "logits_soft_cap"),
        keywords={"sliding_window": "window_left", "mask": "custom_mask"},
        bool_mask_only=True,
        conventions={CORNER: "bottom-right", SLIDING: "W + 1", AHEAD: "all", MASK_SHAPE: "nm",
                     MASKED: "the mask alone"},
    ),
    "onnx": TargetProfile(
        layout="bhnd",
        parameters=("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen",
                    "is_causal", "scale", "softcap", "left_window_size", "right_window_size"),
        keywords={"window": "left_window_size"},
        passes={
            "causal": pass_as_number,
            "window": pass_both_ends,
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

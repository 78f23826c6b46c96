"""The libraries whose ways of taking options `--like NAME` asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import SimpleNamespace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.verbs.conform.case import Case

Hand = Callable[[str, Any], dict[str, Any]]


@dataclass(frozen=True)
class Library:
    """A library's way of taking attention; a field left out is as everywhere."""

    name: str = ""
    layout: str = ""
    """The axes of its arrays, where that is known."""
    parameters: tuple[str, ...] = ()
    """The keywords of its function, where the function itself does not tell them."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Its keyword of an option, where the keyword means another option elsewhere."""
    hand: Mapping[str, Hand] = field(default_factory=dict)
    """The functions that make its keywords of an option's keyword and value."""
    grouped: str = ""
    """The keyword that must be true where query heads share kv heads."""
    conventions: Mapping[str, str] = field(default_factory=dict)
    """The conventions that its documentation states."""
    bool_mask_only: bool = False

    gives: Callable[[Case], dict[str, Any]] = lambda _: {}
    """Other keywords that follow from the sizes of a case."""

    def always(self, case: Case) -> dict[str, Any]:
        grouped = {self.grouped: True} if self.grouped and case.heads != case.kv_heads else {}
        return {**grouped, **self.gives(case)}


def pass_as_integer(keyword: str, value: Any) -> dict[str, Any]:
    return {keyword: int(value)}


def pass_both_ends(keyword: str, value: tuple[int, int]) -> dict[str, Any]:
    return {keyword: value[0], "right_window_size": value[1]}


def pass_module(case: Case) -> dict[str, Any]:
    """Make the layer that an attention function of transformers is handed, as far as it reads it."""
    share = case.heads // case.kv_heads
    layer = {"num_key_value_groups": share, "training": False, "is_causal": False, "layer_idx": 0}
    return {"module": SimpleNamespace(**layer)}


LIBRARIES = {
    each.name: each
    for each in (
        Library(),
        Library(
            "sdpa",
            layout="bhnd",
            parameters=("query", "key", "value", "attn_mask", "is_causal", "scale", "enable_gqa"),
            grouped="enable_gqa",
            conventions={"causal corner": "top-left"},
        ),
        Library(
            "flash",
            layout="bnhd",
            parameters=("q", "k", "v", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"),
            conventions={"causal corner": "bottom-right"},
        ),
        Library(
            "onnx",
            layout="bhnd",
            parameters=("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen",
                        "is_causal", "scale", "softcap", "left_window_size", "right_window_size"),
            names={"window": "left_window_size"},
            hand={"causal": pass_as_integer, "window": pass_both_ends},
            conventions={"causal corner": "top-left"},
        ),
        Library(
            "transformers",
            layout="bhnd:bnhd",
            parameters=("module", "query", "key", "value", "attention_mask", "scaling"),
            conventions={"mask": "added"},
            gives=pass_module,
        ),
        Library(
            "jax",
            layout="bnhd",
            parameters=("query", "key", "value", "bias", "mask", "scale", "is_causal",
                        "key_value_seq_lengths", "local_window_size"),
            bool_mask_only=True,
            conventions={"causal corner": "top-left"},
        ),
    )
}  # fmt: skip
"""The libraries by name; the nameless one is the usual way."""

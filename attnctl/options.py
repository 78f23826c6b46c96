"""The options that `attnctl.run` and its like take, as keywords with types.

The table of settings says what each is for and how it is read (`attnctl.inputs.config.fields.KEYWORDS`);
names and types are written from it by the tests, for editors and type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    from attnctl.inputs.config.settings import Embeddings, Random, Tokenizer, Weights
    from attnctl.math import Array
    from attnctl.math.derivation import Rotary
    from attnctl.math.kind import HeadNorm
    from attnctl.math.rules import Rule

    Table = Array | Sequence[Sequence[float]]


# [written by the tests: tests/generated.py]
class Options(TypedDict, total=False):
    """Settings, each as a config has it; what is None stays as it is."""

    context: str | None
    vocab: Sequence[str] | Mapping[str, int] | None
    tokenizer: Tokenizer | Mapping[str, Any] | None
    d_model: int | None
    heads: int | None
    kv_heads: int | None
    d_k: int | None
    d_v: int | None
    seed: int | None
    embeddings: Embeddings | Random | Array | Mapping[str, Any] | None
    positions: str | Rotary | Mapping[str, Any] | Table | None
    position_ids: Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]] | None
    rules_by_positions: bool | None
    weights: Weights | Mapping[str, Any] | None
    scale: float | None
    rules: Sequence[Rule | str | Mapping[str, Any]] | None
    qk_norm: HeadNorm | Literal["rms", "layer"] | Mapping[str, Any] | None
    cache_unrotated: bool | None
    temperature: str | Sequence[float] | None
    gate: bool | None
    positions_run_on: bool | None
    logsumexp: bool | None
    chunks: int | str | Sequence[Sequence[int]] | None
    backward: bool | None
    cotangent: str | None
    causal_offset: int | Literal["lengths"] | None
    dtype: Literal["float64", "float32", "float16"] | None
    edits: Sequence[str] | None
    renormalize: bool | None
    mask: Table | None
    bias: Table | None
    causal: bool | None
    window: int | Literal["inf"] | Sequence[int | Literal["inf"] | None] | None
    block_local: int | None
    documents: Sequence[int] | Sequence[Sequence[int]] | None
    softcap: float | None
    max_memory: int | None


class ArrayOptions(Options, total=False):
    """Options for arrays, which may be laid out in several ways."""

    layout: Literal["nd", "hnd", "nhd", "bhnd", "bnhd", "bnd"] | None
    lse_base: Literal["e", "2", 2] | None
    lse_empty: float | Literal["inf"] | None
    positions_from_mask: bool | None


# [to here]

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def parameters_of(options: type) -> list[Parameter]:
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
        for name, kind in options.__annotations__.items()
    ]


def spelled_out(options: type) -> Callable[[Function], Function]:
    """Give a function that takes ``**options`` a signature with each of them as a keyword.

    Type checkers know them by the annotation; `help`, notebooks and completion ask the signature.
    """

    def spell(function: Function) -> Function:
        given = signature(function)
        named = [own for own in given.parameters.values() if own.kind is not Parameter.VAR_KEYWORD]
        each_option = parameters_of(options)
        function.__signature__ = given.replace(parameters=[*named, *each_option])  # type: ignore[attr-defined]
        return function

    return spell

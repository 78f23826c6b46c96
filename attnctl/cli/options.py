"""Options that several commands share, as named tuples a command takes whole."""

# Typer reads these annotations as types: written as text, each would be compiled again.
from collections.abc import Callable
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

import typer

from attnctl.errors import Exit, PipeClosed
from attnctl.formats import FORMATS


class Positions(str, Enum):
    """Where a token stands."""

    none = "none"
    sinusoidal = "sinusoidal"
    rope = "rope"
    alibi = "alibi"


class DType(str, Enum):
    """The type of number every step is carried out in."""

    float64 = "float64"
    float32 = "float32"
    float16 = "float16"


FORMAT_NAMES = ("table", *(each.name for each in FORMATS if not each.binary))
if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[FORMAT_NAMES]  # the choices that Typer offers
"""How a trace is written on stdout."""


def option(help: str, *names: str, **extra: Any) -> Any:  # noqa: A002  (Typer's own word)
    """A Typer option with its help."""
    return typer.Option(*names, help=help, show_default=False, **extra)


class AttentionOptions(NamedTuple):
    """The kind of attention: the same options wherever there is attention."""

    config: Annotated[
        str | None,
        option("A YAML config (attnctl config init writes one).", "--config", "-c", metavar="FILE"),
    ] = None
    heads: Annotated[int | None, option("Number of heads.", metavar="N")] = None
    kv_heads: Annotated[
        int | None,
        option("Heads of K and V; each serves heads/N query heads (grouped-query attention).", metavar="N"),
    ] = None
    scale: Annotated[float | None, option("Factor for the scores instead of 1/√d_k.", metavar="X")] = None
    softcap: Annotated[
        float | None,
        option("Squeeze scaled scores into (-X, X): X·tanh(S/X), before bias and mask.", metavar="X"),
    ] = None
    causal: Annotated[
        bool,
        option(
            "Query i sees key j only when j <= i + offset (top-left aligned unless there is a cache).",
            "--causal",
        ),
    ] = False
    causal_offset: Annotated[
        int | None,
        option(
            "Number of keys before query 0; keys - queries aligns bottom-right (FlashAttention).",
            metavar="N",
        ),
    ] = None
    window: Annotated[
        str | None,
        option(
            "Query i sees keys i-L to i+R, ends included; R is L when left out, inf opens a side. "
            "A model's sliding_window W is --causal --window W-1.",
            metavar="L[,R]",
        ),
    ] = None
    positions: Annotated[
        Positions | None,
        option("Positions: added to X (sinusoidal), turning Q and K (rope), or biasing scores (alibi)."),
    ] = None
    theta: Annotated[float | None, option("Base of the rotary angles (10000).", metavar="X")] = None
    rotary_dims: Annotated[
        int | None, option("Rotate only the first N columns of each head.", metavar="N")
    ] = None
    interleaved: Annotated[
        bool, option("Rotate neighbouring columns (GPT-J) instead of halves (Llama).", "--interleaved")
    ] = False
    dtype: Annotated[DType | None, option("Type of number every step is carried out in (float64).")] = None


class CostOptions(NamedTuple):
    """What a run may take, and what it would."""

    max_memory: Annotated[
        str | None,
        option(
            "Refuse what needs more memory than this, like 512M or 8G (most of what is free).",
            metavar="SIZE",
        ),
    ] = None
    cost: Annotated[
        bool, option("Print each step's shape, bytes and operations instead of running.", "--cost")
    ] = False


class SentenceOptions(NamedTuple):
    """What a run of a sentence has beside the kind of attention."""

    context: Annotated[
        str | None,
        option("Another sentence that keys and values come from (cross-attention).", metavar="TEXT"),
    ] = None
    seed: Annotated[int | None, option("Seed of everything that is drawn (0).", metavar="N")] = None
    d_model: Annotated[int | None, option("Size of an embedding (4).", metavar="N")] = None
    d_k: Annotated[int | None, option("Size of a head of Q and K (d_model / heads).", metavar="N")] = None
    d_v: Annotated[int | None, option("Size of a head of V (d_model / heads).", metavar="N")] = None


class EditOptions(NamedTuple):
    """What if."""

    edit: Annotated[
        list[str] | None,
        option(
            "Change a step before the next reads it: 'attention_weights[0,love,:]=0', "
            "'head_outputs[1]*=2', 'attention_weights=@other.json' (the same cells of another dump). "
            "May be repeated.",
            metavar="CELL=VALUE",
        ),
    ] = None
    renormalize: Annotated[
        bool, option("Make edited rows of attention_weights sum to 1 again.", "--renormalize")
    ] = False

    @property
    def settings(self) -> dict[str, Any]:
        """As settings, None where nothing is asked for."""
        return {"edits": tuple(self.edit or ()) or None, "renormalize": self.renormalize or None}


class ViewOptions(NamedTuple):
    """What to show of a trace, and how."""

    step: Annotated[
        str | None, option("Only these steps, by name, separated by commas.", metavar="NAME,…")
    ] = None
    head: Annotated[
        str | None, option("Only these heads, from 0. (Tables and Markdown.)", metavar="N,…")
    ] = None
    precision: Annotated[
        int | None,
        option(
            "Digits after the point (4). (Tables and Markdown; files keep every digit.)",
            metavar="N",
            min=0,
            max=17,
        ),
    ] = None
    brief: Annotated[bool, option("Attention weights and output only.", "--brief")] = False
    full: Annotated[bool, option("Leave nothing out, however large. (Tables.)", "--full")] = False


class OutputOptions(NamedTuple):
    """Where a trace goes."""

    format: Annotated[
        FormatName | None,
        option("How to write it on stdout (table).", envvar="ATTNCTL_FORMAT", show_envvar=True),
    ] = None
    json: Annotated[bool, option("Short for --format json.", "--json")] = False
    output: Annotated[
        list[str] | None,
        option(
            f"Write to FILE instead of stdout, by suffix: {' '.join(each.suffix for each in FORMATS)}. "
            "May be given more than once.",
            "--output",
            "-o",
            metavar="FILE",
        ),
    ] = None


def command(function: Callable[..., Exit | None]) -> Callable[..., int]:
    """Let a command take option groups: a parameter that is a named tuple becomes its fields."""
    # Not get_type_hints: in Python 3.10 it hides Annotated[…] in an Optional where the default is None.
    own = signature(function, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in own if hasattr(each.annotation, "_field_defaults")}
    parameters: list[Parameter] = []
    for parameter in own:
        if parameter.name in groups:
            parameters += parameters_of(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def run(**values: Any) -> int:
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in group._fields})
        try:
            return int(function(**values) or Exit.OK)
        except BrokenPipeError as error:
            raise PipeClosed from error

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def parameters_of(group: Any) -> list[Parameter]:
    """The fields of an option group, as parameters."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in group._field_defaults.items()
    ]

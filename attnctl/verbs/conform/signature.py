"""The signature of a target: the places of Q, K and V, and the keyword of each option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import suggest
from attnctl.inputs.arrays.foreign import variable_of
from attnctl.math.names import DELTA, LOGSUMEXP, OUTPUT, gradient_of
from attnctl.math.rules import Causal
from attnctl.verbs.conform.case import Case, Problem
from attnctl.verbs.conform.library import Library
from attnctl.verbs.conform.options import OPTIONS

INPUTS = {
    "Q": ("q", "query", "queries", "xq"),
    "K": ("k", "key", "keys", "xk"),
    "V": ("v", "value", "values", "xv"),
}
"""The names of Q, K and V, in lower case."""

HANDED = {
    gradient_of(OUTPUT): (
        "d_output",
        "do",
        "d_o",
        "dout",
        "d_out",
        "grad_output",
        "grad_out",
        "grad_o",
        "grad_outputs",
        "grad",
        "dy",
        "d_y",
        "cotangent",
    ),
    OUTPUT: ("output", "out", "o"),
    LOGSUMEXP: ("logsumexp", "lse", "softmax_lse", "l"),
    DELTA: ("delta",),
}
"""The names of what a backward pass takes of the forward, in lower case; the first makes it one."""

PACKED = "QKV"
"""The name of Q, K and V in one array."""

SIZES: dict[str, tuple[tuple[str, ...], Callable[[Case], int]]] = {
    "heads": (("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "nhead", "NH"),
              lambda case: case.heads),
    "kv_heads": (("num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads", "num_key_value_heads"),
                 lambda case: case.kv_heads),
    "kv_share": (("num_key_value_groups", "n_rep"), lambda case: case.heads // case.kv_heads),
    "d_k": (("head_dim", "head_size", "dim_head", "d_head", "d_k"), lambda case: case.d_k),
    "d_model": (("embed_dim", "d_model", "n_embd", "C"), lambda case: case.heads * case.d_k),
    "batch": (("batch_size", "bsz", "B"), lambda case: case.batch),
    "queries": (("seq_len", "seqlen", "T"), lambda case: case.queries),
}  # fmt: skip
"""Sizes that a function is passed: their names in libraries, and their values in a case."""

OFF = {"dropout": 0.0, "dropout_p": 0.0, "attn_dropout": 0.0, "dropout_rate": 0.0, "training": False}
"""Arguments that some functions must be given and that have no part in attention."""

PARTS = {"past_key": ("past_key", "past_k", "k_cache"), "past_value": ("past_value", "past_v", "v_cache")}
"""The two keywords of a cache."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    positional: bool = True
    required: bool = False


@dataclass(frozen=True)
class CallSignature:
    """The keywords of a target."""

    inputs: tuple[str, ...] = ()
    """The keywords of Q, K and V; none where they are given by place."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """The keyword of each option that is claimed; of a cache "past_key" and "past_value" apart."""
    required: tuple[str, ...] = ()
    """Options that must always be given."""
    library: Library = Library()
    is_packed: bool = False
    """Q, K and V come in one array."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """The keyword of each size that it is passed."""
    off: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments that it must be given."""
    untried: tuple[str, ...] = ()
    """Its parameters that no call gives a value: what they do is not known."""
    handed: Mapping[str, str] = field(default_factory=dict)
    """The keywords of what a backward pass takes of the forward; none of a forward pass."""
    buffers: tuple[str, ...] = ()
    """The keywords of arrays that a backward pass writes the gradients by Q, K and V to."""

    @property
    def claimed(self) -> tuple[str, ...]:
        return tuple(name for name in OPTIONS if name in self.keywords)

    def with_options(self, problem: Problem) -> dict[str, Any]:
        """Return the keywords of a call, arrays among them."""
        case = problem.case
        out: dict[str, Any] = {**self.library.always(case), **self.off}
        out |= {theirs: SIZES[ours][1](case) for ours, theirs in self.sizes.items()}
        if "out" in self.required:
            OPTIONS["out"].ask(problem, True)
        passed = dict(problem.passed)
        if "causal" in self.keywords and Causal() not in problem.rules:
            passed.setdefault("causal", False)  # whatever its default is
        taken = {self.keywords[name] for name in passed}
        passed |= {
            name: OPTIONS[name].neutral(problem)
            for name in self.required
            if self.keywords[name] not in taken
        }
        for name, value in passed.items():
            if name == "cache":
                out |= {
                    self.keywords[part]: each
                    for part, each in zip(PARTS, value or (None, None), strict=True)
                }
            elif name in self.library.hand:
                out |= self.library.hand[name](self.keywords[name], value)
            else:
                out[self.keywords[name]] = value
        return out


def read_signature(
    parameters: Sequence[Parameter] | None,
    library: Library,
    renames: Mapping[str, str],
    *,
    backward: bool = False,
) -> CallSignature:
    """Find the keywords of a function, which may be a `backward` pass; `renames` map theirs to ours.

    Raises AttnError where Q, K and V have no place, or a name that is renamed is not there.
    """
    if parameters is None:
        if not library.parameters:
            raise AttnError("its signature cannot be read; say --like sdpa, flash, onnx or jax, or wrap it")
        parameters = [Parameter(name, required=at < 3) for at, name in enumerate(library.parameters)]
        inputs: tuple[str, ...] = ()
    else:
        inputs = find_inputs(parameters, renames)
    refuse_renames(renames)
    handed = find_handed([each.name for each in parameters], renames) if backward else {}
    buffers = find_buffers([each.name for each in parameters]) if handed else ()
    names = [each.name for each in parameters if each.name not in {*handed.values(), *buffers}]
    keywords = find_keywords(names, library, renames)
    must = [each.name for each in parameters if each.required and each.name in names]
    sizes = find_sizes(names, must, renames)
    off = {name: OFF[name] for name in must if name in OFF}
    packed = find_packed(names, renames)
    first = inputs or ([packed] if packed else names[:3])
    passed = {*library.always(Case()), library.grouped}
    taken = {*first, *keywords.values(), *sizes.values(), *off, *renames, *passed}
    unknown = [name for name in must if name not in taken]
    if unknown:
        ours = f"OURS, like {gradient_of(OUTPUT)}" if backward and not handed else "OURS"
        raise AttnError(
            f"it must be given {', '.join(unknown)}, which attnctl does not know; --map {unknown[0]}={ours}"
        )
    required = tuple(
        next(ours for ours, theirs in keywords.items() if theirs == name)
        for name in must
        if name in keywords.values()
    )
    untried = tuple(name for name in names if name not in {*taken, *OFF})
    return CallSignature(
        inputs, keywords, required, library, bool(packed), sizes, off, untried, handed, buffers
    )


def find_buffers(names: Sequence[str]) -> tuple[str, ...]:
    """Find the keywords of the gradients by Q, K and V, in order; none where one is missing."""
    own = {variable_of(name).lower(): name for name in names if variable_of(name) != name}
    found = [own[each] for theirs in INPUTS.values() for each in theirs if each in own]
    return tuple(found) if len(found) == len(INPUTS) else ()


def find_handed(names: Sequence[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Find the keywords of what a backward pass takes of the forward; nothing where this is none."""
    found: dict[str, str] = {}
    for ours, theirs in HANDED.items():
        mine = [*names_of(ours, renames), *(name for name in names if name.lower() in theirs)]
        if mine:
            found[ours] = mine[0]
    return found if gradient_of(OUTPUT) in found else {}


def refuse_renames(renames: Mapping[str, str]) -> None:
    """Raise AttnError for a name of ours that there is not."""
    known = sorted({*OPTIONS, *PARTS, *INPUTS, *SIZES, *HANDED, PACKED})
    for theirs, ours in renames.items():
        if ours not in known:
            raise AttnError(f"--map {theirs}={ours}: attnctl has no {ours}; {suggest(ours, known)}")


def find_packed(names: Sequence[str], renames: Mapping[str, str]) -> str:
    """Find the parameter that holds Q, K and V at once; empty where there is none."""
    return next((name for name in names if renames.get(name, name.upper()) == PACKED), "")


def find_sizes(names: Sequence[str], must: Sequence[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Find the keyword of each size; one letter may mean something else where it has a default."""
    out: dict[str, str] = {}
    for ours, (theirs, _) in SIZES.items():
        mine = [
            *names_of(ours, renames),
            *(name for name in theirs if name in (names if len(name) > 2 else must)),
        ]
        if mine:
            out[ours] = mine[0]
    return out


def names_of(ours: str, renames: Mapping[str, str]) -> list[str]:
    return [theirs for theirs, name in renames.items() if name == ours]


def find_inputs(parameters: Sequence[Parameter], renames: Mapping[str, str]) -> tuple[str, ...]:
    """Find the keywords of Q, K and V; empty where the first parameters are taken by place."""
    names = [each.name for each in parameters]
    if packed := find_packed(names, renames):
        return () if names[0] == packed and parameters[0].positional else (packed,)
    found = []
    for ours, others in INPUTS.items():
        said = names_of(ours, renames)
        found += [name for name in names if name in said or name.lower() in others][:1]
    by_name = [each.name for each in parameters if each.name in found and not each.positional]
    if len(found) == 3 and (by_name or names[:3] != found):
        return tuple(found)
    if len(parameters) < 3 or not all(each.positional for each in parameters[:3]):
        taken = ", ".join(names)
        raise AttnError(
            f"it takes ({taken}), and not Q, K and V; wrap it in a function (q, k, v); a layer with weights"
            " of its own is held by attnctl.testing.check_module(layer, x, backward=True)"
        )
    return ()


def find_keywords(names: Sequence[str], library: Library, renames: Mapping[str, str]) -> dict[str, str]:
    """Find the keyword of each option among these names."""
    free = [name for name in names if name not in renames]
    out = {}
    for ours, option in OPTIONS.items():
        wanted = (library.names[ours],) if ours in library.names else option.theirs
        mine = [*names_of(ours, renames), *(name for name in wanted if name in free)]
        if mine and ours != "cache":
            out[ours] = mine[0]
    for part, theirs in PARTS.items():
        mine = [*names_of(part, renames), *(name for name in theirs if name in free)]
        if mine:
            out[part] = mine[0]
    if all(part in out for part in PARTS):
        out["cache"] = out["past_key"]
    if "mask" in out and not library.bool_mask_only:
        out["float_mask"] = out["mask"]
    return out

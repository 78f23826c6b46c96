"""What a target can do, as its signature says it: where Q, K and V go, and the keyword of each option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from attnctl.errors import AttnError
from attnctl.verbs.conform.case import Case, Problem
from attnctl.verbs.conform.layout import apart
from attnctl.verbs.conform.library import Library
from attnctl.verbs.conform.options import OPTIONS
from attnctl.words import nearest

INPUTS = {
    "Q": ("q", "query", "queries", "xq"),
    "K": ("k", "key", "keys", "xk"),
    "V": ("v", "value", "values", "xv"),
}
"""What Q, K and V are called, in lower case."""

NOT_IN_SIGNATURE = "nothing in its signature asks for it"

PARTS = {"past_key": ("past_key", "past_k", "k_cache"), "past_value": ("past_value", "past_v", "v_cache")}
"""The two keywords of a cache."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, as its own process saw it."""

    name: str
    positional: bool = True
    required: bool = False


@dataclass(frozen=True)
class Signature:
    """Where everything goes."""

    inputs: tuple[str, ...] = ()
    """The keywords of Q, K and V; none where they are given by place."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """The keyword of each option that is claimed; of a cache "past_key" and "past_value" apart."""
    required: tuple[str, ...] = ()
    """Options that must always be given."""
    library: Library = Library()  # noqa: RUF009  (frozen)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The options that the target has, in our order."""
        return tuple(name for name in OPTIONS if name in self.keywords)

    def with_options(self, problem: Problem) -> dict[str, Any]:
        """The keywords of a call, arrays among them."""
        out: dict[str, Any] = dict(self.library.always(problem.case))
        if "out" in self.required:
            OPTIONS["out"].ask(problem, True)
        passed = dict(problem.passed)
        if "causal" in self.keywords:
            passed.setdefault("causal", False)  # whatever its default is
        if "scale" in self.required:
            passed.setdefault("scale", 1 / sqrt(problem.case.d_k))
        for name in self.required:
            passed.setdefault(name, None)
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
    parameters: Sequence[Parameter] | None, library: Library, renames: Mapping[str, str]
) -> Signature:
    """What a function takes; `renames` are of the form theirs -> ours and come first.

    Raises AttnError where Q, K and V have no place, or a name that is renamed is not there.
    """
    if parameters is None:
        if not library.parameters:
            raise AttnError("its signature cannot be read; say --like sdpa, flash, onnx or jax, or wrap it")
        parameters = [Parameter(name, required=at < 3) for at, name in enumerate(library.parameters)]
        inputs: tuple[str, ...] = ()
    else:
        inputs = inputs_of(parameters, renames)
    known = {*OPTIONS, *PARTS, *INPUTS}
    for theirs, ours in renames.items():
        if ours not in known:
            near = nearest(ours, sorted(known), most=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise AttnError(f"--map {theirs}={ours}: attnctl has no {ours}; {hint}")
    keywords = keywords_of([each.name for each in parameters], library, renames)
    taken = {*inputs, *keywords.values(), *renames}
    ours_of = {theirs: ours for ours, theirs in keywords.items()}
    others = [each for each in parameters if each.required and each.name not in taken]
    unknown = [each.name for each in (others if inputs else others[3:])]
    if unknown:
        raise AttnError(
            f"it must be given {', '.join(unknown)}, which attnctl does not know; --map {unknown[0]}=OURS"
        )
    required = tuple(ours_of[each.name] for each in parameters if each.required and each.name in ours_of)
    return Signature(inputs, keywords, required, library)


def inputs_of(parameters: Sequence[Parameter], renames: Mapping[str, str]) -> tuple[str, ...]:
    """The keywords of Q, K and V; empty where the first three parameters are to be taken by place."""
    found = []
    for ours, names in INPUTS.items():
        said = [theirs for theirs, name in renames.items() if name == ours]
        mine = [each.name for each in parameters if each.name in said or each.name.lower() in names]
        found += mine[:1]
    by_name = [each.name for each in parameters if each.name in found and not each.positional]
    if len(found) == 3 and (by_name or [each.name for each in parameters[:3]] != found):
        return tuple(found)
    if len(parameters) < 3 or not all(each.positional for each in parameters[:3]):
        raise AttnError("it does not take Q, K and V: its first three parameters are not them")
    return ()


def keywords_of(names: Sequence[str], library: Library, renames: Mapping[str, str]) -> dict[str, str]:
    """The keyword of each option that is among these names."""
    free = [name for name in names if name not in renames]
    out = {}
    for ours, option in OPTIONS.items():
        wanted = (library.names[ours],) if ours in library.names else option.theirs
        said = [theirs for theirs, name in renames.items() if name == ours]
        mine = [*said, *(name for name in wanted if name in free)]
        if mine and ours != "cache":
            out[ours] = mine[0]
    for part, theirs in PARTS.items():
        said = [each for each, name in renames.items() if name == part]
        mine = [*said, *(name for name in theirs if name in free)]
        if mine:
            out[part] = mine[0]
    if all(part in out for part in PARTS):
        out["cache"] = out["past_key"]
    if "mask" in out and not library.bool_mask_only:
        out["float_mask"] = out["mask"]
    return out


def sizes_for(case: Case, axes: str) -> Case:
    """The case in what axes have room for: (head, n, d) has no batch, (n, d) one head."""
    if "h" not in apart(axes):
        case = replace(case, heads=1, kv_heads=1)
    if "b" not in axes:
        case = replace(case, batch=1)
    apart_in_memory = case.batch > 1 and axes[0] == "b"
    return case if apart_in_memory or case.memory != "broadcast" else replace(case, memory="plain")

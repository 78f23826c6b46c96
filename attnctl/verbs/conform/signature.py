"""The signature of a target: the places of Q, K and V, and the keyword of each option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from inspect import Parameter
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import suggest
from attnctl.inputs.arrays.foreign import passed_names, variable_of
from attnctl.math import Array
from attnctl.math.names import (
    DELTA,
    LAST_PAGE,
    LOGSUMEXP,
    OUTPUT,
    PAGE_ENDS,
    PAGE_NUMBERS,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    STORED_SCALES,
    gradient_of,
)
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import Causal, Documents
from attnctl.verbs.conform.case import INPUTS, Case
from attnctl.verbs.conform.options import OPTIONS, usual_positions
from attnctl.verbs.conform.places import KEY_POSITIONS
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import BESIDE_PAGES, MERGED, PACKED_ROWS, USUAL, Request, TargetProfile
from attnctl.verbs.conform.stored import SCALE_OF

PACKED = "QKV"
"""The name of Q, K and V in one array."""

D_OUTPUT = gradient_of(OUTPUT)

HANDED = (D_OUTPUT, OUTPUT, LOGSUMEXP, DELTA)
"""What a backward pass takes of the forward; the first makes it one."""

BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

PARTS = (PAST_KEY, PAST_VALUE)
"""The two keywords of a cache."""

OF_PARTS = {**dict.fromkeys(PARTS, "cache"), **dict.fromkeys(SCALE_OF.values(), "scales")}
"""The options that have several keywords, by what these pass."""


def ends_of(case: Case, *, queries: bool) -> Array:
    """Where the documents of a case end among its queries, or its keys, after a 0."""
    rule = Documents.of(case.option_values.get("documents", (0,)))
    ends = [*rule.borders, case.queries] if queries else [*rule.starts, case.keys]
    return np.array(ends, np.int32)


class PassedSize(NamedTuple):
    """A size that a function is passed."""

    theirs: tuple[str, ...]
    """What other programs call it."""
    of: Callable[[Case], Any]
    """Its value in a case."""


class PassedOfPages(NamedTuple):
    """The same of what K and V are read by in pages."""

    theirs: tuple[str, ...]
    of: Callable[[Gather, int], Any]
    """Its value, for so many slots in each page."""


def key_ends(case: Case) -> Array | None:
    # Of keys in pages the page table says it.
    return None if "pages" in case.option_values else ends_of(case, queries=False)


def longest_document(case: Case, *, queries: bool) -> int:
    return int(np.diff(ends_of(case, queries=queries)).max())


SIZES = {
    "heads": PassedSize(
        ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "nhead", "NH"),
        lambda case: case.heads,
    ),
    "kv_heads": PassedSize(
        ("num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads", "num_key_value_heads"),
        lambda case: case.kv_heads,
    ),
    "kv_share": PassedSize(
        ("num_key_value_groups", "n_rep"),
        lambda case: case.heads // case.kv_heads,
    ),
    "d_k": PassedSize(
        ("head_dim", "head_size", "dim_head", "d_head", "d_k"),
        lambda case: case.d_k,
    ),
    "d_model": PassedSize(
        ("embed_dim", "d_model", "n_embd", "C"),
        lambda case: case.heads * case.d_k,
    ),
    "batch": PassedSize(("batch_size", "bsz", "B"), lambda case: case.batch),
    "queries": PassedSize(("seq_len", "seqlen", "T"), lambda case: case.queries),
    "ends_q": PassedSize(("cu_seqlens_q", "cu_seqlens"), lambda case: ends_of(case, queries=True)),
    "ends_k": PassedSize(("cu_seqlens_k",), key_ends),
    "longest_q": PassedSize(
        ("max_seqlen_q", "max_seqlen"),
        lambda case: longest_document(case, queries=True),
    ),
    "longest_k": PassedSize(("max_seqlen_k",), lambda case: longest_document(case, queries=False)),
}
"""Sizes that a function is passed."""


def used_pages(gather: Gather, slots: int) -> Array:
    """How many pages of each member hold keys."""
    return -(-np.array(gather.lengths) // slots)  # rounded up


def used_page_numbers(gather: Gather, slots: int) -> Array:
    """The numbers of the pages that hold keys, member after member."""
    used = used_pages(gather, slots)
    return np.concatenate([row[:count] for row, count in zip(np.array(gather.table), used, strict=True)])


OF_PAGES = {
    "slots": PassedOfPages(
        ("page_size", "block_size", "page_block_size"),
        lambda _, slots: slots,
    ),
    PAGE_ENDS: PassedOfPages(
        passed_names(PAGE_ENDS),
        lambda gather, slots: np.cumsum([0, *used_pages(gather, slots)]),
    ),
    PAGE_NUMBERS: PassedOfPages(passed_names(PAGE_NUMBERS), used_page_numbers),
    LAST_PAGE: PassedOfPages(
        passed_names(LAST_PAGE),
        lambda gather, slots: (np.array(gather.lengths) - 1) % slots + 1,
    ),
}


THEIRS: dict[str, tuple[str, ...]] = {
    SCALE_OF["Q"]: ("q_scale", "q_descale", "query_scale"),
    **{ours: passed_names(ours) for ours in STORED_SCALES},
    KEY_POSITIONS: ("key_positions", "k_positions", "kv_positions"),
    **{ours: passed_names(ours) for ours in (*INPUTS, *HANDED, *PARTS)},
    PACKED: ("qkv",),
    **{ours: size.theirs for ours, size in SIZES.items()},
    **{ours: of_pages.theirs for ours, of_pages in OF_PAGES.items()},
    **{name: option.theirs for name, option in OPTIONS.items() if name not in OF_PARTS.values()},
}
"""What other programs call what they are passed, by our name; arrays in lower case."""

DROPOUT = ("dropout", "dropout_p", "attn_dropout", "dropout_rate")

OFF: dict[str, Any] = {
    **dict.fromkeys(DROPOUT, 0.0),
    "training": False,
    "segment_ids": None,
    "biases": (),
}
"""Arguments that some functions must be given, and their values without a part in attention."""


def parameter(name: str, *, required: bool = False) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=Parameter.empty if required else None)


def must_give(parameters: Sequence[Parameter], *, nothing: bool = False) -> list[str]:
    """The names of those without a default that take an array or number, or `nothing`: None."""
    names = []
    for param in parameters:
        takes_nothing = param.annotation is None
        if param.default is Parameter.empty and takes_nothing == nothing:
            names.append(param.name)
    return names


@dataclass(frozen=True)
class CallSignature:
    inputs: tuple[str, ...] = ()
    """The keywords of Q, K and V; none where they are given by place."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """The keyword of each option that is claimed; of a cache "past_key" and "past_value" apart."""
    required: tuple[str, ...] = ()
    is_packed: bool = False
    """Q, K and V come in one array."""
    sizes: Mapping[str, str] = field(default_factory=dict)
    """The keyword of each size that it is passed."""
    off: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments that it must be given."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The options that are on where they are left out, with their defaults."""
    untried: tuple[str, ...] = ()
    """Its parameters that no call gives a value: what they do is not known."""
    random: tuple[str, ...] = ()
    """Its parameters by which weights are left out at random: no call asks for that."""
    handed: Mapping[str, str] = field(default_factory=dict)
    """The keywords of what a backward pass takes of the forward; none of a forward pass."""
    buffers: tuple[str, ...] = ()
    """The keywords of arrays that a backward pass writes the gradients by Q, K and V to."""
    used: frozenset[str] = frozenset()
    """The parameters that are known."""

    @property
    def claimed(self) -> tuple[str, ...]:
        return tuple(name for name in OPTIONS if name in self.keywords)

    @property
    def usual_layout(self) -> str:
        """The layout to try first: documents come one behind the other, pages have tokens before heads."""
        if "ends_q" in self.sizes:
            return PACKED_ROWS
        if self.is_packed:
            return MERGED
        return BESIDE_PAGES if "pages" in self.keywords else USUAL

    def with_options(self, problem: Problem) -> dict[str, Any]:
        """Everything but Q, K and V that the function is passed in a case, by its own names."""
        out = self.with_sizes(problem)
        for name, value in self.passed_options(problem).items():
            keyword = self.keywords.get(name)
            if name == "cache":
                for part, array in zip(PARTS, value or (None, None), strict=True):
                    out[self.keywords[part]] = array
            elif name == "scales":
                for symbol, scale in value.items():
                    out[self.keywords[SCALE_OF[symbol]]] = scale
            elif keyword in self.sizes.values():
                continue  # the case says it
            elif name in problem.profile.passes:
                out |= problem.profile.passes[name](self.keywords[name], value)
            else:
                out[self.keywords[name]] = value
        return out

    def with_sizes(self, problem: Problem) -> dict[str, Any]:
        """The sizes of a case, and arguments that have no part in attention."""
        case = problem.case
        out: dict[str, Any] = {**problem.profile.gives(case.heads, case.kv_heads, case.d_k), **self.off}
        for ours, theirs in self.sizes.items():
            if ours in SIZES:
                out[theirs] = SIZES[ours].of(case)

        if problem.gather:
            slots, _ = problem.profile.pages_of(case)
            for ours in self.sizes.keys() & OF_PAGES:
                out[self.sizes[ours]] = OF_PAGES[ours].of(problem.gather, slots)
        return out

    def passed_options(self, problem: Problem) -> dict[str, Any]:
        """The options of a case by our names; those it must be given otherwise change nothing."""
        if "out" in self.required:
            OPTIONS["out"].ask(problem, True)
        passed = dict(problem.passed)
        if "causal" in self.keywords and Causal() not in problem.meant.rules:
            passed.setdefault("causal", False)  # whatever its default is
        passed = {name: value for name, value in passed.items() if name in self.keywords}

        # Two options may have one keyword, of which the case's is passed.
        taken = {self.keywords[name] for name in passed}
        for name in self.required:
            if self.keywords[name] in taken:
                continue
            if name == KEY_POSITIONS:
                passed[name] = usual_positions(problem, of_keys=True)
            else:
                passed[name] = OPTIONS[name].neutral(problem)
        return passed


def read_signature(parameters: Sequence[Parameter] | None, request: Request) -> CallSignature:
    """Find the keywords of a function, which may be a backward pass.

    Raises AttnError where Q, K and V have no place, or something must be given that is not known.
    """
    profile = request.profile
    renames = request.renames
    refuse_renames(renames)
    if parameters is None:
        if not profile.parameters:
            raise AttnError("its signature cannot be read; say --like sdpa, flash, onnx or jax, or wrap it")
        parameters = [parameter(name) for name in profile.parameters]
        inputs: tuple[str, ...] = ()
    else:
        inputs = find_inputs(parameters, renames)

    # What only a backward pass is given is set apart first.
    every = [param.name for param in parameters]
    handed = find_handed(every, renames) if request.backward else {}
    buffers = find_buffers(every) if handed else ()
    forward = [param for param in parameters if param.name not in {*handed.values(), *buffers}]
    names = [param.name for param in forward]
    required = must_give(forward)

    packed = find_packed(names, renames)
    qkv = inputs or ([packed] if packed else names[:3])
    keywords = find_keywords([name for name in names if name not in qkv], profile, renames)
    # One letter or two may mean something else where they have a default.
    clear = [name for name in names if len(name) > 2 or name in required]
    sizes = find_names({ours: THEIRS[ours] for ours in (*SIZES, *OF_PAGES)}, clear, renames)
    off = {name: OFF[name] for name in required if name in OFF}
    off |= dict.fromkeys(must_give(forward, nothing=True))

    used = frozenset({*qkv, *keywords.values(), *sizes.values(), *handed.values()})
    taken = {*used, *off, *renames, *profile.gives(2, 1, 8)}  # of any sizes
    unknown = [name for name in required if name not in taken]
    if unknown[:1] == ["self"]:
        raise AttnError(
            "it is a method without its object, self; name a function, or write one that makes the object "
            "and calls it"
        )
    if unknown:
        ours = f"OURS, like {D_OUTPUT}" if request.backward and not handed else "OURS"
        raise AttnError(
            f"it must be given {', '.join(unknown)}, which attnctl does not know; --map {unknown[0]}={ours}"
        )

    # Reversed, so that of several options of one keyword the first is meant.
    option_of = {theirs: OF_PARTS.get(ours, ours) for ours, theirs in reversed(keywords.items())}
    return CallSignature(
        inputs=inputs,
        keywords=keywords,
        required=tuple(dict.fromkeys(option_of[name] for name in required if name in option_of)),
        is_packed=bool(packed),
        sizes=sizes,
        off=off,
        defaults=find_defaults(forward, option_of),
        untried=tuple(name for name in names if name not in {*taken, *OFF}),
        random=tuple(name for name in names if name in DROPOUT),
        handed=handed,
        buffers=buffers,
        used=used,
    )


def find_defaults(parameters: Sequence[Parameter], option_of: Mapping[str, str]) -> dict[str, Any]:
    """The options that are on where they are left out, with their defaults."""
    defaults = {}
    for param in parameters:
        option = option_of.get(param.name)
        if option is not None and is_on(option, param.default):
            defaults[option] = param.default
    return defaults


def is_on(option: str, default: Any) -> bool:
    """A default is a value that the option has an effect with, and none that stands for another."""
    if option == "scales":
        return False  # numbers are stored by scales, or not at all
    if option == "window":
        ends = default if type(default) is tuple else ()
        return len(ends) == 2 and all(type(end) is int and end >= 0 for end in ends)
    return type(default) in (int, float) and default > 0


def find_names(
    wanted: Mapping[str, Sequence[str]], names: Sequence[str], renames: Mapping[str, str]
) -> dict[str, str]:
    """Find the keyword of each wanted thing: as it is said, or else the first of its usual names."""
    keywords: dict[str, str] = {}
    for ours, usual in wanted.items():
        renamed = [theirs for theirs, name in renames.items() if name == ours]
        candidates = [*renamed, *(name for name in usual if name in names)]
        if candidates:
            keywords[ours] = candidates[0]
    return keywords


def find_buffers(names: Sequence[str]) -> tuple[str, ...]:
    """Find the arrays that gradients by Q, K and V are written to; none where not all three are there."""
    buffer_of = {variable_of(name).lower(): name for name in names if variable_of(name) != name}
    buffers = [buffer_of[usual] for symbol in INPUTS for usual in THEIRS[symbol] if usual in buffer_of]
    return tuple(buffers) if len(buffers) == len(INPUTS) else ()


def find_handed(names: Sequence[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Find the keywords of what a backward pass takes of the forward; nothing where this is none."""
    wanted = {ours: [name for name in names if name.lower() in THEIRS[ours]] for ours in HANDED}
    of_these = {theirs: renames[theirs] for theirs in names if theirs in renames}
    handed = find_names(wanted, names, of_these)
    return handed if D_OUTPUT in handed else {}


def refuse_renames(renames: Mapping[str, str]) -> None:
    known = sorted({*THEIRS, *OPTIONS})
    for theirs, ours in renames.items():
        if ours not in known:
            raise AttnError(f"--map {theirs}={ours}: attnctl has no {ours}; {suggest(ours, known)}")


def refuse_unused(request: Request, *signatures: CallSignature) -> None:
    used = {name for signature in signatures for name in signature.used}
    for theirs, ours in request.renames.items():
        if theirs in used:
            continue
        if ours in HANDED and not request.backward:
            why = f"a backward pass alone is given {ours}; add --backward"
        elif ours in PARTS:
            why = f"a cache is {' and '.join(PARTS)}; map the other one, too"
        else:
            why = f"it takes no {theirs}, or another parameter is {ours} already"
        raise AttnError(f"--map {theirs}={ours}: {why}")


def find_packed(names: Sequence[str], renames: Mapping[str, str]) -> str:
    """Find the parameter that holds Q, K and V at once; empty where there is none."""
    return next((name for name in names if renames.get(name, name.upper()) == PACKED), "")


def find_inputs(parameters: Sequence[Parameter], renames: Mapping[str, str]) -> tuple[str, ...]:
    """Find the keywords of Q, K and V; none where they are the first three, given by place."""
    names = [param.name for param in parameters]
    packed = find_packed(names, renames)
    if packed:
        is_by_place = names[0] == packed and parameters[0].kind in BY_PLACE
        return () if is_by_place else (packed,)

    of_these = {theirs: ours for theirs, ours in renames.items() if theirs in names}
    named = list(find_names(usual_inputs(names, renames), names, of_these).values())
    is_keyword_only = any(param.name in named and param.kind not in BY_PLACE for param in parameters)
    if len(named) == 3 and (is_keyword_only or names[:3] != named):
        return tuple(named)

    # Whatever they are called, the first three are Q, K and V, unless --map says otherwise.
    are_others = any(renames.get(name, ours) != ours for name, ours in zip(names, INPUTS, strict=False))
    have_places = len(parameters) >= 3 and all(param.kind in BY_PLACE for param in parameters[:3])
    if are_others or not have_places:
        takes = f"it takes ({', '.join(names)})" if names else "it does not say what it takes"
        raise AttnError(
            f"{takes}, and not Q, K and V; wrap it in a function (q, k, v); a layer "
            "with weights of its own is held by attnctl.testing.check_module(layer, x, backward=True)"
        )
    return ()


def usual_inputs(names: Sequence[str], renames: Mapping[str, str]) -> dict[str, list[str]]:
    """The parameters that may be Q, K and V by their names."""
    free = [name for name in names if name not in renames]
    usual = {ours: [name for name in free if name.lower().rstrip("_") in THEIRS[ours]] for ours in INPUTS}

    has_pages = not {*THEIRS["pages"]}.isdisjoint(names)
    if has_pages:  # what a cache is called is what comes in pages
        for ours, pages in zip(INPUTS[1:], PAGES, strict=True):
            of_pages = [name for name in free if name.lower() in passed_names(pages)]
            usual[ours] = of_pages or usual[ours]
    return usual


def find_keywords(names: list[str], profile: TargetProfile, renames: Mapping[str, str]) -> dict[str, str]:
    """Find the keyword of each option."""
    wanted = {
        ours: THEIRS[ours]
        for ours in (*OPTIONS, *PARTS, *SCALE_OF.values(), KEY_POSITIONS)
        if ours not in OF_PARTS.values()
    }
    wanted |= {ours: (theirs,) for ours, theirs in profile.keywords.items()}
    keywords = find_names(wanted, [name for name in names if name not in renames], renames)

    parts = [keywords.pop(part) for part in PARTS if part in keywords]
    if len(parts) == len(PARTS):  # one alone is none
        keywords |= zip(PARTS, parts, strict=True)
        keywords["cache"] = parts[0]
    scales = {name: keywords.pop(name) for name in SCALE_OF.values() if name in keywords}
    if scales.keys() >= {*STORED_SCALES}:
        keywords |= {**scales, "scales": scales[STORED_SCALES[0]]}
    if "mask" in keywords and not profile.bool_mask_only:
        keywords["float_mask"] = keywords["mask"]
    return keywords

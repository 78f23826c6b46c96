"""Plans: all that a computation needs, before anything is computed; and what was meant by a dump."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import dims
from attnctl.inputs.config.fields import SETTABLE
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.inputs.config.sizes import key_count, rotary
from attnctl.inputs.plan.tensors import Named, arrays_of, stream
from attnctl.math import Array, Keep, Progress, Shape, Sizes
from attnctl.math.derivation import Derivation, LayerParts, Rotary, Variant
from attnctl.math.engine import Engine, Outcome, carry_out, steps_needed
from attnctl.math.engine.cost import Cost, cost, peak, require, size_text
from attnctl.math.kind import DRAWN, GRADIENT_SETTINGS, HEADS, KIND, Kind, choices_of, documents_in
from attnctl.math.names import EMBEDDINGS, OUTPUT, PROJECTED, TABLE, X, gradient_of
from attnctl.math.ops import Sinusoid
from attnctl.math.rules import Alibi, Documents, Padding, PerBatch, Rule
from attnctl.math.steps import root_of
from attnctl.record import Trace, names_of_steps

if TYPE_CHECKING:
    from attnctl.math.ops import Gather
    from attnctl.math.ops.vectors import GivenPlaces
    from attnctl.record.edits import WhatIf


PAD = "[PAD]"
"""The token that fills a sentence up to the length of others."""


BY_TORCH = "Head outputs are those of torch's scaled_dot_product_attention."


@dataclass(frozen=True)
class Plan:
    """What can be run and costed: the kind of attention, its arrays, and what the dump says of it.

    There is one of a sentence, of arrays, of a layer of a model, and of a case of `conform`.
    """

    variant: Variant
    given: dict[str, Array]
    header: dict[str, Any]
    dtype: str
    max_memory: int | None = None
    what_if: WhatIf | None = None
    by_torch: bool = False
    """Head outputs by torch's own kernel."""

    @property
    def derivation(self) -> Derivation:
        return self.variant.derivation

    def costs(self, keep: Keep = None) -> list[Cost]:
        """The cost of each step; edits and some gradients hold whole ones. Raises AttnError for misfits."""
        keep = self.kept(keep)
        is_whole = bool(self.what_if)
        if keep and not is_whole:
            from attnctl.math.engine.tiles import needs_whole

            is_whole = needs_whole(steps_needed(self.derivation, keep), keep)

        itemsize = np.dtype(self.dtype).itemsize
        return costs_of(self.variant, self.given, itemsize, None if is_whole else keep)

    def kept(self, keep: Keep) -> list[str] | None:
        if keep is None:
            return None
        return names_of_steps(keep, [step.name for step in self.derivation])

    def run(self, keep: Keep = None, progress: Progress | None = None) -> Trace:
        """Carry it out, keeping these steps (None: all). Raises AttnError for others, or lack of memory."""
        keep = self.kept(keep)
        edits = self.what_if.changes(self.derivation, self.header) if self.what_if else None
        engine = self.engine(keep)
        self.require_memory(keep)

        outcome = carry_out(
            self.derivation,
            self.given,
            self.dtype,
            edits=edits,
            keep=keep,
            progress=progress,
            engine=engine,
        )
        return self.record(outcome)

    def engine(self, keep: Keep) -> Engine | None:
        """What fills the head outputs, where that was asked for. Raises AttnError where it cannot."""
        if not self.by_torch:
            return None

        from attnctl.inputs.plan.by_torch import fill_by_torch, refuse_unlike_torch

        inside = {step.name for step in self.derivation if step.is_n_by_n or step.op.log_of_sum}
        asked = inside if keep is None else inside & set(keep)
        refuse_unlike_torch(keep, asked, self.dtype, is_edited=self.what_if is not None)
        return fill_by_torch

    def require_memory(self, keep: Keep) -> None:
        """Refuse a run for which there is no memory, and name the step that would fit alone."""
        needed = peak(self.costs(keep))
        try:
            require(needed, "this run", self.max_memory)
        except AttnError as error:
            last = self.derivation.steps[-1].name
            least = peak(self.costs([last]))
            if least >= needed:
                raise
            instead = f"--step {last} takes {size_text(least)}; --cost says what each step does"
            raise AttnError(f"{problem}. {instead}" for problem in error.problems) from None

    def record(self, outcome: Outcome) -> Trace:
        header = dict(self.header)
        if self.by_torch:
            header["notes"] = [*header.get("notes", ()), BY_TORCH]
        if self.what_if:
            header["edits"] = self.what_if.record()
        if outcome.empty_rows:
            header["empty_rows"] = outcome.empty_rows
        if outcome.overflow:
            step, cell = outcome.overflow
            header["overflow"] = {"step": step, "at": cell}

        steps = [step for step in self.derivation if step.name in outcome.values]
        if self.what_if:
            steps = list(map(self.what_if.mark_edited, steps))
        return Trace({step.name: step for step in steps}, outcome.values, header)


def run_each(plans: Sequence[Plan], keep: Keep = None, progress: Progress | None = None) -> list[Trace]:
    """Run each. Raises AttnError where all of them together need more memory than there is."""
    if len(plans) > 1:
        require(sum(peak(plan.costs(keep)) for plan in plans), "this batch", plans[0].max_memory)
    return [plan.run(keep, progress) for plan in plans]


class LearnedTable(NamedTuple):
    """Learned positions: all that there are, and which of them the tokens have."""

    rows: Array
    read: Array


@dataclass(frozen=True)
class DumpPlan:
    """How recorded steps should have come about: no variant, as recorded lines may be among them."""

    derivation: Derivation
    sizes: Sizes
    notes: tuple[str, ...] = ()
    """What was decided where the arrays could have meant something else, or were left out."""
    unasked: Mapping[str, str] = field(default_factory=dict)
    """Recorded steps that nothing asks for -> the option that would."""
    unknown: tuple[str, ...] = ()  # recorded arrays under names that attnctl does not know
    supplied: frozenset[str] = frozenset()
    """Arrays that the dump has not: weights of the model that says what was meant."""
    learned: LearnedTable | None = None


def what_if_of(settings: Settings) -> WhatIf | None:
    if not (settings.edits or settings.renormalize):
        return None
    from attnctl.record.edits import what_if
    from attnctl.store.source import read_one

    read = partial(read_one, named="edits" in settings.named)
    return what_if(settings.edits, read, renormalize=settings.renormalize)


def with_padding(
    rules: Sequence[Rule], lengths: PerBatch | None = None, keys: Sequence[str] = ()
) -> tuple[Rule, ...]:
    """The rules with the keys that are padding here: those from `lengths` on, or [PAD]; none if none is."""
    others = tuple(rule for rule in rules if not isinstance(rule, Padding))
    if lengths is not None:
        return (*others, Padding(lengths))

    real = [place for place, key in enumerate(keys) if key != PAD]
    is_asked = Padding in map(type, rules)
    if not keys or (len(real) == len(keys) and not is_asked):
        return others

    length = real[-1] + 1 if real else 0
    holes = sorted({*range(length)} - {*real})
    return (*others, Padding(length, tuple(holes)))


def variant(
    asked: Settings,
    sizes: Sizes,
    named: Named,
    offset: PerBatch = 0,
    layer: LayerParts | None = None,
    pages: Gather | None = None,
    places: GivenPlaces = (),
) -> Variant:
    """The kind of attention that settings ask for on these arrays, `offset` keys before query 0."""
    raise_all(unmeant_parts(asked, key_count(sizes)))
    past = sizes.get("past", 0)

    sinusoid = None
    if asked.positions == SINUSOIDAL:
        embeddings, _ = named[EMBEDDINGS]
        *_, length, d_model = embeddings.shape
        placed = places[0][0] if places else ()
        sinusoid = Sinusoid(length, d_model, past, documents_in(asked), placed)

    # The axes of what is not shaped as the table of names has it: with a batch, or of one row alone.
    other_axes = {}
    for name, (array, _) in named.items():
        axes = TABLE[name].axes
        if array.ndim != len(axes):
            other_axes[name] = ("batch", *axes)[-array.ndim :]

    return Variant(
        given={name: origin for name, (_, origin) in named.items()},
        d_k=sizes.get("d_k", 0),
        kv_share=sizes["head"] // sizes["kv_head"],
        sinusoid=sinusoid,
        rotary=rotary(asked),
        pages=pages,
        offset=offset,
        past=past,
        places=places,
        rules_by_positions=asked.rules_by_positions,
        batch="batch" in sizes,
        axes=other_axes,
        layer=layer or LayerParts(),
        **choices_of(asked),
    )


def unmeant_parts(asked: Settings, keys: int) -> Iterator[str]:
    """Chunks of other keys than there are, or else positions of documents that there are not."""
    if isinstance(asked.chunks, tuple):
        _, end = asked.chunks[-1]
        if end != keys:
            place = asked.where(("chunks",))
            ends = f"the ranges end at {end}, but there are {keys} keys"
            yield f"{place}: {ends}; end the last one at {keys}"
            return

    has_documents = any(isinstance(rule, Documents) for rule in asked.rules)
    if asked.positions_run_on and not has_documents:
        place = asked.where(("positions_run_on",))
        yield f"{place}: there are no documents; leave it out, or say where they begin"


def costs_of(v: Variant, given: Mapping[str, Array], itemsize: int, keep: Keep = None) -> list[Cost]:
    raise_all(loose_ends(v))
    return cost(v.derivation, {name: array.shape for name, array in given.items()}, itemsize, keep)


def loose_ends(v: Variant) -> Iterator[str]:
    """Lines that read what is neither given nor a line, and weights that no line reads."""
    read_or_made: set[str] = set()
    for step in v.derivation:
        lacking = [name for name in step.inputs if name not in read_or_made]
        for name in lacking:
            what = f"{step.name} reads {name}, which is neither given nor a line here"
            yield f"{what}; {' or '.join(remedies(v, step.name, name))}"
        read_or_made |= {step.name, *lacking}

    for name in v.given:
        if name not in read_or_made and TABLE[name].is_weight:
            readers = [option for option, more in one_more(v) if name in more.derivation]
            instead = f"{readers[0]} does" if readers else "leave it out"
            yield f"{name}: nothing here reads it; {instead}"


def remedies(v: Variant, step: str, name: str) -> Iterator[str]:
    """What to do where a step reads what is not there: give it, or do not ask for the step."""
    from_x = "X with W_Q, W_K and W_V"
    if name == X:
        yield f"give {from_x}"
    elif name in PROJECTED:
        yield f"give Q, K and V, or {from_x}"
    else:
        yield f"give {name}"

    plain = choices_of(Kind())
    for asked, setting in KIND.items():
        if setting and step not in replace(v, **{asked: plain[asked]}).derivation:
            yield f"leave {setting.flag_name} out"


def one_more(v: Variant) -> Iterator[tuple[str, Variant]]:
    """The variant with one thing more that a person can ask for, at an example's value, and its option."""
    yield "--positions rope", replace(v, rotary=Rotary())
    yield "--positions alibi", replace(v, rules=(*v.rules, Alibi()))
    yield "--kv-heads", replace(v, kv_share=2)
    for setting, rule in SETTABLE.items():
        yield setting.flag_name, replace(v, rules=(*v.rules, rule.of(setting.at_example)))
    for name, asked in KIND.items():
        if asked is not None:
            yield asked.flag_name, replace(v, **{name: asked.at_example})


def with_norm_rows(asked: Settings, *, one_row: bool) -> Settings:
    """The settings with norms that take all heads as one row, where nobody says what else is one."""
    if not one_row or asked.qk_norm is None or asked.qk_norm.over is not None:
        return asked
    return asked.with_(qk_norm=replace(asked.qk_norm, over=HEADS))


# --- the gradient that a backward pass begins with ---


def with_cotangent(kind: Variant, named: Named, settings: Settings) -> tuple[Variant, Named]:
    """The variant and its arrays with the gradient it begins at. Raises AttnError if that does not fit."""
    if not kind.backward:
        if settings.cotangent:
            place = settings.where(("cotangent",))
            raise AttnError(f"{place}: nothing goes back to gradients; say --backward, too")
        return kind, named

    forward = replace(kind, backward=False)
    name = gradient_of(root_of(forward.derivation))
    costs = costs_of(forward, arrays_of(named), 1)
    shape = next(step_cost.shape for step_cost in costs if gradient_of(step_cost.name) == name)

    if name not in named or settings.cotangent:  # what is asked for goes before what a file brings
        array, origin = begin_gradient(settings, name, shape)
        without_ones = tuple(size for size in shape if size != 1)
        if array.squeeze().shape == without_ones:  # (n, d) of one head
            array = array.reshape(shape)
        named = {**named, name: (array, origin)}

    gradient, _ = named[name]
    if gradient.shape != shape:
        problem = f"{name}: {dims(gradient.shape)}, expected {dims(shape)}"
        raise AttnError(f"{problem}, the shape of what it is a gradient by")
    return replace(kind, given={item: origin for item, (_, origin) in named.items()}), named


def plan_of(
    kind: Variant, named: Named, header: dict[str, Any], settings: Settings, what_if: WhatIf | None
) -> Plan:
    kind, named = with_cotangent(kind, named, settings)
    return Plan(
        variant=kind,
        given=arrays_of(named),
        header=header,
        dtype=settings.dtype,
        max_memory=settings.max_memory,
        what_if=what_if,
    )


def with_gradients(plan: Plan, settings: Settings, d_output: Array | None = None) -> Plan:
    choices = {name: getattr(settings, name) for name in GRADIENT_SETTINGS}
    named = {name: (array, plan.variant.given[name]) for name, array in plan.given.items()}
    if settings.backward and d_output is not None:
        named[gradient_of(OUTPUT)] = d_output, "given"

    kind, named = with_cotangent(replace(plan.variant, **choices), named, settings)
    return replace(plan, variant=kind, given=arrays_of(named))


def begin_gradient(settings: Settings, name: str, shape: Shape) -> tuple[Array, str]:
    """The gradient by the output, and how it came about; a file has it under its name or alone.

    Drawn it is N(0, 1): a loss that is the sum of the output would hide mistakes, as every row of
    its gradient is the same.
    """
    match settings.cotangent or DRAWN:
        case "drawn":
            rng = stream(settings.seed, gradient_of(OUTPUT), count=prod(shape))
            return rng.standard_normal(shape), f"drawn from N(0, 1), seed {settings.seed}"
        case "ones":
            return np.ones(shape), "ones"
        case path:
            return read_gradient(settings, name, path), f"from {path}"


def read_gradient(settings: Settings, name: str, path: str) -> Array:
    """The array of a file under the gradient's name, or under that of the output's; or the only one."""
    from attnctl.inputs.arrays.reader import as_array
    from attnctl.store.source import read_one

    trace = read_one(path, named="cotangent" in settings.named)
    for known in (name, gradient_of(OUTPUT)):
        if known in trace:
            return as_array(name, trace[known])

    if len(trace) > 1:
        place = settings.where(("cotangent",))
        raise AttnError(
            f"{place}: {path} has {', '.join(trace)}, and no {name}; give the gradient that name"
        )
    (only,) = trace
    return as_array(name, trace[only])

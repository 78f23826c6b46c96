"""Layers of a trained model, run on a sentence, on ids, or on what came into one of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.arrays.foreign import beside_model
from attnctl.inputs.arrays.layout import search
from attnctl.inputs.arrays.reader import as_array, complete
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import aside
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Variant, derive
from attnctl.math.names import HIDDEN, LOGSUMEXP, TABLE, X
from attnctl.math.ops import Given
from attnctl.models import run
from attnctl.models.attention import blank_memory, blank_rows, prepare_attention
from attnctl.models.forward import embed_ids
from attnctl.models.layer import Model
from attnctl.models.next import begin_pass
from attnctl.models.run import ModelInput
from attnctl.models.source import open_model
from attnctl.models.tensors import bfloat16
from attnctl.record import Trace
from attnctl.sources.sentence import Source

if TYPE_CHECKING:
    from attnctl.inputs.plan import Plan
    from attnctl.math import Keep, Progress
    from attnctl.models.generate import Generating


X_AS_GIVEN = (
    "X is taken as given: the norm before it was not judged. Record `hidden`, what came into it, too."
)


class Layers(Source):
    """Layers of a model, or all, on one input; an edit is made in the first and flows into the others."""

    no_rules = no_seed = "the model says what its attention is; only edits can be tried"

    def __init__(
        self,
        model: str,
        given: ModelInput,
        layers: str | None,
        settings: Settings,
        following: tuple[int, int | None] | None = None,
        generating: Generating | None = None,
    ) -> None:
        super().__init__(given.text, settings=settings)
        self.model = model
        self.input = given
        self.layers = layers or "all"
        self.names_layers = layers is not None
        self.following = following
        """How many next tokens are asked for, in place of layers, and at which position."""
        self.generating = generating
        """What the text is gone on with first; its last rows are shown where no layers are named."""

    def plans(self, settings: Settings | None = None) -> Sequence[Plan]:
        """The attention of each layer, to be costed: what comes into it is not computed."""
        return run.plans(self.model, self.input, self.layers, settings or self.settings)

    def run(
        self, settings: Settings | None = None, keep: Keep = None, progress: Progress | None = None
    ) -> list[Trace]:
        settings = settings or self.settings
        if self.following:
            from attnctl.models.next import run_next

            prompt = begin_pass(self.model, self.input, settings)
            trace = run_next(prompt, *self.following, progress)
            return [trace if keep is None else trace.select(list(keep))]

        given = self.input
        if self.generating:
            from attnctl.models.generate import begin_text, generate

            made = generate(begin_text(self.model, given, settings), self.generating, progress)
            if not self.names_layers:
                return [made.trace if keep is None else made.trace.select(list(keep))]
            given = replace(given, text=None, ids=None, tokens=made.tokens, chat=False)
        return run.run_model(self.model, given, self.layers, settings, keep, progress)

    def plan_of(self, trace: Trace) -> tuple[Trace, DumpPlan]:
        """The arrays of its one layer, and their plan; ids are what came in. Raises AttnError."""
        name = self.model
        part, layers, cross = run.wanted_layers(
            self.layers, lambda part: len(open_model(name, part).description.layers)
        )
        if len(layers) != 1:
            raise AttnError(f"--layer {self.layers}: the arrays are of one layer; name that one")
        (index,), ids, model = layers, self.input.ids, open_model(name, part)
        first = embed_ids(model, list(ids)) if ids and index == 0 and not part else None
        return plan_layer(model, index, trace, cross, first)

    @cached_property
    def whole(self) -> Sequence[Trace]:
        """The traces as they were asked for, run once."""
        return self.run()

    def traces(self) -> Sequence[Trace]:
        return self.whole

    @cached_property
    def names(self) -> Sequence[str]:
        """The name by which each layer is asked for: 3, decoder.1."""
        part, dot, _ = self.layers.split(",")[0].strip().rpartition(".")
        return [f"{part}{dot}{trace.header['layer']}" for trace in self.whole]

    def after(self, layer: int) -> Source:
        if not layer:
            return self
        return Layers(self.model, self.input, ",".join(self.names[layer:]), self.settings)


# --- the plan of a layer, held beside someone's arrays ---


def plan_layer(
    model: Model, index: int, trace: Trace, cross: bool = False, first: Array | None = None
) -> tuple[Trace, DumpPlan]:
    """Someone's arrays in our layout beside the model's weights, and the plan of the layer.

    `first` is what comes into layer 0, where the tokens say it. What the arrays hold of the
    model's own numbers is left aside: the model says what is meant. Raises AttnError for an array
    that does not go with the model's sizes.
    """
    renamed = beside_model(trace, cross=cross)
    arrays = {renamed.get(name, name): as_array(name, np.asarray(trace[name])) for name in trace}
    known = {name: array for name, array in arrays.items() if name in TABLE}
    if first is not None:
        known.setdefault(HIDDEN, first)
    recorded = {name: array for name, array in known.items() if not is_weight(name)}
    shapes = {name: array.shape for name, array in recorded.items()}
    reading = search(shapes, [{**model.layer(index).d.sizes, "d_out": model.description["width"]}])
    if "batch" in reading.sizes:
        raise AttnError(f"a batch of {reading.sizes['batch']}: give the arrays of one sequence")
    ours = {name: reading.lay_out(name, array) for name, array in recorded.items()}
    whole = complete(reading.sizes, {X: 0, **recorded})
    hidden = blank_rows(model, whole["query"])
    keys = blank_memory(model, whole.get("key", whole["query"]))
    run = prepare_attention(model.layer(index), hidden, None, keys if cross else None, cross=cross)
    gradients = any(TABLE[name].gradient for name in ours)
    derivation = starting(replace(run.variant, backward=gradients, logsumexp=LOGSUMEXP in ours), ours)
    weights = {name: run.given[name] for name in derivation.given if is_weight(name)}
    narrowed = narrowing(list(ours.values()))
    held = {**{name: narrowed(array) for name, array in weights.items()}, **ours}
    steps = {step.name: step for step in derivation if step.name in held}
    steps |= {name: aside(name, held[name]) for name in held if name not in steps}
    unknown = tuple(name for name in trace if renamed.get(name, name) not in TABLE)
    notes = (X_AS_GIVEN,) if starts_at_norm(ours) and run.variant.layer.norm else ()
    plan = DumpPlan(derivation, whole, notes, unknown=unknown, supplied=frozenset(weights))
    return replace(trace, steps=steps, arrays=held), plan


def narrowing(recorded: Sequence[Array]) -> Callable[[Array], Array]:
    """The rounding that a port in the type of these arrays does to the model's numbers, if any."""
    floats = [array for array in recorded if array.dtype.kind == "f" and array.size]
    if floats and all(array.dtype == np.float16 for array in floats):
        return lambda array: array.astype(np.float16)
    if floats and all(np.array_equal(bfloat16(array), array) for array in floats):
        return bfloat16
    return lambda array: array.astype(np.float64)


def is_weight(name: str) -> bool:
    row = TABLE[name]
    return row.leaf and row.once and not row.gradient


def starts_at_norm(recorded: Container[str]) -> bool:
    """True where what the norm gave is recorded, and not what came into it."""
    return X in recorded and HIDDEN not in recorded


def starting(variant: Variant, recorded: Mapping[str, Array]) -> Derivation:
    """The derivation from `hidden` on, or from X where only that is recorded.

    A hook on the attention module sees X and not `hidden`: what is made of it is judged, the norm is not.
    """
    whole = derive(variant)
    if not starts_at_norm(recorded):
        return whole
    steps = [
        replace(step, op=Given(), inputs=(), formula="given") if step.name == X else step
        for step in whole
        if step.name != HIDDEN and not step.name.startswith("norm_")
    ]
    return Derivation(tuple(step for step in steps if HIDDEN not in step.inputs))

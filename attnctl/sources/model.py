"""Layers of a trained model, run on a sentence, on ids, or on what came into one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.models import run
from attnctl.models.forward import embed_ids
from attnctl.models.port import plan_layer
from attnctl.models.run import ModelInput
from attnctl.models.source import open_model
from attnctl.sources.sentence import Source

if TYPE_CHECKING:
    from attnctl.inputs.plan import DumpPlan, Plan
    from attnctl.math import Keep, Progress
    from attnctl.record import Trace


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
    ) -> None:
        super().__init__(given.text, settings=settings)
        self.model, self.input, self.layers = model, given, layers or "all"
        self.following = following
        """How many next tokens are asked for, in place of layers, and at which position."""

    def plans(self, settings: Settings | None = None) -> Sequence[Plan]:
        """The attention of each layer, to be costed: what comes into it is not computed."""
        return run.plans(self.model, self.input, self.layers, settings or self.settings)

    def run(
        self, settings: Settings | None = None, keep: Keep = None, progress: Progress | None = None
    ) -> list[Trace]:
        if self.following:
            from attnctl.models.next import begin_pass, run_next

            trace = run_next(
                begin_pass(self.model, self.input, settings or self.settings), *self.following, progress
            )
            return [trace if keep is None else trace.select(list(keep))]
        return run.run_model(self.model, self.input, self.layers, settings or self.settings, keep, progress)

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
        """Those from this one on."""
        if not layer:
            return self
        return Layers(self.model, self.input, ",".join(self.names[layer:]), self.settings)

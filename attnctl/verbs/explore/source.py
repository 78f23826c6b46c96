"""The traces to explore: where they come from, what explains their cells, what edits changed in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Cell
from attnctl.math.names import KEY_LENGTHS
from attnctl.record.trace import Trace
from attnctl.verbs.explain import Explainer, Node

if TYPE_CHECKING:
    from attnctl.models.run import ModelInput

DEFAULTS = Settings()

MODELS_OWN = "the model says what its attention is; only edits can be tried"


class TraceSource:
    """Something that was run, or was read from a file.

    `settings` are those it was made with. A source that cannot be carried out again says why in
    `fixed`; one whose rules or seed cannot change says why in `no_rules` and `no_seed`.
    """

    settings: Settings = DEFAULTS
    fixed: str = ""
    no_rules: str = ""
    no_seed: str = ""
    words: tuple[str, ...] = ()
    """What names it on a command line."""

    def run(self, settings: Settings, layer: int = 0) -> tuple[Trace, ...]:
        """The traces from this layer on, with these settings. Raises AttnError where that cannot be."""
        raise AttnError(self.fixed)

    def first(self) -> tuple[Trace, ...]:
        """The traces as they were asked for."""
        return self.run(self.settings)


@dataclass(frozen=True)
class OfSentence(TraceSource):
    """A sentence that is run; `config` names the file that its settings are laid over."""

    sentence: str | None
    settings: Settings
    config: str | None = None
    base: Settings = DEFAULTS

    def run(self, settings: Settings, layer: int = 0) -> tuple[Trace, ...]:
        from attnctl.inputs.plan.sentence import prepare

        return (prepare(settings, self.sentence).run(),)


@dataclass(frozen=True)
class OfArrays(TraceSource):
    """Arrays of a file that attention is carried out on; the file may hold later steps, too."""

    trace: Trace
    settings: Settings
    words: tuple[str, ...] = ()
    no_seed: str = "nothing is drawn: these arrays were given"

    def run(self, settings: Settings, layer: int = 0) -> tuple[Trace, ...]:
        from attnctl.inputs.plan.intended import under_our_names
        from attnctl.inputs.plan.operator import prepare

        found = under_our_names(self.trace, settings)
        return (prepare(found, settings, found.header).run(),)


@dataclass(frozen=True)
class OfModel(TraceSource):
    """Layers of a trained model, run on a sentence or ids; `layers` are those that are shown."""

    model: str
    input: ModelInput
    layers: str
    settings: Settings
    no_rules: str = MODELS_OWN
    no_seed: str = MODELS_OWN

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name by which each layer that is shown is asked for: 3, decoder.1."""
        part, dot, _ = self.layers.split(",")[0].strip().rpartition(".")
        return tuple(f"{part}{dot}{trace.header['layer']}" for trace in self.first())

    @cached_property
    def whole(self) -> tuple[Trace, ...]:
        """The traces as they were asked for, run once."""
        return self.run(self.settings)

    def first(self) -> tuple[Trace, ...]:
        """The traces as they were asked for."""
        return self.whole

    def run(self, settings: Settings, layer: int = 0) -> tuple[Trace, ...]:
        """The layers from this one on: an edit is made in the first and flows into the others."""
        from attnctl.models.run import run_model

        layers = ",".join(self.names[layer:]) if layer else self.layers
        return tuple(run_model(self.model, self.input, layers, settings))


@dataclass(frozen=True)
class OfFile(TraceSource):
    """The traces of a file, as they were recorded; `meant` says what anyone's arrays were meant to be."""

    traces: tuple[Trace, ...]
    words: tuple[str, ...] = ()
    """Its path, and the options that read it."""

    meant: Settings | None = None

    def words_of(self, number: int) -> tuple[str, ...]:
        path, *options = self.words
        return (path if len(self.traces) == 1 else f"{path}[{number}]", *options)

    def first(self) -> tuple[Trace, ...]:
        return self.traces


def again(trace: Trace, words: tuple[str, ...]) -> TraceSource:
    """The settings that carry a recorded trace out again and come to the same numbers.

    Raises AttnError with the reason where nothing does.
    """
    if "model" in trace.header:
        raise AttnError("a layer of a model, recorded; attnctl explore --model DIR can try edits")
    if trace.header.get("edits"):
        raise AttnError("this dump was edited when it was made; explore the run without edits")
    if not trace.config:
        raise AttnError(
            "this dump does not say how it was made; attnctl attend FILE -o ours.json carries it out, "
            "and that can be explored with edits"
        )
    reasons: list[str] = []
    for source in candidates(trace, words):
        try:
            found = source.first()[0]
        except (AttnError, LookupError, TypeError, ValueError) as error:
            reasons.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
            continue
        if same(trace, found):
            return source
        reasons.append("carried out again, it comes to other numbers")
    raise AttnError(f"cannot be carried out again: {reasons[-1]}")


def candidates(trace: Trace, words: tuple[str, ...]) -> Sequence[TraceSource]:
    """The sources that a dump's config may describe: its sentence, or the arrays in it."""
    from attnctl.inputs.plan.intended import settings_of

    if KEY_LENGTHS in trace.config and KEY_LENGTHS not in trace:
        raise AttnError("its key_lengths are not in the file, so attend cannot carry it out again")
    settings = replace(settings_of(trace), edits=())
    sentence = (
        [OfSentence(trace.sentence, settings)] if trace.sentence and trace.config.get("vocab") else []
    )
    offset = settings.causal_offset if isinstance(settings.causal_offset, int) else None
    of_arrays = replace(settings, heads=None, kv_heads=None, causal_offset=offset)  # their axes say it
    return [*sentence, OfArrays(trace, of_arrays, words)]


def same(recorded: Trace, found: Trace) -> bool:
    """True if every recorded step came to the same numbers again, but for the last bits."""
    return all(name in found and close(recorded[name], found[name]) for name in recorded)


def close(a: Any, b: Any) -> bool:
    """True if two arrays have one shape and agree to within a few units of the last place."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype == bool:
        return bool((a == b).all())
    eps = float(np.finfo(a.dtype).eps)
    return bool(np.allclose(a, b, rtol=64 * eps, atol=64 * eps, equal_nan=True))


class Changed(NamedTuple):
    """The change that edits made to one step: in how many of its cells, and by how much at most."""

    cells: int
    total: int
    greatest: float

    @property
    def share(self) -> float:
        return self.cells / self.total if self.total else 0.0

    @property
    def percent(self) -> str:
        """The share as a person reads it: never 0 % where a cell differs."""
        return f"{self.share:.0%}" if self.share >= 0.01 else "<1%"


class Made(NamedTuple):
    """The settings that made a trace, and the layer in which the edits among them were made."""

    source: TraceSource
    settings: Settings
    edited_in: int = 0


class TracedLayer:
    """A trace, and the explanations of its cells.

    `before` is the same trace without edits, where there are any. `made` is None for a trace that
    was only read: then `words` name its file, and `meant` says what anyone's arrays were meant to be.
    """

    def __init__(
        self,
        trace: Trace,
        made: Made | None = None,
        before: Trace | None = None,
        meant: Settings | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        self.recorded, self.meant, self.words = trace, meant, words
        self.explainer = Explainer(trace, meant, full=False)
        self.trace = self.explainer.trace
        self.made, self.before = made, before
        self.steps = tuple(self.trace)
        self.node = lru_cache(maxsize=256)(self.explain)
        self.changed = lru_cache(maxsize=None)(self.compare)

    @property
    def edits(self) -> tuple[str, ...]:
        """The edits that this trace was made with."""
        return self.made.settings.edits if self.made else ()

    def explain(self, step: str, cell: Cell) -> Node:
        """Explain a cell; a node without an explanation says why not."""
        return self.explainer.tree(step, cell, 1)

    def old(self, step: str) -> Array | None:
        """The numbers of a step before the edits, None where there are none to compare."""
        if self.before is None or step not in self.before:
            return None
        array = self.before[step]
        return array if array.shape == self.trace[step].shape else None

    def difference(self, step: str) -> Array | None:
        """The amount that edits added to each number of a step; None where nothing was edited."""
        old = self.old(step)
        return None if old is None else subtract(self.trace[step], old)

    def compare(self, step: str) -> Changed | None:
        """The change that edits made to a step; None where nothing was edited."""
        difference = self.difference(step)
        if difference is None:
            return None
        sizes = np.abs(difference[~np.isnan(difference)])
        return Changed(int(np.count_nonzero(difference)), difference.size, float(sizes.max(initial=0.0)))


def subtract(now: Array, old: Array) -> Array:
    """now − old; 0 where both are the same number, the same infinity or both NaN."""
    a, b = now.astype(np.float64), old.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)

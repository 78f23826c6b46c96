"""What was recorded: a dump, the last run, arrays; and what carries a recorded trace out again.

What reads anyone's arrays (`inputs.plan.intended`) is imported where they are: a dump of ours is
compared without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.setting import Given
from attnctl.inputs.config.flags import flags, settings_from
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.names import KEY_LENGTHS
from attnctl.record import CALL, Trace
from attnctl.sources.sentence import Sentence, Source

if TYPE_CHECKING:
    from attnctl.inputs.plan import Plan


class Dump(Source):
    """The traces of a file or of standard input, or anyone's arrays."""

    is_run = False
    is_file = True

    @property
    def path(self) -> str:
        """The file and which of its traces is meant, as `store.source.read` takes it: s.jsonl[3]."""
        return str(self.text) if self.beside.trace is None else f"{self.text}[{self.beside.trace}]"

    def traces(self) -> Sequence[Trace]:
        from attnctl.store.source import read

        return read(self.path, rename=self.beside.rename)

    @cached_property
    def settings(self) -> Settings:
        """Flags over the settings of the run that it records, but for sizes that follow from others."""
        from attnctl.inputs.plan.intended import settings_of

        trace = self.trace()
        if not trace.config.get("vocab"):
            raise AttnError(f"{self.text}: arrays, not the run of a sentence; attnctl attend reads those")
        said = settings_of(trace)
        heads, width = said.heads or 1, said.d_model or 0
        usual = {"kv_heads": heads, "d_k": width // heads, "d_v": width // heads}
        base = said.with_(**{name: None for name, size in usual.items() if getattr(said, name) == size})
        return settings_from(None, self.beside.flags, base)

    def meant(self, trace: Trace) -> Settings | None:
        return settings_over(trace, self.beside.config, self.beside.flags)

    def under_our_names(self, trace: Trace) -> Trace:
        from attnctl.inputs.plan.intended import under_our_names

        return under_our_names(trace, self.meant(trace), self.beside.layer)

    def place_of(self, trace: Trace, step: str) -> str:
        """The line that made a call that was captured."""
        return str(trace.header.get(CALL, {}).get("at", ""))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its path, and the options that read it as this does."""
        names = (self.beside.rename or {}).items()
        options = [word for theirs, ours in names for word in ("--name", f"{theirs}={ours}")]
        layer = [] if self.beside.layer is None else ["--layer", str(self.beside.layer)]
        return (self.path, *options, *layer)

    def words_of(self, number: int, count: int) -> tuple[str, ...]:
        path, *options = self.words
        return (path if count == 1 else f"{path}[{number}]", *options)


class Last(Dump):
    is_file = False

    def traces(self) -> Sequence[Trace]:
        from attnctl.sources.last import read_last

        return read_last(str(self.text), self.beside.trace)


class OfArrays(Source):
    """Arrays in memory, or a trace of ours; `layer` is that of a state dict, `words` name its file."""

    no_seed = "nothing is drawn: these arrays were given"

    def __init__(
        self,
        arrays: Mapping[str, Array],
        settings: Settings,
        layer: int | None = None,
        words: tuple[str, ...] = (),
        *,
        by_torch: bool = False,
    ) -> None:
        from attnctl.inputs.plan.intended import trace_of_arrays

        super().__init__(settings=settings)
        self.arrays = arrays if isinstance(arrays, Trace) else trace_of_arrays(arrays)
        self.layer, self.words = layer, words
        self.by_torch = by_torch

    def plans(self, settings: Settings | None = None) -> Sequence[Plan]:
        from attnctl.inputs.plan.intended import plan_arrays, under_our_names

        asked = settings or self.settings
        trace = under_our_names(self.arrays, asked, self.layer)
        return [replace(plan_arrays(trace, asked, trace.header), by_torch=self.by_torch)]


def settings_over(trace: Trace, config: str | None, flags: Given) -> Settings | None:
    """Flags over a config, or over what a trace records; None where only the trace says what was meant."""
    if not (config or flags):
        return None

    from attnctl.inputs.plan.intended import settings_of

    return settings_from(config, flags, None if config else settings_of(trace))


def settings_to_attend(trace: Trace, config: str | None, flags: Given) -> Settings:
    """Flags over a config; of a captured call over what it was passed."""
    from attnctl.inputs.plan.intended import settings_of

    return settings_from(config, flags, settings_of(trace) if CALL in trace.header and not config else None)


def flags_meant(trace: Trace, settings: Settings | None) -> list[str] | None:
    """The flags that say what a trace was meant to be; None where a dump of ours, or no flag, says it."""
    if settings is None:
        return []
    return None if trace.config else flags(settings, Settings())


def source_of_run(trace: Trace, words: tuple[str, ...]) -> Source:
    """What carries a trace out again to the same numbers. Raises AttnError with why nothing does."""
    if "model" in trace.header:
        raise AttnError("a layer of a model, recorded; attnctl explore --model DIR can try edits")
    if trace.header.get("edits"):
        raise AttnError("this dump was edited when it was made; explore the run without edits")
    if not trace.config:
        raise AttnError(
            "this dump does not say how it was made; attnctl attend FILE -o ours.json carries it out, "
            "and that can be explored with edits"
        )
    if KEY_LENGTHS in trace.config and KEY_LENGTHS not in trace:
        raise AttnError("its key_lengths are not in the file, so attend cannot carry it out again")

    from attnctl.inputs.plan.intended import settings_of

    settings = replace(settings_of(trace), edits=())
    if trace.sentence and trace.config.get("vocab"):
        source: Source = Sentence(trace.sentence, settings=settings)
    else:
        offset = settings.causal_offset if isinstance(settings.causal_offset, int) else None
        of_arrays = replace(settings, heads=None, kv_heads=None, causal_offset=offset)  # their axes say it
        source = OfArrays(trace, of_arrays, words=words)
    try:
        found = source.trace()
    except (AttnError, LookupError, TypeError, ValueError) as error:
        raise AttnError(f"cannot be carried out again: {error or type(error).__name__}") from None
    if not all(name in found and close(trace[name], found[name]) for name in trace):
        raise AttnError("cannot be carried out again: it comes to other numbers")
    return source


def close(a: Any, b: Any) -> bool:
    """True if two arrays have one shape and agree to within a few units of the last place."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype == bool:
        return bool((a == b).all())
    eps = float(np.finfo(a.dtype).eps)
    return bool(np.allclose(a, b, rtol=64 * eps, atol=64 * eps, equal_nan=True))

"""Arrays that attention is carried out on: Q K V, or X and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import operator
from attnctl.inputs.plan.intended import trace_of_arrays, under_our_names
from attnctl.math import Array
from attnctl.record.trace import Trace
from attnctl.sources.sentence import Source

if TYPE_CHECKING:
    from attnctl.inputs.plan.plan import Plan


class OfArrays(Source):
    """Arrays in memory, under our names or another program's; a trace of ours brings its tokens.

    It may hold later steps, too. `layer` is the one to read of a state dict, `words` name its file.
    """

    no_seed = "nothing is drawn: these arrays were given"

    def __init__(
        self,
        arrays: Mapping[str, Array],
        settings: Settings,
        layer: int | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        super().__init__(settings=settings)
        self.arrays = arrays if isinstance(arrays, Trace) else trace_of_arrays(arrays)
        self.layer, self.words = layer, words

    def plans(self, settings: Settings | None = None) -> Sequence[Plan]:
        """The one plan of attention on them."""
        asked = settings or self.settings
        trace = under_our_names(self.arrays, asked, self.layer)
        return [operator.prepare(trace, asked, trace.header)]

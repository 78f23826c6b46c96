"""A layer that reads weights of a layer before it, while those that were made for it are never read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from attnctl.sources.program.graph import Graph
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Steps
from attnctl.sources.program.projected import match_columns
from attnctl.sources.program.relations import Array

WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


class LayerReader:
    """Puts the weights of a layer in place of borrowed ones.

    Layers that share all of their weights do so on purpose; so do those whose own were never made.
    """

    def __init__(self, graph: Graph, meaning: Meaning) -> None:
        self.graph = graph
        self.meaning = meaning

    def settle(self, every: Sequence[Steps]) -> None:
        for number, steps in enumerate(every):
            for earlier in every[:number]:
                if self.put_own(steps, earlier):
                    break

    def put_own(self, steps: Steps, earlier: Steps) -> bool:
        """Put the weights that were made for a layer; False where it borrows none of the earlier one."""
        theirs = weights_of(earlier)
        ours = weights_of(steps)
        both = [name for name in WEIGHTS if name in theirs and name in ours]
        borrowed = [name for name in both if ours[name] == theirs[name]]
        further = {
            self.layers_between(theirs[name], ours[name]) for name in both if name not in borrowed
        } - {None}
        if not borrowed or len(further) != 1:
            return False

        (layers,) = further
        assert layers is not None
        for name in borrowed:
            meant = self.made_later(theirs[name], layers)
            if meant is None or meant in steps.unused:
                continue
            matrix = self.as_read(steps.arrays[name], theirs[name], meant)
            if matrix is not None:
                steps.arrays[name] = matrix
                steps.unused.append(meant)
                steps.borrowed.append(name)
        return bool(steps.borrowed)

    # --- weights that were made alike ---

    @cached_property
    def alike(self) -> dict[tuple[object, ...], list[int]]:
        """Arrays that one expression made for one caller, of one shape, in order."""
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for n in self.graph.events:
            if self.graph.has_value(n) and self.graph.value(n).ndim > 1 and self.graph.is_float(n):
                groups[self.kind_of(n)].append(n)
        return groups

    def kind_of(self, n: int) -> tuple[object, ...]:
        event = self.graph.events[n]
        return event.site, event.callers, self.graph.value(n).shape

    def layers_between(self, earlier: int, later: int) -> float | None:
        """How far apart two weights stand among those made alike, as a share of all of these."""
        if self.kind_of(earlier) != self.kind_of(later):
            return None
        group = self.alike[self.kind_of(earlier)]
        return (group.index(later) - group.index(earlier)) / len(group)

    def made_later(self, n: int, layers: float) -> int | None:
        """The weight that was made so many layers later, if nothing reads it."""
        group = self.alike[self.kind_of(n)]
        number = group.index(n) + layers * len(group)
        if not number.is_integer() or not 0 <= number < len(group):
            return None
        meant = group[int(number)]
        return meant if meant in self.meaning.unused else None

    def as_read(self, matrix: Array, borrowed: int, meant: int) -> Array | None:
        """The columns of one weight that an operand reads of another: all, or those of a packed one."""
        have = self.graph.value(borrowed)
        own = self.graph.value(meant)
        if have.ndim != 2:
            return None
        for there, instead in ((have, own), (have.T, own.T)):
            columns = match_columns(there, matrix)
            if columns is not None:
                taken: Array = instead[:, columns]
                return taken
        return None


def weights_of(steps: Steps) -> dict[str, int]:
    return {name: steps.events[name][0] for name in WEIGHTS if len(steps.events.get(name, ())) == 1}

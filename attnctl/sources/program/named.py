"""The steps of an attention of a program, under our names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.math.names import BIAS, EMBEDDINGS, KEY_LENGTHS, MASK, MEMORY, SINK, X
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.changed import Turn
from attnctl.sources.program.projected import ProjectedRows
from attnctl.sources.program.relations import Array, is_near

LEFT_AS_IT_IS = "A module of torch keeps its weight as (out, in): x @ W.T is what it takes."


@dataclass
class Steps:
    """One attention, laid out as (batch, head, query, ·); without the batch where there is none."""

    attention: Attention
    arrays: dict[str, Array] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)
    """Of each step the events by which it is made, in order."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the program shows to be meant: heads, causal, …"""
    unexplained: dict[str, int] = field(default_factory=dict)
    """Of Q, K and V that came about in a way that is not understood: the event where it ends."""
    prescale: float = 1.0
    """What Q, K or their weights were multiplied by before the first product."""
    scale_events: list[int] = field(default_factory=list)
    score_events: list[int] = field(default_factory=list)
    """Events from Q Kᵀ to before the softmax."""
    weight_events: list[int] = field(default_factory=list)
    """Events from the softmax to the weights that V is multiplied by."""
    inputs: dict[str, ProjectedRows] = field(default_factory=dict)
    """What Q, K and V are projected of."""
    turns: dict[str, Turn] = field(default_factory=dict)
    """How Q and K are turned by their positions, where they are."""
    unused: list[int] = field(default_factory=list)
    """Weights that were made for it, and that it does not read."""
    in_vain: list[str] = field(default_factory=list)
    """Operands that were made, and in whose place another one is read."""
    borrowed: list[str] = field(default_factory=list)
    """Its weights that it reads of another layer."""
    triangle: int | None = None
    """Where its causal mask was made."""
    empty_slots: int | None = None
    """Where slots of a cache are read that nothing was written to."""
    written_over: int | None = None
    """Where a cache's rows were written over while others are free: all that follows is wrong by that."""
    unread_norm: int | None = None
    """What X was normalized to, where nothing reads it."""
    dropped: int | None = None
    """Where dropout made some weights 0: what follows is judged by nothing."""
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Say a sentence beside the verdict, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    is_mask_inverted: bool = False
    """True where its mask plainly hides words and shows what fills up."""

    def put(self, name: str, array: Array | None, events: Sequence[int]) -> None:
        if array is not None:
            self.arrays[name] = array
            self.events[name] = list(events)

    def reads_newest(self, batch: int) -> bool:
        """True if the queries are the last tokens of a cache."""
        if not {*"QK"} <= self.inputs.keys():
            return False
        of_k = self.inputs["K"].array
        of_q = self.inputs["Q"].array
        return of_k.size > of_q.size and ends_with(of_k, of_q, batch)

    @property
    def given(self) -> dict[str, Array]:
        """What it was computed from: X and weights, or Q, K and V by themselves; masks and biases."""
        names = {X, MEMORY, EMBEDDINGS, MASK, BIAS, SINK, KEY_LENGTHS, "Q_norm_weight", "K_norm_weight"}
        names |= {f"{kind}_{of}" for kind in "Wb" for of in "QKVO"}
        for name in "QKV":
            if f"W_{name}" not in self.arrays or (X not in self.arrays and MEMORY not in self.arrays):
                names.add(name)
        return {name: array for name, array in self.arrays.items() if name in names}


@dataclass(frozen=True)
class Layout:
    """How the arrays of an attention are brought to (batch, head, rows, ·)."""

    batch: int
    heads: int
    attention: Attention

    def four(self, array: Array) -> Array:
        sizes = self.attention.batch
        if len(sizes) < 2 or sizes == [self.batch, self.heads]:
            return array.reshape(self.batch, self.heads, *array.shape[-2:])
        return array.swapaxes(0, 1)


def ends_with(rows: Array, last: Array, batch: int) -> bool:
    """True if the last rows of each sequence are these: the queries are the newest tokens of a cache."""
    width = rows.shape[-1]
    if last.shape[-1] != width:
        return False
    rows = rows.reshape(batch, -1, width)
    last = last.reshape(batch, -1, width)
    return is_near(rows[:, rows.shape[1] - last.shape[1] :], last)


def sequences(x: Array, batch: int) -> Array:
    """(batch, token, d) of rows that stand one behind the other; of a single row (token, d)."""
    if x.ndim == 1:
        return x[None]
    if x.ndim == 2 and batch > 1 and len(x) % batch == 0:
        return x.reshape(batch, -1, x.shape[-1])
    return x

"""Rows, keys and shares in sentences; the key that each head looks at most, a sentence a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnctl.base.words import all_of, number_repeats, plural
from attnctl.drawing.screen import Line, Screen
from attnctl.math import Array, Cell
from attnctl.math.derivation import Step
from attnctl.math.names import TABLE, WEIGHTS
from attnctl.record import Trace

MOST_KEYS, MOST_HEADS = 4, 8  # keys that are named one by one, heads that have a sentence each
RANDOM = "Random weights mean nothing: try attnctl run example:it-was-tired"

ULPS = 8
"""Numbers that differ by no more than so many units in the last place are the same for a person."""

UNBROKEN = "\N{NO-BREAK SPACE}"


class Namer:
    def __init__(self, trace: Trace, screen: Screen) -> None:
        self.trace, self.screen = trace, screen

    def row(self, step: str, row: Cell) -> str:
        """`"love"`; `head 1: "love"`, where there are several; query 2, where there are no tokens."""
        axes, shape = self.trace.steps[step].axes, self.trace[step].shape
        words = self.trace.tokens_along(step, len(row) - 1)
        name = f"query {row[-1]}" if words is None else self.screen.printable(names_of(words)[row[-1]])
        where = [f"{axes[at]} {row[at]}" for at in range(len(row) - 1) if shape[at] > 1]
        return f"{', '.join(where)}: {name}" if where else name

    def key(self, at: int) -> str:
        words = self.trace.key_tokens
        if words is None or at >= len(words):
            return f"key {at}"
        return self.screen.printable(names_of(words)[at])

    def seen(self, row: Cell, keys: Sequence[int]) -> str:
        """The keys that a row sees: itself, where it is the one and the keys are the queries."""
        own = self.trace.tokens is not None and self.trace.key_tokens == self.trace.tokens
        return "itself" if own and tuple(keys) == row[-1:] else self.keys(keys)

    def keys(self, keys: Sequence[int]) -> str:
        if len(keys) > MOST_KEYS:
            shown = [self.key(at) for at in keys[: MOST_KEYS - 1]]
            return all_of([*shown, f"{len(keys) - len(shown)} more"])
        return all_of(self.key(at) for at in keys)


def look_lines(trace: Trace, screen: Screen, heads: Sequence[int] | None) -> Iterator[Line]:
    """For each of these heads the row that looks hardest at one key."""
    weights, name = trace[WEIGHTS], Namer(trace, screen)
    leads = list(np.ndindex(*weights.shape[:-2]))
    if heads is not None and trace.steps[WEIGHTS].axes[:-2] == ("head",):
        leads = [(head,) for head in heads]
    for lead in leads[:MOST_HEADS]:
        sure = np.isfinite(weights[lead]).all(axis=-1)
        known = np.where(sure, weights[lead].max(axis=-1, initial=0), 0)
        free = np.where((weights[lead] > 0).sum(axis=-1) > 1, known, 0)
        most = free if free.any() else known  # of rows that see several keys, if any does
        if not most.size or not most.max() > 0:
            continue
        row = int(most.argmax())
        own = weights[lead][row]
        said = f"{name.row(WEIGHTS, (*lead, row))} looks most at {name.seen((row,), find_ties(own))}"
        share = percent(float(own.max())).replace(" ", UNBROKEN)
        for line in screen.flow([(f"{said}, {share}", "")], ""):
            yield [(text.replace(UNBROKEN, " "), style) for text, style in line]
    if len(leads) > MOST_HEADS:
        yield [(screen.printable(f"… and {plural(len(leads) - MOST_HEADS, 'head')} more"), "aside")]
    if any(is_drawn(step) for step in trace.steps.values()):
        yield from screen.sentence(RANDOM, "aside")


def is_drawn(step: Step) -> bool:
    return step.name in TABLE and TABLE[step.name].drawn and step.formula.startswith("drawn ")


def find_ties(row: Array) -> tuple[int, ...]:
    """The places of the largest number of a row, and of those that equal it but for rounding."""
    top = row.max()
    near = ULPS * np.finfo(row.dtype).eps * abs(top)
    return tuple(int(at) for at in np.flatnonzero(row >= top - near))


def quoted_token(token: str) -> str:
    return f'"{token}"'


def names_of(tokens: Sequence[str]) -> list[str]:
    return number_repeats(list(map(quoted_token, tokens)))


def percent(share: float) -> str:
    """0.6234 -> 62 %; of small shares a digit more."""
    size = share * 100
    if size == 0 or size >= 9.95:
        return f"{size:.0f} %"
    return f"{size:.1f} %" if size >= 0.95 else f"{size:.2g} %"

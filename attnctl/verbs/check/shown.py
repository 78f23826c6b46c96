"""Mistakes that a program shows and no dump would: rows that are one array, whole numbers, sums that go on.

The catalogue's mistakes are told by numbers alone. These are told by numbers and by how the program came
to them; what they are called is not in the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, OUTPUT, WEIGHTS
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.named import Steps
from attnctl.sources.program.relations import Array, is_near
from attnctl.verbs.check.report import Finding, Report

PUT_TOGETHER = frozenset({"cat", "concatenate", "concat", "vstack", "append", "stack"})

NO_LISTS = frozenset({"self", "np", "numpy", "torch", "jnp", "call"}) | PUT_TOGETHER
"""Words of a call that are no list that it puts together."""

FARTHEST = 40
"""Arrays that are looked at on the way to where angles were laid out."""


class ShownMistake(NamedTuple):
    """A mistake, and where it is made, where that is not where its numbers come out."""

    words: str
    fix: str
    event: int | None = None
    site: int | None = None
    mistake: str = ""
    """Its name in `LOOKS`."""


class Accused(NamedTuple):
    """A step that is wrong, and the expression that made it."""

    graph: Graph
    steps: Steps
    report: Report
    finding: Finding
    event: int

    @property
    def step(self) -> str:
        return self.finding.step


def shown_mistake(accused: Accused) -> ShownMistake | None:
    """The first of these mistakes that a program shows, where the catalogue has none that fits."""
    if accused.finding.mistake is not None:
        return None
    for mistake, look in LOOKS.items():
        shown = look(accused)
        if shown is not None:
            return shown._replace(mistake=mistake)
    return None


# --- rows that are one array ---


def one_row_again(accused: Accused) -> ShownMistake | None:
    """K or V put together of one array alone, which each token wrote its own row into."""
    graph = accused.graph
    event = accused.event
    rows = graph.value(event)
    is_put_together = graph.op(event) in PUT_TOGETHER and len(graph.parents(event)) == 1
    if accused.step not in {"K", "V"} or not is_put_together:
        return None
    if len(rows) < 2 or not (rows == rows[:1]).all():
        return None
    words = f"each row of {accused.step} is the last one: one and the same array was put there each time"
    return ShownMistake(words, "append a copy of it, row.copy()", site=appended_at(graph, event))


def rows_are_one_list(accused: Accused) -> ShownMistake | None:
    """Outputs that were written into rows of which each is one and the same list."""
    graph = accused.graph
    value = graph.value(accused.event)
    if accused.step not in {HEAD_OUTPUTS, CONCAT, OUTPUT} or not graph.is_opaque(accused.event):
        return None
    if value.ndim != 2 or len(value) < 2 or not (value == value[:1]).all():
        return None
    return ShownMistake(
        "its rows are one and the same list, so that each holds what was written last",
        "make a list for each row: [[0.0] * d for _ in range(n)]",
        event=graph.before_writes(accused.event),
    )


def norm_never_read(accused: Accused) -> ShownMistake | None:
    """Rows that are projected as they were before they were normalized."""
    norm = accused.steps.unread_norm
    if norm is None or accused.step not in {"Q", "K", "V"}:
        return None
    words = f"{accused.step} is projected of x as it was before its norm, which nothing reads"
    calls = accused.graph.events[norm].returned_at
    site = calls[-1] if calls else None
    return ShownMistake(words, "project what the norm gave", event=norm, site=site)


def values_never_read(accused: Accused) -> ShownMistake | None:
    """Weights that mix what V was projected of, or another array, while nothing reads V."""
    events = accused.steps.events.get("V", [])
    if accused.step != HEAD_OUTPUTS or len(events) != 1 or accused.graph.children[events[0]]:
        return None
    words = "V is projected and never read: the weights mix what it was projected of"
    return ShownMistake(words, "multiply the weights by V")


def appended_at(graph: Graph, event: int) -> int | None:
    """Where the list was filled of which an array is made."""
    of_array = graph.site(event)
    names = {*of_array.words} - NO_LISTS
    for number, site in enumerate(graph.sites):
        if site.file == of_array.file and site.what == "call append" and names & {*site.words}:
            return number
    return None


# --- masks ---


def inverted_mask(accused: Accused) -> ShownMistake | None:
    if not accused.steps.is_mask_inverted or accused.step not in {MASKED, WEIGHTS}:
        return None
    words = "the mask is inverted, so that what should be hidden is seen"
    return ShownMistake(words, "hide what fills a sequence up, and show its words")


# --- whole numbers ---


def cut_off(accused: Accused) -> ShownMistake | None:
    """An output that was written into an array of whole numbers."""
    graph = accused.graph
    value = graph.value(accused.event)
    if accused.step not in {HEAD_OUTPUTS, CONCAT, OUTPUT} or value.dtype.kind not in "iu":
        return None
    words = f"it is written into whole numbers ({value.dtype}), so that what follows the point is cut off"
    fix = "fill an array of floating-point numbers: np.zeros(shape)"
    made = graph.before_writes(accused.event)
    return ShownMistake(words, fix, event=made)


# --- a sum that goes on ---


def sum_goes_on(accused: Accused) -> ShownMistake | None:
    """Weights that are divided by the sums of all queries until theirs, as nothing set the sum to 0."""
    if accused.step != WEIGHTS:
        return None
    expected = accused.report.walk.expect(WEIGHTS)
    found = accused.steps.arrays[WEIGHTS]
    if expected is None or expected.value.shape != found.shape or found.shape[-2] < 2:
        return None
    shares = shares_of_rows(found, expected.value)
    if shares is None or not any(is_near(shares, each) for each in shares_that_go_on(accused.steps)):
        return None

    graph = accused.graph
    words = {*graph.site(accused.event).words}
    site = None
    for number, other in enumerate(graph.sites):
        if other.what == "in place +" and other.target in words:
            site = number
    words_of_it = "the sum that weights are divided by goes on from query to query"
    return ShownMistake(words_of_it, "begin each query's sum with 0", site=site)


def shares_of_rows(found: Array, expected: Array) -> Array | None:
    """What each row was multiplied by, (…, query); None where its numbers differ in that."""
    shares: Array = found.sum(-1)
    return shares if is_near(expected * shares[..., None], found) else None


def shares_that_go_on(steps: Steps) -> Iterator[Array]:
    """What is left of each row, if its sum has those of all queries before it in it."""
    names = [name for name in steps.arrays if name.endswith("scores")]
    if not names:
        return
    scores = steps.arrays[names[-1]].astype(float)
    for top in (scores.max(-1, keepdims=True), np.zeros(1)):
        sums = np.exp(scores - top).sum(-1)
        yield sums / np.cumsum(sums, axis=-1)


# --- angles ---


def mixed_angles(accused: Accused) -> ShownMistake | None:
    """Angles laid out for pairs side by side, of columns that are turned with those half a head apart."""
    name = accused.step.partition("_")[0]
    turn = accused.steps.turns.get(name)
    if turn is None or not turn.is_broken or name not in accused.steps.arrays:
        return None
    before = accused.steps.arrays[name].astype(float)
    after = accused.steps.arrays[accused.step].astype(float)
    for halves, words, fix in ANGLES:
        if is_near(turned_by_mixed(before, halves_are_turned=halves), after):
            return ShownMistake(words, fix, event=where_doubled(accused.graph, accused.event))
    return None


ANGLES = (
    (
        True,
        "angles stand side by side in twos, and columns half a head apart are turned",
        "repeat all angles behind each other: np.concatenate([angles, angles], -1)",
    ),
    (
        False,
        "angles stand half a head apart, and columns side by side are turned",
        "repeat each angle for its neighbour: np.repeat(angles, 2, -1)",
    ),
)


def turned_by_mixed(rows: Array, *, halves_are_turned: bool, theta: float = 1e4) -> Array:
    """Rows, (…, token, d), turned in one layout by angles in the other."""
    count, width = rows.shape[-2:]
    angles = np.arange(count)[:, None] * theta ** (-np.arange(width // 2) * 2 / width)
    if halves_are_turned:
        laid = np.repeat(angles, 2, axis=-1)
        other = np.concatenate([-rows[..., width // 2 :], rows[..., : width // 2]], axis=-1)
    else:
        laid = np.concatenate([angles, angles], axis=-1)
        other = np.stack([-rows[..., 1::2], rows[..., 0::2]], axis=-1).reshape(rows.shape)
    turned: Array = rows * np.cos(laid) + other * np.sin(laid)
    return turned


def where_doubled(graph: Graph, event: int) -> int | None:
    """The expression that made twice as many angles of those that there are."""
    turning = [n for n in graph.ancestors(event, most=FARTHEST) if graph.op(n) in {"cos", "sin"}]
    for n in turning:
        for made in (n, *graph.ancestors(n, most=FARTHEST)):
            size = graph.value(made).size
            if any(2 * graph.value(parent).size == size for parent in graph.parents(made)):
                return made
    return None


LOOKS: dict[str, Callable[[Accused], ShownMistake | None]] = {
    "norm-never-read": norm_never_read,
    "one-row-again": one_row_again,
    "rows-are-one-list": rows_are_one_list,
    "values-never-read": values_never_read,
    "mask-inverted": inverted_mask,
    "written-into-integers": cut_off,
    "sum-goes-on": sum_goes_on,
    "rotary-angles-mixed": mixed_angles,
}
"""The first that tells is said."""

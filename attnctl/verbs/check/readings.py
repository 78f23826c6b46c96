"""Other readings of a dump that disagrees: another layout or name of its arrays, or one option more.

They are tried before any mistake is looked for, each up to the step that was wrong first: a
program is not accused of what is only written down in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from attnctl.array import Array
from attnctl.config.settings import NONE, Settings
from attnctl.derivation import Rotary
from attnctl.names import HEAD_OUTPUTS, MASKED, OUTPUT, PROJECTED, SCALED, TABLE, W_O, WEIGHTS, matrix_of
from attnctl.ops import Unstated
from attnctl.rules import Alibi, Causal, VisibilityRule
from attnctl.store.header import foreign_step
from attnctl.trace import Trace
from attnctl.verbs.check.walk import Verdict, Walk

MOST_HEADS = 128

OTHER_NAMES = {
    "scores": (SCALED, MASKED),
    WEIGHTS: (SCALED, MASKED),
    OUTPUT: ("concat", HEAD_OUTPUTS),
    HEAD_OUTPUTS: ("concat",),
}
"""What an array that someone else named may be as well."""


@dataclass(frozen=True)
class Unasked:
    """An option that was not given, and the mistake that leaving it out would be."""

    option: str
    mistake: str
    words: str = ""
    """Completes "It is what you get when …", where the catalogue has no such mistake."""


@dataclass(frozen=True)
class Reading:
    """A trace and settings to try instead: read `words`, or with the options that were `unasked`."""

    trace: Trace
    settings: Settings | None
    words: str = ""
    unasked: tuple[Unasked, ...] = ()


Look = Callable[[Reading, str | None], Walk | None]
"""Walks a reading, all of it or until one step; None where its arrays do not go together."""


def agreeing(
    trace: Trace, settings: Settings | None, sizes: Mapping[str, int], walk: Walk, look: Look
) -> Reading | None:
    """The first reading in which nothing is wrong, and every step that was wrong agrees."""
    foreign = all(isinstance(step.op, Unstated) for step in trace.steps.values())
    options = with_options(trace, settings or Settings(), sizes) if foreign else ()
    for reading in chain(layouts(trace, settings, sizes) if foreign else (), options):
        partly = look(reading, walk.wrong[0])
        if partly is None or partly.wrong:
            continue
        whole = look(reading, None)
        if whole and not whole.wrong and mended(walk, whole, reading):
            return reading
    return None


def mended(walk: Walk, whole: Walk, reading: Reading) -> bool:
    """Whether what was wrong agrees in a reading.

    A step may go by another name there. With more heads, weights averaged over them are left out.
    """
    agrees = [name for name, step in whole.steps.items() if step.verdict is Verdict.AGREES]
    if reading.unasked:
        verdicts = {whole.steps[name].verdict for name in walk.wrong if name in whole.steps}
        return bool(agrees) and verdicts <= {Verdict.AGREES, Verdict.NOT_RECORDED}
    before = [name for name, step in walk.steps.items() if step.verdict in {Verdict.AGREES, Verdict.WRONG}]
    return len(agrees) >= len(before)


# --- layouts and names ---


def layouts(trace: Trace, settings: Settings | None, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """The same arrays in another layout, or under another name."""
    for changed, words in chain(
        as_linear(trace), tokens_before_heads(trace), packed_otherwise(trace, sizes)
    ):
        yield Reading(replace(trace, arrays={**trace, **changed}), settings, words)
    for ours, theirs in trace.header.get("read", {}).items():
        for other in OTHER_NAMES.get(ours, ()):
            if other not in trace:
                yield Reading(renamed(trace, ours, other), settings, f"{theirs} as {other}")


def as_linear(trace: Trace) -> Iterator[tuple[dict[str, Array], str]]:
    """Square matrices as nn.Linear keeps them: those of Q, K and V, with or without W_O."""
    projections = [matrix_of(symbol) for symbol in PROJECTED]
    if any(name in trace.header.get("read", {}) for name in (" ".join(projections), *projections)):
        return  # their names tell
    for names in (projections, [*projections, W_O]):
        if all(name in trace and square(trace[name]) for name in names):
            yield {name: trace[name].T for name in names}, f"{' '.join(names)} as (out, in)"


def square(array: Array) -> bool:
    """Whether this is one matrix with as many rows as columns."""
    return array.ndim == 2 and array.shape[0] == array.shape[1]


def tokens_before_heads(trace: Trace) -> Iterator[tuple[dict[str, Array], str]]:
    """Q, K and V as (token, head, d), where there are as many tokens as heads."""
    names = [name for name in PROJECTED if name in trace]
    if names and all(trace[name].ndim > 2 and len(set(trace[name].shape[-3:-1])) == 1 for name in names):
        turned = {name: trace[name].swapaxes(-3, -2) for name in names}
        yield turned, f"{' '.join(names)} as (token, head, d_k)"


def packed_otherwise(trace: Trace, sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, Array], str]]:
    """A packed matrix split head by head where it was split in thirds, and the other way round."""
    heads, read = sizes.get("head", 1), trace.header.get("read", {})
    packed = [names.split() for names in read if names.startswith(("W_Q W_K", "b_Q b_K"))]
    if heads == 1 or not packed:
        return
    by_head = "query_key_value" in read[" ".join(packed[0])]
    split = thirds_of_heads if by_head else heads_of_thirds
    changed = {
        name: part
        for names in packed
        for name, part in zip(names, split([trace[name] for name in names], heads), strict=True)
    }
    yield changed, f"{read[' '.join(packed[0])]} as {'Q, K, V in thirds' if by_head else 'Q, K, V by head'}"


def thirds_of_heads(parts: list[Array], heads: int) -> list[Array]:
    """Parts that were taken head by head, taken in thirds instead."""
    by_head = [part.reshape(*part.shape[:-1], heads, -1) for part in parts]
    whole = np.stack(by_head, axis=-2)
    return np.split(whole.reshape(*parts[0].shape[:-1], -1), 3, axis=-1)


def heads_of_thirds(parts: list[Array], heads: int) -> list[Array]:
    """Parts that were taken in thirds, taken head by head instead."""
    whole = np.concatenate(parts, axis=-1)
    by_head = whole.reshape(*whole.shape[:-1], heads, 3, -1)
    return [by_head[..., at, :].reshape(parts[0].shape) for at in range(3)]


def renamed(trace: Trace, ours: str, other: str) -> Trace:
    """The trace with one array under another of our names."""
    found = {other if name == ours else name: trace[name] for name in trace}
    names = [*(name for name in TABLE if name in found), *(name for name in found if name not in TABLE)]
    return Trace({name: foreign_step(name, found[name]) for name in names}, found, trace.header)


# --- options ---


def with_options(trace: Trace, settings: Settings, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """The same arrays with an option that was not given, or two."""
    masks = [(settings, ())] if hides(settings) else [(settings, ()), causal(settings)]
    turns = [(None, ()), *((turn, (said,)) for turn, said in rotations(settings, sizes))]
    for base, mask in masks:
        for turn, rotation in turns:
            if mask or rotation:
                changed = base if turn is None else base.with_(positions=turn)
                yield Reading(trace, changed, unasked=(*rotation, *mask))
        yield Reading(
            trace,
            base.with_(rules=(*base.rules, Alibi())),
            unasked=(Unasked("--positions alibi", "alibi-unasked", "the scores have ALiBi added"), *mask),
        )
    yield from with_heads(trace, settings, sizes)


def hides(settings: Settings) -> bool:
    """Whether a rule that hides keys was asked for."""
    return settings.mask is not None or any(isinstance(rule, VisibilityRule) for rule in settings.rules)


def causal(settings: Settings) -> tuple[Settings, tuple[Unasked, ...]]:
    """The settings with a causal mask."""
    return settings.with_(rules=(Causal(), *settings.rules)), (Unasked("--causal", "mask-unasked"),)


def rotations(settings: Settings, sizes: Mapping[str, int]) -> Iterator[tuple[Rotary, Unasked]]:
    """Rotary positions of either kind, where none were asked for."""
    if settings.positions == NONE and sizes.get("d_k", 1) % 2 == 0:
        yield Rotary(), Unasked("--positions rope", "rotary-unasked")
        said = "--positions rope --interleaved"
        yield Rotary(interleaved=True), Unasked(said, "rotary-unasked")


def with_heads(trace: Trace, settings: Settings, sizes: Mapping[str, int]) -> Iterator[Reading]:
    """Another number of heads where nobody said how many there are, few first.

    Arrays that show their heads do not go together with another number.
    """
    columns = sizes.get("head", 1) * sizes.get("d_k", 1)
    for heads in range(2, min(columns, MOST_HEADS) + 1):
        if settings.heads is None and columns % heads == 0 and heads != sizes.get("head"):
            words = f"there are {heads} heads, not {sizes.get('head', 1)}"
            said = Unasked(f"--heads {heads}", "heads-unasked", words)
            yield Reading(trace, settings.with_(heads=heads), unasked=(said,))

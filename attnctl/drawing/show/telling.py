"""Which head of a layer says most to a person, and where: the largest weight from one word to another.

Trained heads put most of their weight on the first token, on [SEP], on full stops and on the token before.
All of that is there in every sentence, so it is passed over for as long as a head has anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from attnctl.drawing.screen import Screen
from attnctl.drawing.show.headline import Namer, percent
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace

PREVIOUS = 0.4
"""The share that a head gives to the token before, on average, from which it is a previous-token head."""


class Look(NamedTuple):
    """What one head gives from a query to a key."""

    head: int
    query: int
    key: int
    share: float
    tells: bool
    """From a word to another that is not beside it; False where a head has nothing of the kind."""


def telling_looks(trace: Trace) -> list[Look]:
    """The most telling look of each head, the strongest first; none where there are no weights of heads.

    Heads that pass from word to word come before those that have nothing but special tokens and neighbours.
    """
    weights = trace.get(WEIGHTS)
    if weights is None or weights.ndim != 3 or not weights.size or not np.isfinite(weights).all():
        return []

    looks: list[Look] = []
    passed_over = previous_heads(weights)
    left = [head for head in range(len(weights)) if head not in passed_over]

    for number, cells in enumerate(cells_to_try(trace, weights)):
        here = [strongest_look(weights, head, cells, tells=number == 0) for head in left]
        found = [look for look in here if look.share > 0]
        looks += strongest_first(found)
        left = [look.head for look in here if look not in found]

    everywhere = np.ones(weights.shape[1:], bool)
    others = [strongest_look(weights, head, everywhere, tells=False) for head in sorted(passed_over)]
    return looks + strongest_first(others)


def strongest_first(looks: Iterable[Look]) -> list[Look]:
    return sorted(looks, key=lambda look: -look.share)


def strongest_look(weights: Array, head: int, cells: Array, *, tells: bool) -> Look:
    of_cells = np.where(cells, weights[head], 0)
    query, key = np.unravel_index(of_cells.argmax(), of_cells.shape)
    return Look(head, int(query), int(key), float(of_cells[query, key]), tells)


def cells_to_try(trace: Trace, weights: Array) -> Iterator[Array]:
    """Which cells count, (query, key), the most telling first: words apart, then words, then all."""
    queries, keys = weights.shape[1:]
    apart = keys - queries  # keys of a cache come before the first query
    query_places = np.arange(queries)[:, None] + apart
    key_places = np.arange(keys)[None, :]

    is_word = words_among(trace, keys)
    one_sentence = trace.tokens is None or trace.tokens == trace.key_tokens
    if one_sentence and apart >= 0:
        both_words = is_word[query_places] & is_word[None, :]
    else:
        both_words = np.broadcast_to(is_word[None, :], (queries, keys))

    is_beside = np.abs(query_places - key_places) <= 1
    yield both_words & ~is_beside if one_sentence else both_words
    yield both_words & (query_places != key_places)
    yield np.ones((queries, keys), bool)


def words_among(trace: Trace, keys: int) -> Array:
    """True for each key that is a word: no special token, not the first, no punctuation."""
    is_word = np.ones(keys, bool)
    is_word[:1] = False  # the first token takes what a head does not need elsewhere

    for place in trace.header.get("special", ()):
        if isinstance(place, int) and 0 <= place < keys:
            is_word[place] = False

    for place, token in enumerate(trace.key_tokens or ()):
        if place < keys and not any(map(str.isalnum, token)):
            is_word[place] = False
    return is_word


def previous_heads(weights: Array) -> set[int]:
    """The heads that give most to the token before, whatever it is."""
    queries, keys = weights.shape[1:]
    if queries != keys or queries < 3:
        return set()
    before = np.diagonal(weights, -1, axis1=1, axis2=2).mean(axis=-1, dtype=np.float64)
    return set(np.flatnonzero(before >= PREVIOUS).tolist())


def look_words(trace: Trace, screen: Screen, look: Look) -> str:
    """`"it" gives 65 % of its attention to "animal"`: true whatever else it looks at."""
    name = Namer(trace, screen)
    query = name.row(WEIGHTS, (0, look.query)).rpartition(": ")[2]
    key = "itself" if is_itself(trace, look) else name.key(look.key)
    return f"{query} gives {percent(look.share)} of its attention to {key}"


def is_itself(trace: Trace, look: Look) -> bool:
    return look.query == look.key and trace.tokens is not None and trace.tokens == trace.key_tokens

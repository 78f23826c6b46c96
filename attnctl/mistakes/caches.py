"""Mistakes in writing new keys and values behind those of a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import Append
from attnctl.mistakes.mistake import about
from attnctl.mistakes.plants import at

PRESENT = ("present_key", "present_value")


def in_rows(*parts: Array) -> Array:
    return np.concatenate(parts, axis=-2)


def no_row(past: Array) -> Array:
    """A row that was never written."""
    return np.zeros_like(past[..., :1, :])


def rolled_early(past: Array, new: Array) -> Array:
    return in_rows(past[..., 1:, :], no_row(past), new)


def rolled_and_written(past: Array, new: Array) -> Array:
    return in_rows(past[..., 1:, :], new, no_row(past))


def over_the_last(past: Array, new: Array) -> Array:
    return in_rows(past[..., :-1, :], new, no_row(past))


def a_slot_late(past: Array, new: Array) -> Array:
    return in_rows(past, no_row(past), new[..., :-1, :])


def not_written(past: Array, new: Array) -> Array:
    return in_rows(past, np.zeros_like(new))


def before_the_past(past: Array, new: Array) -> Array:
    return in_rows(new, past)


WAYS: Mapping[str, Callable[[Array, Array], Array]] = {
    "it is rolled by one row before it is full, and the oldest row is lost": rolled_early,
    "it is rolled by one row before it is full, and new rows are written in front of the gap": (
        rolled_and_written
    ),
    "new rows are written over its last one": over_the_last,
    "new rows are written a slot late": a_slot_late,
    "new rows are not written": not_written,
    "new rows stand before the past ones": before_the_past,
}

CACHES = (
    about(*PRESENT, subject="cache", meant="past")(
        "cache-written-wrong",
        "the cache is written wrongly: {}",
        "write new rows behind the past ones, and drop the oldest only where no slot is free",
        at(*PRESENT, Append).by(WAYS),
        seen="huggingface/transformers#37574",
        why="The slot is worked out by a length that counts the new token already, or does not yet.",
        example="present_key = np.concatenate([past_key[:, 1:], 0 * past_key[:, :1], K], axis=1)\n"
        "present_value = np.concatenate([past_value[:, 1:], 0 * past_value[:, :1], V], axis=1)",
    ),
)

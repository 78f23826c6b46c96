"""Wrong kernels of serving: a few new queries after the keys of a cache, and K and V read in pages.

They are no entries of the catalogue: what is wrong is where keys are read or written, which no recorded
step tells from another mask. Only a test of a function that takes a cache or pages is held to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnctl.verbs.mutants.kernel import Kernel


class ServingMistake(NamedTuple):
    name: str
    words: str
    """What is wrong."""
    why: str
    example: str
    """The lines of NumPy that make it."""


OF_CACHE = frozenset({"cached"})
OF_PAGES = frozenset({"paged", "padded"})

PLACE = "np.arange(n)[:, None] + keys - n"


def seeing(condition: str) -> str:
    """The line that hides the other keys."""
    return f"masked_scores = np.where({condition}, scaled_scores, -np.inf)"


def reading(table: str, lengths: str = "key_lengths") -> str:
    """The lines that read K and V by this table."""
    return f"K = gather(key_pages, {table}, {lengths})\nV = gather(value_pages, {table}, {lengths})"


IN_CACHES = (
    ServingMistake(
        "cache-newest-unseen",
        "a query does not see the newest key, its own",
        "The new key is written after scores are computed, or the loop ends before it.",
        seeing(f"(np.arange(keys) < {PLACE}) | (np.arange(keys) == 0)"),
    ),
    ServingMistake(
        "cache-one-ahead",
        "a query sees one key of what comes after it",
        "The length counts the new token twice: once as written, once as about to be.",
        seeing(f"np.arange(keys) <= {PLACE} + 1"),
    ),
    ServingMistake(
        "cache-first-lost",
        "the first key of the cache is hidden",
        "The cache was rolled one slot too early, or a window is one too short.",
        seeing(f"(np.arange(keys) <= {PLACE}) & (np.arange(keys) > 0)"),
    ),
    ServingMistake(
        "cache-alone",
        "new tokens see the keys before them, and none of each other",
        "Keys of a chunk are appended after it was attended to.",
        seeing("np.arange(keys) <= np.maximum(keys - n - 1, 0)"),
    ),
    ServingMistake(
        "cache-not-causal",
        "of several new tokens each sees all",
        "With one new token causal hides nothing, so it was left out; chunks of a prompt have more.",
        "masked_scores = scaled_scores",
    ),
    ServingMistake(
        "cache-rest-of-block",
        "keys behind the last full block of eight are not read",
        "The loop runs over length // block blocks.",
        seeing(f"(np.arange(keys) <= {PLACE}) & (np.arange(keys) < np.maximum(keys // 8 * 8, 1))"),
    ),
    ServingMistake(
        "cache-values-late",
        "each value is that of the key before it",
        "K is written at the length, and V at the length before it was counted up.",
        "head_outputs = attention_weights @ np.roll(V, 1, axis=-2)",
    ),
    ServingMistake(
        "cache-newest-value-stale",
        "the newest key has the value of the one before it",
        "The new value is written after the kernel has read it.",
        "late = np.arange(keys) - (np.arange(keys) == keys - 1)\n"
        "head_outputs = attention_weights @ V[..., late, :]",
    ),
    ServingMistake(
        "cache-newest-twice",
        "the newest key counts twice",
        "It is in the cache already, and is handed over as new as well.",
        "e = np.exp(masked_scores - masked_scores.max(axis=-1, keepdims=True))\ne[..., -1] *= 2\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
)

IN_PAGES = (
    ServingMistake(
        "page-table-sorted",
        "pages are read in the order of their numbers",
        "A fresh pool hands pages out in order, and tests have fresh pools.",
        reading("np.sort(page_table, axis=-1)"),
    ),
    ServingMistake(
        "page-slots-turned",
        "the slots of a page are read from its end",
        "A stride has the wrong sign, or pages are filled from the end.",
        "K = gather(key_pages[:, ::-1], page_table, key_lengths)\n"
        "V = gather(value_pages[:, ::-1], page_table, key_lengths)",
    ),
    ServingMistake(
        "page-values-of-keys",
        "values are read in the pages of keys",
        "One pointer is passed for two caches of one shape.",
        "V = gather(key_pages, page_table, key_lengths)",
    ),
    ServingMistake(
        "page-values-by-another-table",
        "values are read by the table of the next sequence",
        "Each cache keeps a table of its own, and one is a batch late.",
        "V = gather(value_pages, np.roll(page_table, -1, axis=0), key_lengths)",
    ),
    ServingMistake(
        "page-rest-unread",
        "keys of the last page are not read where it is not full",
        "The loop runs over length // page size pages.",
        "whole = np.maximum(key_lengths // slots * slots, 1)\n"
        + seeing("np.arange(keys) < whole[:, None, None, None]"),
    ),
    ServingMistake(
        "page-lengths-of-first",
        "every sequence is taken for as long as the first",
        "A length is read without the number of the sequence.",
        reading("page_table", "np.full_like(key_lengths, key_lengths[0])")
        + "\n"
        + seeing("np.arange(keys) < key_lengths[0]"),
    ),
    ServingMistake(
        "page-length-one-less",
        "the newest key is not read",
        "The length is that before the new token.",
        seeing("np.arange(keys) < np.maximum(key_lengths - 1, 1)[:, None, None, None]"),
    ),
)


def make_serving() -> Iterator[Kernel]:
    for options, mistakes in ((OF_CACHE, IN_CACHES), (OF_PAGES, IN_PAGES)):
        for mistake in mistakes:
            yield Kernel(
                options,
                mistake.example,
                meant=options,
                batched=options == OF_PAGES,
                name=mistake.name,
                mistake=mistake,
            )

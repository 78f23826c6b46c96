"""What an attention of a program was meant to hide: asked for, or made by the program."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from attnctl.base.words import plural
from attnctl.math.names import (
    BIAS,
    MASK,
    MEMORY,
    X,
)
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Layout, Steps
from attnctl.sources.program.relations import (
    HIDDEN,
    Array,
    hidden_in_effect,
    is_same,
)
from attnctl.sources.program.visibility import (
    TRIANGLES,
    Meant,
    hidden_keys,
    shows_triangle,
    triangle_of,
    what_was_meant,
    window_shown,
)
from attnctl.sources.program.words import keys_before_said

FUSED_MASK = "attn_mask"
"""What a library's own attention calls its mask."""

FARTHEST_BACK = 4000
"""Arrays between a memory and the layers that it was made by."""

JOINED = frozenset({"cat", "concat", "concatenate"})

ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
"""What a cache is made of before it is filled in."""


class MaskReader:
    """Reads which keys are hidden, and which were meant to be."""

    def __init__(self, graph: Graph, meaning: Meaning, asked: Mapping[str, Any]) -> None:
        self.graph = graph
        self.meaning = meaning
        self.asked = dict(asked)
        self.some_causal = False
        """True if some attention of the program hides later keys: --causal is then of these."""
        self.encoded: set[int] = set()
        """The outputs of which a memory was made that other queries ask: those of an encoder."""

    def look_around(self, attentions: Sequence[Attention]) -> None:
        """Note what the attentions of a program are to each other."""
        self.some_causal = any(map(self.shows_causal, attentions))
        if not self.some_causal or not self.asked.get("causal"):
            return
        outputs = {attention.output for attention in attentions}
        for attention in attentions:
            if not attention.origins or self.is_of_itself(attention):
                continue
            of_q, of_k = (attention.origins[name][0].projection for name in "QK")
            if of_q is None or of_k is None:
                continue
            asking = {*self.graph.ancestors(of_q.x, most=FARTHEST_BACK)}
            self.encoded |= outputs.intersection(self.graph.ancestors(of_k.x, most=FARTHEST_BACK)) - asking

    def read(self, steps: Steps, hidden: Array, written: Array) -> None:
        """Read what was meant to be hidden; `written` is what was marked so by any of its lines."""
        steps.is_mask_inverted = sees_ends_only(written)
        if steps.is_mask_inverted:
            hidden = written
        events = [*steps.score_events, *steps.weight_events]
        steps.triangle = self.triangle_at(events)
        self.put_meant(steps, hidden)

    def put_meant(self, steps: Steps, hidden: Array) -> None:
        """What was meant to be hidden: asked for, or made."""
        empty = self.empty_slots(steps)
        if empty is not None:
            self.put_written_slots(steps, empty, hidden)
            return

        is_made = steps.triangle is not None
        if self.asked.get("causal") and self.is_beside_causal(steps, hidden):
            steps.options["causal"] = False
            steps.note("--causal is taken as said of the attentions of a sentence with itself as it grows.")
        is_newest = steps.reads_newest(len(hidden))
        of_another = MEMORY in steps.arrays and not is_newest and not self.is_made_of_queries(steps)
        if of_another and self.some_causal and (is_made or shows_triangle(hidden)):
            return  # keys of another sentence have no order with the queries
        seen = self.seen_by_mistake(steps, hidden)
        if seen is not None and not is_made:
            steps.put(MASK, seen, steps.score_events[:1])
            return

        causal = is_made or (bool(self.asked.get("causal")) and not self.some_causal)
        first_query = self.first_row(steps.attention, "Q") if steps.attention.is_tiled else None
        meant = what_was_meant(
            hidden, self.asked, causal=causal, is_newest=is_newest, first_query=first_query
        )
        meant = self.as_said(meant, hidden)
        steps.options |= meant.options
        if self.asked.get("causal") and self.is_newest_of_all(hidden):
            steps.options.setdefault("causal_offset", hidden.shape[-1] - 1)
        if meant.note:
            steps.notes.append(meant.note)
        for name, array in meant.arrays.items():
            steps.put(name, array, steps.score_events[:1])

    @cached_property
    def windows_said(self) -> set[int]:
        """How many keys before its own a query sees, as the words of the program have it."""
        files = self.graph.recording.files
        return {
            count for file, text in files.items() for count in keys_before_said(text, self.graph.tree(file))
        }

    def as_said(self, meant: Meant, hidden: Array) -> Meant:
        """The window that the program's own words tell of, where its mask has one key more or fewer."""
        if not meant.options.get("causal"):
            return meant
        shown = window_shown(hidden, meant.options.get("causal_offset", 0))
        if shown is None:
            return meant
        near = {count for count in self.windows_said if abs(count - shown) == 1}
        if shown in self.windows_said or len(near) != 1:
            return meant
        (left,) = near
        note = f"Its own words say that a query sees its own key and {plural(left, 'key')} before."
        return meant._replace(options=meant.options | {"window": (left, 0)}, note=note)

    def is_beside_causal(self, steps: Steps, hidden: Array) -> bool:
        """True for cross-attention, or an encoder's, in a program whose decoder is causal."""
        if not self.some_causal:
            return False
        if MEMORY in steps.arrays and not self.is_made_of_queries(steps):
            return not steps.reads_newest(len(hidden))
        is_causal = steps.triangle is not None or shows_triangle(hidden)
        return steps.attention.output in self.encoded and not is_causal

    def is_made_of_queries(self, steps: Steps) -> bool:
        """True for a memory made of the tokens that ask, as a latent is, or what both were made of."""
        of_q, of_k = (steps.inputs.get(name) for name in "QK")
        if of_k is None or steps.arrays["Q"].shape[-2] != of_k.array.shape[-2]:
            return False
        if of_q is not None and of_q.event in self.graph.ancestors(of_k.event):
            return True
        last = steps.attention.origins["Q"][0].last
        return of_k.event in self.meaning.origins.before_softmax(last)

    def put_written_slots(self, steps: Steps, empty: Array, hidden: Array) -> None:
        """Of a cache that is not full what was written to; `empty`, (batch, key), are its other slots."""
        steps.put(MASK, np.broadcast_to(~empty[:, None, None], hidden.shape), steps.score_events[:1])
        steps.empty_slots = self.where_slots_are_left(steps, empty)
        slots = plural(int(empty.any(0).sum()), "slot")
        steps.notes.append(f"{slots} of its cache had not been written to: these are no keys yet.")

        if self.put_what_was_written_over(steps):
            still_empty = self.empty_slots(steps)
            assert still_empty is not None
            empty = still_empty
            steps.arrays[MASK] = np.broadcast_to(~empty[:, None, None], hidden.shape)
        if steps.triangle is not None or self.asked.get("causal"):
            # The queries are the last tokens that were written.
            written = int((~empty).sum(-1).max())
            queries = hidden.shape[-2]
            steps.options |= {"causal": True, "causal_offset": max(written - queries, 0)}

    def seen_by_mistake(self, steps: Steps, hidden: Array) -> Array | None:
        """Who was to see whom, where a mask plainly went wrong: thrown away, of other rows, or inverted."""
        of_samples = masks_of_samples(hidden)
        if of_samples is not None:
            steps.note("Its mask is repeated so that heads of one sequence have the masks of others.")
            return of_samples
        thrown = self.thrown_away(steps, hidden)
        if thrown is not None:
            return ~thrown
        x = steps.arrays.get(MEMORY, steps.arrays.get(X))
        if sees_padding_only(x, hidden) or sees_ends_only(hidden) or sees_other_regions_only(hidden):
            steps.is_mask_inverted = True
            return hidden  # words were to be seen, not what fills up
        return None

    def thrown_away(self, steps: Steps, hidden: Array) -> Array | None:
        """The keys that a result was to hide which nothing reads: scores.masked_fill(…) by itself."""
        graph = self.graph
        if hidden.any():
            return None
        for n in steps.score_events:
            for child in graph.made_from(n):
                if graph.op(child) not in {"masked_fill", "where"} or graph.children[child]:
                    continue
                value = graph.value(child)
                off = value <= HIDDEN
                if off.any() and value.size == hidden.size and not (value[~off] > 0).all():
                    return off.reshape(hidden.shape)
        return None

    def is_newest_of_all(self, hidden: Array) -> bool:
        """True for a single query that sees every key there is: the next token after a cache."""
        queries, keys = hidden.shape[-2:]
        return queries == 1 < keys and not hidden.any()

    def first_row(self, attention: Attention, name: str) -> int | None:
        """Which row of an array the first one of a tile of it is; None where nothing was cut.

        Of tiles that were joined to one attention the origins are those of a single one.
        """
        graph = self.graph
        rows = attention.arrays[name].shape[-2]
        origins = attention.origins.get(name)
        for now, before in itertools.pairwise(origins[0].path if origins else ()):
            tile = graph.value(now)
            whole = graph.value(before)
            if min(tile.ndim, whole.ndim) < 2 or not rows == tile.shape[-2] < whole.shape[-2]:
                continue
            for start in range(whole.shape[-2] - rows + 1):
                if np.array_equal(whole[..., start : start + rows, :], tile):
                    return start
        return None

    def empty_slots(self, steps: Steps) -> Array | None:
        """(batch, key): the slots of a cache that was made of zeros which nothing has been written to."""
        if not all(self.is_filled_in(steps.attention, name) for name in "KV"):
            return None
        rows = [steps.arrays.get(f"{name}_rotated", steps.arrays[name]) for name in "KV"]
        empty = np.logical_and(*[(array == 0).all(axis=(1, 3)) for array in rows])
        if not empty.any() or empty.all():
            return None
        return empty

    def put_what_was_written_over(self, steps: Steps) -> bool:
        """Keep rows of a cache that new ones were written over: these belong into slots that are free.

        A cache that is full begins again at its first slot; while some are free nothing is to be lost.
        """
        writes: dict[str, int] = {}
        meant: dict[str, Array] = {}
        for name in "KV":
            wrote = self.last_write(steps.attention, name)
            if wrote is None:
                return False
            before = self.rows_before(wrote, steps.arrays[name].shape)
            if before is None:
                return False
            rows = self.append_rows(before, steps.arrays[name])
            if rows is None:
                return False
            writes[name] = wrote
            meant[name] = rows

        steps.arrays |= meant
        steps.written_over = writes["K"]
        steps.notes.append("Rows of its cache were written over while slots behind them are free.")
        return True

    def rows_before(self, wrote: int, shape: tuple[int, ...]) -> Array | None:
        """What a cache held before the last statement that wrote into it, laid out as its rows are now."""
        before = self.graph.events[wrote].parents[0]
        if not self.graph.has_value(before):
            return None
        value = self.graph.value(before)
        is_alone = set(shape[: -value.ndim]) <= {1}  # one sequence, one head
        if value.shape != shape[-value.ndim :] or not is_alone:
            return None
        return value.reshape(shape)

    def append_rows(self, before: Array, now: Array) -> Array | None:
        """The rows before with the new ones behind them; None where these took no other's place."""
        changed = (before != now).any(axis=(0, 1, 3))
        filled = (before != 0).any(axis=(0, 1, 3))
        new = np.flatnonzero(changed)
        free = np.flatnonzero(~filled)
        if not (changed & filled).any() or len(free) < len(new):
            return None
        if new[0] == 0:
            return None  # another text begins
        rows = before.copy()
        rows[:, :, free[: len(new)]] = now[:, :, new]
        return rows

    def where_slots_are_left(self, steps: Steps, empty: Array) -> int:
        """The product that reads slots behind the last token; where one before it is empty, what wrote."""
        first = int(empty.any(0).argmax())
        wrote = self.last_write(steps.attention, "K")
        if wrote is not None and not empty[:, first:].all():
            return wrote
        return steps.attention.product

    def is_filled_in(self, attention: Attention, name: str) -> bool:
        """True if statements wrote into an array that was zeros, and this is what it held then."""
        graph = self.graph
        wrote = self.last_write(attention, name)
        if wrote is None:
            return False
        before = graph.events[wrote].parents[:1]
        return any(graph.op(m) in ZEROS or graph.is_write(m) or self.has_free_rows(m) for m in before)

    def has_free_rows(self, n: int) -> bool:
        """True for an array some of whose rows are all 0: a cache that was first read when it had some."""
        value = self.graph.value(n) if self.graph.has_value(n) else None
        return value is not None and value.ndim > 1 and bool((value == 0).all(-1).any())

    def last_write(self, attention: Attention, name: str) -> int | None:
        """The statement that wrote last into the array that K or V is read off."""
        origins = attention.origins.get(name)
        if not origins:
            return None
        written = (n for n in origins[0].path if self.graph.is_write(n))
        return next(written, None)

    def triangle_at(self, events: Sequence[int]) -> int | None:
        for n in events:
            made = triangle_of(self.graph, n)
            if made is not None:
                return made
        queries = {self.graph.value(n).shape[-2:] for n in events if self.graph.value(n).ndim > 1}
        for made in self.meaning.unused_triangles:
            if self.graph.value(made).shape[-2:] in queries:
                return made
        return None

    def triangle_of_mask(self, events: Sequence[int]) -> int | None:
        """Where the triangle was made that is handed to a library, or what was made of it."""
        for n in events:
            if self.graph.op(n) in TRIANGLES:
                return n
            made = triangle_of(self.graph, n)
            if made is not None:
                return made
        return None

    def shows_causal(self, attention: Attention) -> bool:
        """True if an attention of a sentence with itself hides later keys, or was meant to."""
        if attention.arguments.get("is_causal"):
            return True
        if FUSED_MASK in attention.arguments and attention.origins:
            return self.hands_triangle(attention)
        begins = begins_softmax(self.graph, attention.lines)
        if not attention.lines:
            return False
        if not begins:
            return False
        if not self.is_of_itself(attention):
            return False
        hidden = hidden_keys(attention.lines[begins - 1].array, attention.lines[-1].array)
        if shows_triangle(hidden):
            return True
        return self.triangle_at([line.n for line in attention.lines]) is not None

    def hands_triangle(self, attention: Attention) -> bool:
        """True if the mask that a library is handed hides later keys of the same sentence."""
        mask = self.graph.given(attention.arguments, FUSED_MASK)
        if mask is None:
            return False
        array = self.graph.value(mask)
        if array.ndim < 2 or not self.is_of_itself(attention):
            return False
        return shows_triangle(~array if array.dtype.kind == "b" else array <= HIDDEN)

    def read_options_of_jax(self, steps: Steps, shape: tuple[int, ...]) -> Array:
        """What jax.nn.dot_product_attention hides by lengths of keys; its bias and its window are put."""
        graph = self.graph
        arguments = steps.attention.arguments
        hidden = np.zeros(shape, bool)

        bias = graph.given(arguments, "bias")
        if bias is not None:
            steps.put(BIAS, np.broadcast_to(graph.value(bias), shape), [bias])
        lengths = graph.given(arguments, "key_value_seq_lengths")
        if lengths is not None:
            steps.score_events = [lengths]
            ends = graph.value(lengths).reshape(-1, 1, 1, 1)
            hidden = np.broadcast_to(np.arange(shape[-1]) >= ends, shape)
        around = arguments.get("local_window_size")
        if type(around) is int:
            steps.options["window"] = (around, around)
        return hidden

    def has_grown(self, attention: Attention, queries: int) -> bool:
        """True for keys to which those of the queries were just joined: a cache, and what is new."""
        graph = self.graph
        for n in attention.origins["K"][0].path:
            rows = [graph.value(m).shape[-2] for m in graph.parents(n) if graph.value(m).ndim > 1]
            if graph.op(n) in JOINED and len(rows) > 1 and rows[-1] == queries < graph.value(n).shape[-2]:
                return True
        return False

    def is_of_itself(self, attention: Attention) -> bool:
        """True if Q and K are projected of the same rows."""
        of_q, of_k = (attention.origins[name][0].projection for name in "QK")
        if of_q is None:
            return True
        if of_k is None:
            return True
        return is_same(self.graph.value(of_q.x), self.graph.value(of_k.x))

    def read_fused(self, steps: Steps, layout: Layout) -> None:
        """The mask of F.scaled_dot_product_attention: true may attend, other numbers are added."""
        attention = steps.attention
        graph = self.graph
        queries = attention.arrays["Q"].shape[-2]
        keys = attention.arrays["K"].shape[-2]
        shape = (layout.batch, layout.heads, queries, keys)
        hidden = np.zeros(shape, bool)

        arguments = attention.arguments
        n = graph.given(arguments, FUSED_MASK)
        if n is not None:
            array = graph.value(n)
            steps.score_events = [n]
            steps.triangle = self.triangle_of_mask([n])
            if array.dtype.kind == "b":
                hidden = np.broadcast_to(~array, shape)
            else:
                added = np.broadcast_to(array, shape)
                in_effect = hidden_in_effect(added)
                hidden = (added <= HIDDEN) if in_effect is None else in_effect
                if np.abs(added[~hidden]).max(initial=0.0) > 0:
                    steps.put(BIAS, np.where(hidden, 0, added), [n])

        hidden = hidden | self.read_options_of_jax(steps, shape)
        if arguments.get("is_causal"):
            if hidden.any():
                steps.put(MASK, ~hidden, steps.score_events)
            steps.options["causal"] = True
            if steps.reads_newest(len(hidden)) or self.has_grown(attention, queries):
                steps.options["causal_offset"] = keys - queries
            return
        scale = arguments.get("scale")
        if isinstance(scale, float):
            steps.scale_events.append(attention.output)
        self.put_meant(steps, hidden)


def masks_of_samples(hidden: Array) -> Array | None:
    """Who sees whom, (batch, head, query, key), where heads have the masks of other sequences.

    A mask of each sequence, repeated for the heads as a whole, stands in the order sequence, head: heads
    come last in an array of both, so each is to be repeated for itself.
    """
    batch, heads = hidden.shape[:2]
    if batch < 2 or heads < 2 or (hidden == hidden[:, :1]).all():
        return None
    flat = hidden.reshape(batch * heads, *hidden.shape[2:])
    of_sequence = flat[:batch]
    is_repeated = (flat.reshape(heads, batch, *hidden.shape[2:]) == of_sequence).all()
    if not is_repeated or (of_sequence == of_sequence[:1]).all():
        return None
    return ~np.broadcast_to(of_sequence[:, None], hidden.shape)


def sees_padding_only(x: Array | None, hidden: Array) -> bool:
    """True if the keys that are seen are all one row, again and again, and words are hidden."""
    if x is None:
        return False
    if x.ndim != 3:
        return False
    if len(x) < 2:
        return False
    if len(x) != len(hidden):
        return False
    if hidden.shape[-1] != x.shape[1]:
        return False
    hides = np.asarray(hidden[:, 0].all(-2))
    if not np.array_equal(hidden, np.broadcast_to(hides[:, None, None], hidden.shape)):
        return False
    seen = x[~hides]
    unseen = x[hides]
    return len(seen) > 1 and len(unseen) > 1 and is_one_row(seen) and not is_one_row(unseen)


def sees_ends_only(hidden: Array) -> bool:
    """True if some sequences of a batch hide all of their keys, and others the first ones: their words."""
    hides = np.asarray(hidden[:, 0].all(-2))
    if not np.array_equal(hidden, np.broadcast_to(hides[:, None, None], hidden.shape)):
        return False
    begins = ~hides[:, 1:] | hides[:, :-1]  # what is hidden goes on from the first key
    is_whole = hides.all(-1)
    return bool(begins.all() and hides[:, 0].all() and is_whole.any() and not is_whole.all())


def sees_other_regions_only(hidden: Array) -> bool:
    """True if what is hidden are the tokens of a query's own region, itself among them, and no others.

    A region is what tokens stand in that hide each other, as the parts of an image in a shifted window.
    """
    queries, keys = hidden.shape[-2:]
    if queries != keys or queries < 2:
        return False
    each = np.unique(hidden.reshape(-1, queries * keys), axis=0)
    for flat in each:
        together = flat.reshape(queries, keys)
        is_region = together.diagonal().all() and (together == together.T).all()
        if not is_region or ((together.astype(int) @ together > 0) != together).any():
            return False
    has_regions = each.sum(axis=1) > queries
    return bool(has_regions.any() and not each.all())


def is_one_row(rows: Array) -> bool:
    return bool((rows == rows[:1]).all())

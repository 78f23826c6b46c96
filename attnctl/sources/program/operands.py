"""Q, K and V of an attention as steps: projected, normalized, turned, shared by heads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnctl.inputs.config.settings import NONE
from attnctl.math.derivation import Rotary
from attnctl.math.names import (
    EMBEDDINGS,
    MEMORY,
    POSITION_IDS,
    POSITIONS,
    X,
)
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.changed import Changed, places_shown
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import LEFT_AS_IT_IS, Layout, Steps, sequences
from attnctl.sources.program.origin import Origin, Origins, Projection
from attnctl.sources.program.projected import (
    Projected,
    ProjectedRows,
    Projecting,
    distinct_heads,
    heads_repeated,
)
from attnctl.sources.program.relations import (
    Array,
    is_same,
    ratio,
)
from attnctl.sources.program.sinusoids import table_added

LARGEST_PART = 0.6
"""The share of a packed weight that is that of Q: a third, or half beside keys of fewer heads."""

NEAR_WEIGHT = 6
"""Arrays between a weight and the product that it was multiplied out by."""

TURNING = frozenset({"+", "add", "-", "cat", "concatenate", "stack", "in place", "flatten", "reshape"})
"""What a rotation ends with, that by an angle of 0, too."""


class OperandReader:
    """Reads Q, K, V and what these are made of; `asked` are the options that a person gave."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning, asked: Mapping[str, Any]) -> None:
        self.graph = graph
        self.origins = origins
        self.meaning = meaning
        self.asked = dict(asked)
        self.projecting = Projecting(graph, origins)

    def read(self, steps: Steps, name: str, layout: Layout) -> float:
        """Put Q, K or V, and what it is made of; the factor by which it was multiplied on the way."""
        attention = steps.attention
        origins = attention.origins[name]
        path = origins[0].path
        array = layout.four(attention.arrays[name])

        factor = self.factor_on(steps, name, path)
        baked = 1.0
        if name == "Q":
            baked = self.scale_of_query(steps, factor, array.shape[-1])
        factor *= baked
        if factor != 1.0:
            array = (array / factor).astype(array.dtype)

        steps.put(name, array, path[::-1])
        if baked != 1.0:
            origins = [without_factor(origin, baked) for origin in origins]
        unread = self.unread_projection(name, attention)
        if unread is not None:
            origins = [Origin([unread.n], unread)]
            array = self.projecting.split(unread, array.shape)
            steps.put(name, array, [unread.n])

        projected = self.projecting.lay_out(name, origins, array, is_packed=is_packed(attention, name))
        if projected is None and name == "V" and "K" in steps.inputs:
            projected = self.projecting.with_unwritten(array, steps.inputs["K"])
        if projected is None:
            self.take_as_given(steps, name, origins[0], array)
        else:
            self.put_projection(steps, name, projected, array)
            self.put_unread_bias(steps, name)
        return factor

    def unread_projection(self, name: str, attention: Attention) -> Projection | None:
        """The keys or values that were projected and never read, where others are."""
        if name == "Q":
            return None
        unread = self.meaning.unread_beside(name, attention)
        if unread is None and name == "V":
            unread = self.meaning.unread_values(attention)
        return unread

    def take_as_given(self, steps: Steps, name: str, origin: Origin, array: Array) -> None:
        """An operand that nothing projected, perhaps turned; or of which nothing tells how it was."""
        is_input = self.is_input(steps.attention, origin)
        if self.origins.is_unexplained(origin) and not is_input:
            steps.unexplained[name] = origin.last
        elif name != "V":
            self.put_turned(steps, name, origin, array)

    def put_unread_bias(self, steps: Steps, name: str) -> None:
        """The bias that was made for an operand, where nothing reads it."""
        unread = self.meaning.unread_bias(name, steps.attention)
        if unread is not None:
            steps.put(f"b_{name}", self.graph.value(unread), [unread])
            steps.unused.append(unread)

    def put_turned(self, steps: Steps, name: str, origin: Origin, array: Array) -> None:
        """Q or K that is given and turned by its position: as it was given, and as it is read."""
        kept = array if name == "Q" else distinct_heads(array)
        given = self.projecting.given_before_turn(origin, kept)
        if given is None:
            return
        if kept is not array:  # keys before they were repeated for heads
            self.put_shared(steps, name, array, kept)
        self.put_changes(steps, name, given.changed, given.event)

    def is_input(self, attention: Attention, origin: Origin) -> bool:
        """True for keys or values that are x itself, of which others are projected."""
        projections = [origins[0].projection for origins in attention.origins.values()]
        return any(projection is not None and projection.x in origin.path for projection in projections)

    def factor_on(self, steps: Steps, name: str, path: Sequence[int]) -> float:
        """What Q or K is multiplied by between its projection and the product."""
        if name == "V":
            return 1.0
        origins = steps.attention.origins
        others = {origin.last for other in "QKV" if other != name for origin in origins[other]}
        of_others = {n for last in others for n in (last, *self.graph.ancestors(last))}
        factor = 1.0
        for now, before in itertools.pairwise(path):
            if now in of_others:
                break  # what all of them are made of: it is an input that was scaled
            if not self.graph.parents(before) and not self.graph.events[before].names:
                continue  # how large it was drawn
            scale = ratio(self.graph.value(before), self.graph.value(now))
            if scale and abs(scale - 1) > 1e-9:
                factor *= scale
                steps.scale_events.append(now)
        return factor

    def baked_scale(self, attention: Attention, factor: float, d_k: int) -> float:
        """1 / √d_k, where the weight of Q has it and that of K has not: weights may be drawn that small."""
        if factor != 1.0:
            return 1.0
        if self.has_scaled_line(attention):
            return 1.0
        of_q, of_k = (self.scale_in_weight(attention.origins[name], d_k) for name in "QK")
        if of_q == of_k:
            return self.scale_in_part(attention.origins["Q"], d_k)
        return of_q

    def scale_of_query(self, steps: Steps, factor: float, width: int) -> float:
        """The scale that the weight of Q has in it, of heads as wide as they were before it was made."""
        d_k = self.columns_multiplied_out(steps.attention)
        if d_k is None:
            return self.baked_scale(steps.attention, factor, width)
        steps.options["scale"] = float(1 / np.sqrt(d_k))
        steps.note(f"Its weight is W_Q W_Kᵀ, multiplied out, of heads with {d_k} columns.")
        return self.baked_scale(steps.attention, factor, d_k)

    def columns_multiplied_out(self, attention: Attention) -> int | None:
        """d_k of x (W_Q W_Kᵀ) xᵀ, whose keys are x itself: the size that the weights were summed over."""
        of_q = attention.origins["Q"][0].projection
        of_k = attention.origins["K"][0]
        if of_q is None or of_k.projection is not None:
            return None
        if not is_same(self.graph.value(of_q.x), self.graph.value(of_k.last)):
            return None
        for n in (of_q.weight, *self.graph.ancestors(of_q.weight, most=NEAR_WEIGHT)):
            product = self.graph.product(n)
            if product is not None:
                return self.graph.summed_width(product)
        return None

    def scale_in_part(self, origins: Sequence[Origin], d_k: int) -> float:
        """1 / √d_k, if just a part of a packed weight was multiplied by it: W[0] /= np.sqrt(d_k)."""
        projection = origins[0].projection
        if projection is None:
            return 1.0
        for n in self.origins.origin(projection.weight).path:
            for parent in self.graph.parents(n):
                before = self.graph.value(parent)
                now = self.graph.value(n)
                if before.shape != now.shape:
                    continue
                changed = before != now
                if not 0 < changed.mean() <= LARGEST_PART:
                    continue
                scale = ratio(before[changed], now[changed])
                if abs(scale * np.sqrt(d_k) - 1) < 1e-3 and d_k > 1:
                    return scale
        return 1.0

    def has_scaled_line(self, attention: Attention) -> bool:
        """True if the scores are multiplied by a constant before the softmax."""
        begins = begins_softmax(self.graph, attention.lines)
        for before, now in itertools.pairwise(attention.lines[:begins]):
            scale = ratio(before.array, now.array)
            is_of_base = abs(scale - np.log2(np.e)) < 1e-3  # what exp2 needs, no scale
            if scale not in {0.0, 1.0} and not is_of_base:
                return True
        return False

    def scale_in_weight(self, origins: Sequence[Origin], d_k: int) -> float:
        """1 / √d_k, if the weight of Q was multiplied by it; else 1."""
        projection = origins[0].projection
        if projection is None:
            return 1.0
        weight = projection.weight
        for _ in range(4):
            for parent in self.graph.parents(weight):
                scale = ratio(self.graph.value(parent), self.graph.value(weight))
                if abs(scale * np.sqrt(d_k) - 1) < 1e-3 and d_k > 1:
                    return scale
            before = self.origins.before(weight)
            if before is None:
                break
            weight = before
        return 1.0

    def put_projection(self, steps: Steps, name: str, projected: Projected, array: Array) -> None:
        """What an operand is projected of, and what was done with it since."""
        steps.inputs[name] = projected.input
        matrix = projected.matrix
        bias = projected.bias
        meant = self.meaning.meant_instead(steps, name, projected)
        if meant is not None:
            matrix = self.meaning.matrix_of(meant, matrix.shape)
            bias = None
            steps.unused.append(meant)
        elif projected.is_whole and self.meaning.is_left_as_linear_has_it(projected):
            matrix = matrix.T
            steps.note(LEFT_AS_IT_IS)
        steps.put(f"W_{name}", matrix, [projected.weight])
        steps.put(f"b_{name}", bias, [projected.weight])

        if projected.stored is not None:
            self.put_shared(steps, name, array, projected.stored)
        if projected.change is not None:
            self.put_changes(steps, name, projected.change, projected.event)

    def put_shared(self, steps: Steps, name: str, array: Array, stored: Array) -> None:
        """Keys or values before they were repeated for heads, and as they are read."""
        path = steps.events[name]
        grown = [
            now
            for before, now in itertools.pairwise(path)
            if self.graph.value(now).size > self.graph.value(before).size
        ]
        steps.put(f"{name}_shared", array, grown[:1] or path[-1:])
        steps.put(name, stored, path)
        steps.options.setdefault("kv_heads", stored.shape[1])

    def settle_shared_heads(self, steps: Steps) -> None:
        """Keys of which nothing tells how they came about are those of shared heads, too, if values are."""
        shared = steps.options.get("kv_heads") or given_kv_heads(steps)
        if shared is None:
            return
        steps.options["kv_heads"] = shared
        for name in "KV":
            array = steps.arrays[name]
            kept = distinct_heads(array)
            if f"{name}_shared" not in steps.arrays and kept.shape[1] == shared < array.shape[1]:
                self.put_shared(steps, name, array, kept)

    def settle_rotation(self, steps: Steps) -> None:
        """What is asked for where Q or K is turned: by which angles, and how many keys precede query 0."""
        turns = steps.turns
        if not turns:
            if isinstance(self.asked.get("positions"), Rotary) and not self.shows_unturned(steps):
                steps.options["positions"] = NONE
            return
        is_broken = any(turn.is_broken for turn in turns.values())
        telling = [turns[name] for name in "KQ" if name in turns and turns[name].frequencies]
        known = all(name in turns or f"W_{name}" in steps.arrays for name in "QK")
        if not known or not (telling or is_broken):
            for name in turns:
                take_as_made(steps, name, is_known=self.is_given_beside_made(steps, name))
            steps.options["positions"] = NONE
            return

        steps.options["positions"] = telling[0].rotary() if telling else Rotary()
        for name in {*"QK"} - {*turns}:
            # Not turned at all, or by the angle 0 of the first position.
            last = f"{name}_normed" if f"{name}_normed" in steps.arrays else name
            events = steps.events[last]
            if not any(self.graph.op(n) in TURNING for n in events):
                events = events[:1]
            steps.put(f"{name}_rotated", steps.arrays[last], events)

        own_places = self.own_places(steps)
        if own_places is not None:
            steps.options["positions"] = replace(steps.options["positions"], frequencies=())
            steps.put(POSITION_IDS, own_places, steps.events["Q_rotated"][:1])
        batch, _, queries, _ = steps.arrays["Q"].shape
        keys = steps.arrays["K"].shape[-2]
        if queries < keys and steps.reads_newest(batch):
            steps.options["causal_offset"] = keys - queries

    def own_places(self, steps: Steps) -> Array | None:
        """(batch, token): positions that tokens have of their own, as where some were left out.

        They rise in each member, by more than one somewhere, and are those of queries and keys alike.
        """
        if not {*"QK"} <= steps.turns.keys():
            return None
        theta = steps.options["positions"].theta
        shown: list[Array] = []
        for name in "QK":
            before = steps.arrays.get(f"{name}_normed", steps.arrays[name])
            turn = steps.turns[name].at_base(theta, before.shape[-1])
            places = places_shown(before, steps.arrays[f"{name}_rotated"], turn)
            if places is None:
                return None
            shown.append(places)
        of_q, of_k = shown
        if not np.array_equal(of_q, of_k):
            return None
        steps_between = np.diff(of_q, axis=-1)
        rises_unevenly = np.ptp(steps_between) > 0 and steps_between.min() > 0
        return of_q if rises_unevenly else None

    def is_given_beside_made(self, steps: Steps, name: str) -> bool:
        """True for an operand that is given where nothing tells how the other was made, as of a cache."""
        other = steps.attention.origins["K" if name == "Q" else "Q"][0].last
        return f"W_{name}" not in steps.arrays and bool(self.graph.nearest_kept(other))

    def shows_unturned(self, steps: Steps) -> bool:
        """True if Q and K are seen to be read as they were projected, or as they were given."""
        for name in "QK":
            if f"W_{name}" in steps.arrays:
                continue
            last = steps.attention.origins[name][0].last
            if name in steps.unexplained or self.graph.nearest_kept(last):
                return False
        return True

    def put_changes(self, steps: Steps, name: str, changed: Changed, projected: int) -> None:
        """Q or K as projected, and after each norm and rotation."""
        path = steps.events[name]
        steps.put(name, changed.before, [projected])
        for stage in changed.stages:
            is_last = stage is changed.stages[-1]
            steps.put(f"{name}_{stage.name}", stage.array, path if is_last else [stage.event])
            steps.put(f"{name}_norm_weight", stage.gains, [stage.event])
            steps.options |= stage.options
            if stage.turn is not None:
                steps.turns[name] = stage.turn

    def take_other_values(self, steps: Steps) -> None:
        """Take V as it is, where it is projected of rows that are neither those of Q nor those of K.

        A memory may have keys and values of its own, as titles and texts; a sentence has one X.
        """
        if not {*"QKV"} <= steps.inputs.keys():
            return
        of_q, of_k, of_v = (steps.inputs[name].array for name in "QKV")
        if has_rows_of(of_v, of_k) or has_rows_of(of_v, of_q) or has_rows_of(of_k, of_q):
            return
        del steps.inputs["V"]
        for given in ("W_V", "b_V"):
            steps.arrays.pop(given, None)

    def read_inputs(self, steps: Steps, batch: int) -> None:
        """X; what K and V are made of, where that is another; embeddings, where positions are asked for."""
        self.take_other_values(steps)
        of_q = steps.inputs.get("Q")
        of_k = steps.inputs.get("K") or steps.inputs.get("V")
        if of_q is None and "Q" in steps.unexplained:
            of_q = of_k  # of a sentence with itself, as far as one can tell
        if of_q is not None:
            normed = self.with_unread_norm(steps, of_q)
            if normed is not None:
                of_k = normed if of_k is not None and of_k.event == of_q.event else of_k
                of_q = normed
            steps.put(X, sequences(of_q.array, batch), [of_q.event])
        if of_k is not None and (of_q is None or not is_same(rows_of(of_k.array), rows_of(of_q.array))):
            steps.put(MEMORY, sequences(of_k.array, batch), [of_k.event])
        if of_q is not None:
            self.read_positions(steps, of_q, batch)

    def with_unread_norm(self, steps: Steps, of_q: ProjectedRows) -> ProjectedRows | None:
        """X as it was normalized, where it was and nothing reads that."""
        norm = self.meaning.unread_norm(of_q.event, steps.attention.product)
        if norm is None:
            return None
        steps.unread_norm = norm
        steps.unused.append(norm)
        return ProjectedRows(norm, self.graph.value(norm))

    def read_positions(self, steps: Steps, of_q: ProjectedRows, batch: int) -> None:
        """Embeddings and sinusoids, where X is their sum: if asked for, or where these are unusual."""
        if self.asked.get("positions") == "sinusoidal":
            added = self.meaning.added_and_dropped(of_q.event)
            if added is not None:
                steps.put(EMBEDDINGS, sequences(of_q.array, batch), [of_q.event])
                steps.events[X] = [added]
            return
        table = table_added(self.graph, of_q.event)
        if table is None or "positions" in self.asked or "positions" in steps.options:
            return
        steps.put(EMBEDDINGS, sequences(self.graph.value(table.embeddings), batch), [table.embeddings])
        steps.put(POSITIONS, table.rows, [table.positions])
        steps.options[POSITIONS] = "sinusoidal"


def rows_of(array: Array) -> Array:
    """All rows one behind the other."""
    return array.reshape(-1, array.shape[-1])


def has_rows_of(rows: Array, others: Array) -> bool:
    """True if some row stands in both."""
    if rows.shape[-1] != others.shape[-1]:
        return False
    width = rows.shape[-1]
    there = {row.tobytes() for row in np.ascontiguousarray(others.reshape(-1, width))}
    return any(row.tobytes() in there for row in np.ascontiguousarray(rows.reshape(-1, width)))


def given_kv_heads(steps: Steps) -> int | None:
    """How many heads of keys and values there are that were given and repeated for those of queries."""
    if "W_K" in steps.arrays or "W_V" in steps.arrays:
        return None
    return heads_repeated(steps.arrays["K"], steps.arrays["V"], steps.arrays["Q"].shape[1])


def take_as_made(steps: Steps, name: str, *, is_known: bool) -> None:
    """Q or K as it is read, where nothing tells how it was turned; that is said unless it `is_known`."""
    events = steps.events[f"{name}_rotated"]
    steps.put(name, steps.arrays.pop(f"{name}_rotated"), events)
    if not is_known:
        steps.unexplained[name] = events[-1]
    steps.inputs.pop(name, None)
    for given in (f"W_{name}", f"b_{name}", f"{name}_normed", f"{name}_norm_weight"):
        steps.arrays.pop(given, None)


def without_factor(origin: Origin, factor: float) -> Origin:
    """An origin whose projection has not the scale in its weight."""
    projection = origin.projection
    if projection is None:
        return origin
    bias = None
    if projection.bias is not None:
        bias = projection.bias / factor
    rows = (projection.rows / factor).astype(projection.rows.dtype)
    matrix = (projection.matrix / factor).astype(projection.matrix.dtype)
    return origin._replace(projection=projection._replace(matrix=matrix, bias=bias, rows=rows))


def is_packed(attention: Attention, name: str) -> bool:
    """True for an operand that is a part of what another one is a part of, too."""
    projection = attention.origins[name][0].projection
    if projection is None:
        return False
    others = [attention.origins[other][0].projection for other in "QKV" if other != name]
    return any(other is not None and other.n == projection.n for other in others)

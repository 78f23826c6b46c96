"""An attention of a program as steps under our names, each with the expressions that make it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import plural
from attnctl.inputs.config.settings import NONE
from attnctl.math.derivation import Rotary
from attnctl.math.names import (
    BIAS,
    CONCAT,
    EMBEDDINGS,
    HEAD_OUTPUTS,
    MASK,
    MASKED,
    MEMORY,
    OUTPUT,
    SCALED,
    W_O,
    WEIGHTS,
    X,
)
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.changed import Changed
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax, is_base_two
from attnctl.sources.program.lines import ChangeKind, classify
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Steps
from attnctl.sources.program.origin import Origin, Origins, Projection
from attnctl.sources.program.projected import Projected, Projecting, distinct_heads
from attnctl.sources.program.relations import (
    HIDDEN,
    Array,
    has_same_numbers,
    is_near,
    is_same,
    ratio,
    rows_sum_to_one,
)
from attnctl.sources.program.visibility import (
    TRIANGLES,
    hidden_keys,
    shows_triangle,
    triangle_of,
    what_was_meant,
)

ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})

SCORES, SOFTCAPPED, BIASED = "scores", "softcapped_scores", "biased_scores"


class StepReader:
    """Makes the steps of an attention; `asked` are the options that a person gave."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning, asked: Mapping[str, Any]) -> None:
        self.graph = graph
        self.origins = origins
        self.meaning = meaning
        self.asked = dict(asked)
        self.projecting = Projecting(graph, origins)
        self.some_causal = False
        """True if some attention of the program hides later keys: --causal is then of these."""

    def read(self, attention: Attention) -> Steps:
        """The steps of an attention. Raises ValueError, KeyError or IndexError for what does not fit."""
        steps = Steps(attention)
        batch, heads = self.roles(attention)
        steps.options["heads"] = heads
        asked_heads = self.asked.get("heads")
        if asked_heads not in (None, heads) and heads > 1:
            steps.notes.append(f"It has {heads} heads, not {asked_heads}: judged with as many as it has.")
        layout = Layout(batch, heads, attention)

        prescale = 1.0
        for name in "QKV":
            prescale *= self.read_operand(steps, name, layout)
        settle_shared_heads(steps)
        self.settle_rotation(steps)
        self.read_inputs(steps, batch)
        self.read_scores(steps, layout, prescale)
        if steps.dropped is None:
            steps.put(HEAD_OUTPUTS, layout.four(attention.arrays[HEAD_OUTPUTS]), [attention.output])
            self.read_output(steps, layout)
        if batch == 1:
            drop_batch(steps)
        return steps

    def roles(self, attention: Attention) -> tuple[int, int]:
        """How many sequences and heads there are."""
        x = self.projected_rows(attention)
        sequences = None
        if x is not None and x.ndim == 3:
            sequences = len(x)
        sizes = attention.batch
        if len(sizes) == 2:
            if sequences == sizes[1] != sizes[0]:
                return sizes[1], sizes[0]
            return sizes[0], sizes[1]
        if not sizes:
            return 1, 1

        (size,) = sizes
        if attention.parts:
            return 1, size
        if sequences is not None:
            if sequences == size:
                return size, 1
            if size % sequences == 0:
                return sequences, size // sequences
        if self.asked.get("heads") == size or (x is not None and x.ndim == 2) or self.are_merged(attention):
            return 1, size
        return size, 1

    def are_merged(self, attention: Attention) -> bool:
        """True if the outputs come side by side in one matrix, as those of heads."""
        queries, width = attention.arrays[HEAD_OUTPUTS].shape[-2:]
        _, moves = self.follow_moves(attention)
        wide = queries, width * attention.batch[0]
        return any(self.graph.value(n).shape == wide for n in moves)

    def projected_rows(self, attention: Attention) -> Array | None:
        """What Q is projected of; where that is not known, what V is."""
        for name in "QV":
            origin = attention.origins[name][0]
            projection = origin.projection or self.origins.nearest_projection(origin.last)
            if projection is not None:
                return self.graph.value(projection.x)
        return None

    # --- Q, K and V ---

    def read_operand(self, steps: Steps, name: str, layout: Layout) -> float:
        """Put Q, K or V, and what it is made of; the factor by which it was multiplied on the way."""
        attention = steps.attention
        origins = attention.origins[name]
        path = origins[0].path
        array = layout.four(attention.arrays[name])

        factor = self.factor_on(steps, name, path)
        baked = 1.0
        if name == "Q":
            baked = self.baked_scale(attention, factor, array.shape[-1])
        factor *= baked
        if factor != 1.0:
            array = (array / factor).astype(array.dtype)

        steps.put(name, array, path[::-1])
        if baked != 1.0:
            origins = [without_factor(origin, baked) for origin in origins]
        if name == "V" and origins[0].projection is not None:
            unread = self.meaning.unread_values(attention)
            if unread is not None:
                origins = [Origin([unread.n], unread)]
                array = self.projecting.split(unread, array.shape)
                steps.put(name, array, [unread.n])
        projected = self.projecting.lay_out(name, origins, array)
        if projected is None:
            if self.origins.is_unexplained(origins[0]):
                steps.unexplained[name] = origins[0].last
            return factor
        self.put_projection(steps, name, projected, array)
        return factor

    def factor_on(self, steps: Steps, name: str, path: Sequence[int]) -> float:
        """What Q or K is multiplied by between its projection and the product."""
        factor = 1.0
        for now, before in itertools.pairwise(path):
            if not self.graph.parents(before) and not self.graph.events[before].names:
                continue  # how large it was drawn
            scale = ratio(self.graph.value(before), self.graph.value(now))
            if scale and abs(scale - 1) > 1e-9 and name != "V":
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
            return 1.0
        return of_q

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
        steps.put(f"W_{name}", matrix, [projected.weight])
        steps.put(f"b_{name}", bias, [projected.weight])

        path = steps.events[name]
        if projected.stored is not None:  # keys and values before they were repeated for heads
            grown = [
                now
                for before, now in itertools.pairwise(path)
                if self.graph.value(now).size > self.graph.value(before).size
            ]
            steps.put(f"{name}_shared", array, grown[:1] or path[-1:])
            steps.put(name, projected.stored, path)
            steps.options.setdefault("kv_heads", projected.stored.shape[1])
        if projected.change is not None:
            self.put_changes(steps, name, projected.change, projected.event)

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
                take_as_made(steps, name)
            steps.options["positions"] = NONE
            return

        steps.options["positions"] = telling[0].rotary() if telling else Rotary()
        for name in {*"QK"} - {*turns}:
            # Not turned at all, or by the angle 0 of the first position.
            last = f"{name}_normed" if f"{name}_normed" in steps.arrays else name
            steps.put(f"{name}_rotated", steps.arrays[last], steps.events[last])

        batch, _, queries, _ = steps.arrays["Q"].shape
        keys = steps.arrays["K"].shape[-2]
        of_k = steps.inputs["K"].array
        of_q = steps.inputs["Q"].array
        if queries < keys and ends_with(of_k, of_q, batch):
            steps.options["causal_offset"] = keys - queries

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

    def read_inputs(self, steps: Steps, batch: int) -> None:
        """X; what K and V are made of, where that is another; embeddings, where positions are asked for."""
        of_q = steps.inputs.get("Q")
        of_k = steps.inputs.get("K") or steps.inputs.get("V")
        if of_q is None and "Q" in steps.unexplained:
            of_q = of_k  # of a sentence with itself, as far as one can tell
        if of_q is not None:
            steps.put(X, sequences(of_q.array, batch), [of_q.event])
        if of_k is not None and (of_q is None or not is_same(of_k.array, of_q.array)):
            steps.put(MEMORY, sequences(of_k.array, batch), [of_k.event])
        if self.asked.get("positions") == "sinusoidal" and of_q is not None:
            added = self.meaning.added_and_dropped(of_q.event)
            if added is not None:
                steps.put(EMBEDDINGS, sequences(of_q.array, batch), [of_q.event])
                steps.events[X] = [added]

    # --- scores and weights ---

    def read_scores(self, steps: Steps, layout: Layout, prescale: float) -> None:
        """What stands between Q Kᵀ and the second product, each array told by its numbers."""
        attention = steps.attention
        graph = self.graph
        if not attention.lines:
            self.read_fused_mask(steps, layout)
            return

        lines = [(line.n, layout.four(np.asarray(line.array))) for line in attention.lines]
        begins = begins_softmax(graph, attention.lines)
        if is_base_two(graph, attention.lines, begins):
            # exp2 takes scores that are multiplied by log2(e).
            in_base_e = [(n, (array * np.log(2)).astype(array.dtype)) for n, array in lines[:begins]]
            lines[:begins] = in_base_e
            prescale *= 1 / np.log2(np.e)
        steps.score_events = [n for n, _ in lines[:begins]] or [lines[0][0]]
        steps.weight_events = [n for n, _ in lines[begins:]] or [lines[-1][0]]
        kept = before_dropout(lines, begins)
        if kept is not None:
            steps.dropped = lines[kept + 1][0]
            steps.weight_events = [n for n, _ in lines[begins : kept + 1]]
            lines = lines[: kept + 1]
        weights = lines[-1][1]
        scored = None
        if begins:
            scored = lines[begins - 1][1]

        self.read_mask(steps, hidden_keys(scored, weights))
        name = SCALED
        if prescale == 1.0 and attention.factor == 1.0:
            name = SCORES
        first_n, before = lines[0]
        if (before <= HIDDEN).any():
            # Keys are missing from the first line on, as in rows of a growing cache: only the scores
            # that the softmax reads have a name then.
            number = max(begins - 1, 0)
            while number and classify(lines[number - 1][1], lines[number][1]).kind is ChangeKind.SHIFT:
                number -= 1
            last_n, last = lines[number]
            steps.put(MASKED, infinite(last), [last_n])
            steps.scale_events += self.scaled_in(lines[:begins])
        else:
            steps.put(name, before, [first_n])
            self.read_lines(steps, lines, begins, name)
        if not attention.is_tiled:
            steps.put(WEIGHTS, weights, steps.weight_events)

    def scaled_in(self, lines: Sequence[tuple[int, Array]]) -> list[int]:
        """The lines that are the one before, times a constant."""
        scaled = []
        for (_, before), (n, now) in itertools.pairwise(lines):
            if classify(before, now).kind is ChangeKind.SCALE:
                scaled.append(n)
        return scaled

    def read_lines(self, steps: Steps, lines: Sequence[tuple[int, Array]], begins: int, name: str) -> None:
        """What each line before the softmax makes of the one before it."""
        before = lines[0][1]
        shift: Array | float = 0.0
        number = 1
        while number < begins:
            cap = self.softcap_at(lines, number, begins)
            if cap is not None:
                steps.options["softcap"] = cap.cap
                n, before = lines[cap.last]
                name = SOFTCAPPED
                number = cap.last + 1
                steps.put(SOFTCAPPED, before, [n])
                continue

            n, now = lines[number]
            change = classify(before, now)
            if change.kind is ChangeKind.SHIFT:
                shift = shift + change.shift
            elif change.kind is not ChangeKind.NONE:
                name = self.name_of(steps, n, change.kind, (before, now), name)
                steps.put(name, infinite(now + shift), [n])
            before = now
            number += 1

    def name_of(
        self, steps: Steps, n: int, kind: ChangeKind, arrays: tuple[Array, Array], name: str
    ) -> str:
        """The step that a line makes, after the step of that name."""
        if kind is ChangeKind.SCALE:
            steps.scale_events.append(n)
            if name in {SCORES, SCALED}:
                return SCALED
            return name
        if kind is ChangeKind.MASK:
            return MASKED
        return self.read_other(steps, n, *arrays, name)

    def softcap_at(self, lines: Sequence[tuple[int, Array]], number: int, begins: int) -> CapShown | None:
        """A cap, c · tanh(s / c), that begins at this line."""
        for tanh in range(number, min(number + 2, begins)):
            if self.graph.op(lines[tanh][0]) != "tanh":
                continue
            scale = ratio(lines[number - 1][1], np.arctanh(np.clip(lines[tanh][1], -0.999999, 0.999999)))
            after = tanh + 1
            if after < begins and ratio(lines[tanh][1], lines[after][1]) and scale:
                cap = ratio(lines[tanh][1], lines[after][1])
                if abs(cap * scale - 1) < 1e-2:
                    return CapShown(float(f"{cap:.6g}"), after)
        return None

    def read_other(self, steps: Steps, n: int, before: Array, now: Array, name: str) -> str:
        """What is no factor and hides nothing: a bias that is added, or a mask that was multiplied."""
        graph = self.graph
        if graph.op(n) in {"*", "multiply", "mul", "where"} and steps.options.get("causal"):
            return MASKED
        finite = np.isfinite(before) & np.isfinite(now)
        if finite.all() and self.asked.get("positions") != "alibi" and graph.op(n) in ADDED:
            added = now.astype(float) - before
            if shows_alibi(added):
                steps.options["positions"] = "alibi"
                return "alibi_scores"
            if BIAS not in steps.arrays and name in {SCORES, SCALED, SOFTCAPPED}:
                steps.put(BIAS, added.astype(now.dtype), [n])
                return BIASED
        if name != MASKED:
            return BIASED
        return MASKED

    # --- masks ---

    def read_mask(self, steps: Steps, hidden: Array) -> None:
        events = [*steps.score_events, *steps.weight_events]
        steps.triangle = self.triangle_at(events)
        self.put_meant(steps, hidden)

    def put_meant(self, steps: Steps, hidden: Array) -> None:
        """What was meant to be hidden: asked for, or made."""
        empty = self.empty_slots(steps)
        if empty is not None:
            steps.put(MASK, np.broadcast_to(~empty[:, None, None], hidden.shape), steps.score_events[:1])
            steps.has_empty_slots = True
            slots = plural(int(empty.any(0).sum()), "slot")
            steps.notes.append(f"{slots} of its cache had not been written to: these are no keys yet.")
            return
        is_made = steps.triangle is not None
        is_newest = self.reads_newest(steps, hidden)
        of_another = MEMORY in steps.arrays and not is_newest
        if of_another and self.some_causal and (is_made or shows_triangle(hidden)):
            return  # keys of another sentence have no order with the queries
        if not is_made and sees_padding_only(steps.arrays.get(MEMORY, steps.arrays.get(X)), hidden):
            steps.put(MASK, hidden, steps.score_events[:1])  # words were to be seen, not what fills up
            return
        causal = is_made or (bool(self.asked.get("causal")) and not self.some_causal)
        meant = what_was_meant(hidden, self.asked, causal=causal, is_newest=is_newest)
        steps.options |= meant.options
        for name, array in meant.arrays.items():
            steps.put(name, array, steps.score_events[:1])

    def empty_slots(self, steps: Steps) -> Array | None:
        """(batch, key): the slots of a cache that was made of zeros which nothing has been written to."""
        if not all(self.is_filled_in(steps.attention, name) for name in "KV"):
            return None
        rows = [steps.arrays.get(f"{name}_rotated", steps.arrays[name]) for name in "KV"]
        empty = np.logical_and(*[(array == 0).all(axis=(1, 3)) for array in rows])
        if not empty.any() or empty.all():
            return None
        return empty

    def is_filled_in(self, attention: Attention, name: str) -> bool:
        """True if statements wrote into an array that was zeros, and this is what it held then."""
        graph = self.graph
        for n in [n for origin in attention.origins.get(name, ())[:1] for n in origin.path]:
            if graph.events[n].function == "in place":
                before = graph.events[n].parents[:1]
                return any(graph.op(m) in ZEROS or graph.events[m].function == "in place" for m in before)
        return False

    def reads_newest(self, steps: Steps, hidden: Array) -> bool:
        """True if the queries are the last tokens of a cache."""
        if not {*"QK"} <= steps.inputs.keys():
            return False
        of_k = steps.inputs["K"].array
        of_q = steps.inputs["Q"].array
        return of_k.size > of_q.size and ends_with(of_k, of_q, len(hidden))

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

    def is_of_itself(self, attention: Attention) -> bool:
        """True if Q and K are projected of the same rows."""
        of_q, of_k = (attention.origins[name][0].projection for name in "QK")
        if of_q is None:
            return True
        if of_k is None:
            return True
        return is_same(self.graph.value(of_q.x), self.graph.value(of_k.x))

    def read_fused_mask(self, steps: Steps, layout: Layout) -> None:
        """The mask of F.scaled_dot_product_attention: true may attend, other numbers are added."""
        attention = steps.attention
        graph = self.graph
        queries = attention.arrays["Q"].shape[-2]
        keys = attention.arrays["K"].shape[-2]
        shape = (layout.batch, layout.heads, queries, keys)
        hidden = np.zeros(shape, bool)

        arguments = attention.arguments
        mask = arguments.get("attn_mask")
        if isinstance(mask, dict) and graph.has_value(mask["event"]):
            n = mask["event"]
            array = graph.value(n)
            steps.score_events = [n]
            steps.triangle = self.triangle_of_mask([n])
            if array.dtype.kind == "b":
                hidden = np.broadcast_to(~array, shape)
            else:
                added = np.broadcast_to(array, shape)
                hidden = added <= HIDDEN
                if np.abs(array[array > HIDDEN]).max(initial=0.0) > 0:
                    steps.put(BIAS, np.where(hidden, 0, added), [n])

        if arguments.get("is_causal"):
            steps.options["causal"] = True
            if self.reads_newest(steps, hidden):
                steps.options["causal_offset"] = keys - queries
            return
        scale = arguments.get("scale")
        if isinstance(scale, float):
            steps.scale_events.append(attention.output)
        self.put_meant(steps, hidden)

    # --- after the second product ---

    def read_output(self, steps: Steps, layout: Layout) -> None:
        """Heads side by side, and projected."""
        attention = steps.attention
        graph = self.graph
        outputs = layout.four(attention.arrays[HEAD_OUTPUTS])
        batch, heads, queries, width = outputs.shape
        n, moves = self.follow_moves(attention)

        merged = outputs.swapaxes(1, 2).reshape(batch, queries, heads * width)
        value = graph.value(n)
        is_turned = value.shape == (heads * width, queries) != (queries, heads * width)
        if is_turned:
            value = value.T
        tokens_first = stands_tokens_first(value, merged)
        if moves and value.size == outputs.size and value.shape[-1] == heads * width:
            if tokens_first:
                value = value.swapaxes(0, 1)
            steps.put(CONCAT, value.reshape(batch, queries, heads * width), moves)

        projection = self.output_projection(n)
        if projection is not None and projection.matrix.shape[0] == heads * width:
            steps.put(W_O, projection.matrix, [projection.weight])
            steps.put("b_O", projection.bias, [projection.weight])
            output = graph.value(projection.n)
            if tokens_first:
                output = output.swapaxes(0, 1)
            steps.put(OUTPUT, output.reshape(batch, queries, -1), [projection.n])
        elif projection is None:
            unused = self.meaning.unused_output_weight(steps, heads * width)
            if unused is not None and CONCAT in steps.arrays:
                matrix = self.meaning.matrix_of(unused, (heads * width,))
                steps.put(W_O, matrix, [unused])
                steps.put(OUTPUT, steps.arrays.pop(CONCAT), steps.events.pop(CONCAT))

    def follow_moves(self, attention: Attention) -> tuple[int, list[int]]:
        """The last array that only moves what the second product gave, and those on the way to it."""
        graph = self.graph
        n = attention.output
        moves: list[int] = []
        if attention.joined is not None:
            n = attention.joined
            moves.append(n)

        for _ in range(8):
            if self.output_projection(n) is not None:
                break
            value = graph.value(n)
            moved = [
                child
                for child in graph.made_from(n)
                if graph.value(child).size == value.size
                and graph.value(child).ndim > 1
                and not graph.product(child)
                and has_same_numbers(graph.value(child), value)
            ]
            if not moved:
                break
            n = moved[0]
            moves.append(n)
        return n, moves

    def output_projection(self, n: int) -> Projection | None:
        """The projection that reads this array, with its bias where one is added."""
        found: Projection | None = None
        for child in self.graph.made_from(n):
            projection = self.origins.projection(child)
            if projection is None:
                continue
            if projection.x != n:
                continue
            found = projection
            for further in self.graph.made_from(child):
                with_bias = self.origins.projection(further)
                if projection.bias is None and with_bias is not None and with_bias.bias is not None:
                    found = with_bias
        return found


ADDED = frozenset({"+", "add", "in place +", "in place", "-", "where", "masked_fill", "baddbmm"})


@dataclass(frozen=True)
class CapShown:
    cap: float
    last: int
    """The line in which it ends."""


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


def settle_shared_heads(steps: Steps) -> None:
    """Keys of which nothing tells how they came about are those of shared heads, too, if values are."""
    shared = steps.options.get("kv_heads")
    if shared is None:
        return
    for name in "KV":
        array = steps.arrays[name]
        kept = distinct_heads(array)
        if f"{name}_shared" not in steps.arrays and kept.shape[1] == shared < array.shape[1]:
            steps.put(f"{name}_shared", array, steps.events[name])
            steps.put(name, kept, steps.events[name])


def ends_with(rows: Array, last: Array, batch: int) -> bool:
    """True if the last rows of each sequence are these: the queries are the newest tokens of a cache."""
    width = rows.shape[-1]
    if last.shape[-1] != width:
        return False
    rows = rows.reshape(batch, -1, width)
    last = last.reshape(batch, -1, width)
    return is_near(rows[:, rows.shape[1] - last.shape[1] :], last)


def take_as_made(steps: Steps, name: str) -> None:
    """Q or K as it is read, where nothing tells how it was turned."""
    events = steps.events[f"{name}_rotated"]
    steps.put(name, steps.arrays.pop(f"{name}_rotated"), events)
    steps.unexplained[name] = events[-1]
    steps.inputs.pop(name, None)
    for given in (f"W_{name}", f"b_{name}", f"{name}_normed", f"{name}_norm_weight"):
        steps.arrays.pop(given, None)


def before_dropout(lines: Sequence[tuple[int, Array]], begins: int) -> int | None:
    """The line of weights of which the next has some made 0, and the others multiplied by one number."""
    for number in range(begins, len(lines) - 1):
        before = lines[number][1]
        now = lines[number + 1][1]
        if before.shape != now.shape:
            continue
        if not rows_sum_to_one(before):
            continue
        kept = now != 0
        if kept.all():
            continue
        if not ((before != 0) & ~kept).any():
            continue
        if not kept.any():
            continue
        factor = ratio(before[kept], now[kept])
        if factor >= 1 and not rows_sum_to_one(now):
            # A triangle of zeros is a mask that comes late.
            share = (~kept & (before != 0)).mean()
            if share < 0.9 and not shows_triangle(~kept) and factor > 1:
                return number
    return None


def shows_alibi(added: Array) -> bool:
    """True if a bias is linear in the distance, with ALiBi's slopes, whatever its sign."""
    heads, queries, keys = added.shape[-3:]
    if queries < 3:
        return False
    if keys != queries:
        return False
    if np.abs(added).max() == 0:
        return False
    slopes: Array = np.abs(added)[..., 2, 1]
    usual = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    if not np.allclose(slopes, usual, rtol=1e-3):
        return False
    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys))
    lower: Array = np.tri(queries, keys, dtype=bool)
    sizes: Array = np.abs(added)
    expected: Array = np.broadcast_to(usual[:, None, None] * distance, added.shape)
    return bool(np.allclose(sizes[..., lower], expected[..., lower], rtol=1e-3))


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


def is_one_row(rows: Array) -> bool:
    return bool((rows == rows[:1]).all())


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


def infinite(scores: Array) -> Array:
    """−∞ for what stands for it."""
    return np.where(scores <= HIDDEN, -np.inf, scores)


def stands_tokens_first(value: Array, merged: Array) -> bool:
    """True if an array has (token, batch, d) where we have (batch, token, d)."""
    batch, queries, width = merged.shape
    if batch == 1:
        return False
    if value.shape != (queries, batch, width):
        return False
    if batch != queries:
        return True
    return is_same(value.swapaxes(0, 1), merged)


def sequences(x: Array, batch: int) -> Array:
    """(batch, token, d) of rows that stand one behind the other."""
    if x.ndim == 2 and batch > 1 and len(x) % batch == 0:
        return x.reshape(batch, -1, x.shape[-1])
    return x


def drop_batch(steps: Steps) -> None:
    """Leave out the axis of batches, as there is one only."""
    rows_only = {X, MEMORY, CONCAT, OUTPUT, EMBEDDINGS, "Q", "K", "V"}
    for name, array in steps.arrays.items():
        if array.ndim == 4 or (array.ndim == 3 and name in rows_only and len(array) == 1):
            steps.arrays[name] = array[0]

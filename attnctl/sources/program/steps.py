"""An attention of a program as steps under our names, each with the expressions that make it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math.names import (
    BIAS,
    CONCAT,
    EMBEDDINGS,
    HEAD_OUTPUTS,
    MASKED,
    MEMORY,
    OUTPUT,
    SCALED,
    SINK,
    WEIGHTS,
    X,
)
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax, is_base_two
from attnctl.sources.program.lines import ChangeKind, classify
from attnctl.sources.program.masks import MaskReader
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Layout, Steps
from attnctl.sources.program.operands import OperandReader, settle_shared_heads
from attnctl.sources.program.origin import Origins
from attnctl.sources.program.outputs import OutputReader
from attnctl.sources.program.record import OF_MODULE
from attnctl.sources.program.relations import (
    HIDDEN,
    Array,
    is_near,
    ratio,
    rows_sum_to_one,
)
from attnctl.sources.program.visibility import (
    hidden_keys,
    shows_triangle,
)

SAYS_MODE = re.compile(r"^\s*\w[\w.\[\]]*\.(eval|train)\(\s*\)|=.*\.(eval)\(\s*\)\s*$")

SCORES, SOFTCAPPED, BIASED = "scores", "softcapped_scores", "biased_scores"


class StepReader:
    """Makes the steps of an attention; `asked` are the options that a person gave."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning, asked: Mapping[str, Any]) -> None:
        self.graph = graph
        self.origins = origins
        self.asked = dict(asked)
        self.operands = OperandReader(graph, origins, meaning, asked)
        self.masks = MaskReader(graph, meaning, asked)
        self.outputs = OutputReader(graph, origins, meaning)

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
            prescale *= self.operands.read(steps, name, layout)
        settle_shared_heads(steps)
        self.operands.settle_rotation(steps)
        self.operands.read_inputs(steps, batch)
        self.read_scores(steps, layout, prescale)
        if steps.dropped is None:
            steps.put(HEAD_OUTPUTS, layout.four(attention.arrays[HEAD_OUTPUTS]), [attention.output])
            self.outputs.read(steps, layout)
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
        if (x is not None and x.ndim == 2) or self.shows_heads(attention):
            return 1, size
        return size, 1

    def shows_heads(self, attention: Attention) -> bool:
        """True if the only axis before the rows is of heads: asked for, merged, with slopes or sinks."""
        if self.asked.get("heads") == attention.batch[0]:
            return True
        if attention.sink is not None:
            logits = np.asarray(attention.sink.array)
            return not (logits == logits[:1]).all()
        return self.are_merged(attention) or self.has_slopes(attention)

    def has_slopes(self, attention: Attention) -> bool:
        """True if what is added to its scores are ALiBi's slopes, one for each head."""
        for before, now in itertools.pairwise(attention.lines):
            if self.graph.op(now.n) not in ADDED or before.array.shape != now.array.shape:
                continue
            if shows_alibi(now.array.astype(float) - before.array):
                return True
        return False

    def are_merged(self, attention: Attention) -> bool:
        """True if the outputs come side by side in one matrix, as those of heads."""
        queries, width = attention.arrays[HEAD_OUTPUTS].shape[-2:]
        _, moves = self.outputs.follow_moves(attention)
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

    # --- scores and weights ---

    def read_scores(self, steps: Steps, layout: Layout, prescale: float) -> None:
        """What stands between Q Kᵀ and the second product, each array told by its numbers."""
        attention = steps.attention
        graph = self.graph
        if not attention.lines:
            self.masks.read_fused(steps, layout)
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
        if kept is not None and not self.drops_after_eval(lines[kept + 1][0]):
            steps.dropped = lines[kept + 1][0]
            steps.weight_events = [n for n, _ in lines[begins : kept + 1]]
            lines = lines[: kept + 1]
        weights = lines[-1][1]
        scored = None
        if begins:
            scored = lines[begins - 1][1]

        self.masks.read(steps, hidden_on_the_way(lines[:begins], scored, weights))
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
            self.let_unscaled(steps)
        if not attention.is_tiled:
            steps.put(WEIGHTS, weights, steps.weight_events)
        self.read_sink(steps, layout)

    def read_sink(self, steps: Steps, layout: Layout) -> None:
        """The logit of each head's sink, which the softmax reads beside the scores."""
        sink = steps.attention.sink
        if sink is None:
            return
        logits = layout.four(np.asarray(sink.array))
        of_heads = logits[0, :, 0, 0]
        if (logits == of_heads[:, None, None]).all():
            steps.put(SINK, of_heads, [sink.n])

    def let_unscaled(self, steps: Steps) -> None:
        """Scores with a relative bias need no scale: T5 has none, and no program shows what was meant."""
        if SCALED in steps.arrays or BIAS not in steps.arrays:
            return
        if is_relative(steps.arrays[BIAS]):
            steps.options["scale"] = 1.0
            steps.notes.append(
                "Its scores are not scaled, as T5's are not, which has a relative bias, too."
            )

    def drops_after_eval(self, n: int) -> bool:
        """True for F.dropout where the program said eval() last: without training= it goes on."""
        graph = self.graph
        event = graph.events[n]
        if event.function == OF_MODULE or not event.callers:
            return False
        outermost = event.callers[-1]
        before = graph.recording.files.get(outermost.file, "").split("\n")[: outermost.line]
        modes = [mode[1] or mode[2] for line in before if (mode := SAYS_MODE.search(line))]
        return modes[-1:] == ["eval"]

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
            if name == BIASED and BIAS in steps.arrays:
                # Two things that are added are one bias.
                steps.put(BIAS, steps.arrays[BIAS] + added.astype(now.dtype), [*steps.events[BIAS], n])
                return BIASED
            if shows_alibi(added):
                steps.options["positions"] = "alibi"
                return "alibi_scores"
            if BIAS not in steps.arrays and name in {SCORES, SCALED, SOFTCAPPED}:
                steps.put(BIAS, added.astype(now.dtype), [n])
                return BIASED
        if name != MASKED:
            return BIASED
        return MASKED


ADDED = frozenset({"+", "add", "in place +", "in place", "-", "where", "masked_fill", "baddbmm"})


@dataclass(frozen=True)
class CapShown:
    cap: float
    last: int
    """The line in which it ends."""


def hidden_on_the_way(lines: Sequence[tuple[int, Array]], scored: Array | None, weights: Array) -> Array:
    """The keys that are hidden before the softmax; of rows that are hidden whole, where that was written.

    Nothing is left of such a row once its maximum is taken off.
    """
    hidden = hidden_keys(scored, weights)
    if hidden.any():
        return hidden
    for _, line in lines:
        off = line <= HIDDEN
        if off.any():
            return off
    return hidden


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


def is_relative(bias: Array) -> bool:
    """True if a bias depends on how far query and key are apart, and on nothing else."""
    if bias.shape[-1] != bias.shape[-2] or bias.shape[-1] < 3:
        return False
    return is_near(bias[..., 1:, 1:], bias[..., :-1, :-1])


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


def infinite(scores: Array) -> Array:
    """−∞ for what stands for it."""
    return np.where(scores <= HIDDEN, -np.inf, scores)


def drop_batch(steps: Steps) -> None:
    """Leave out the axis of batches, as there is one only."""
    rows_only = {X, MEMORY, CONCAT, OUTPUT, EMBEDDINGS, "Q", "K", "V"}
    for name, array in steps.arrays.items():
        if array.ndim == 4 or (array.ndim == 3 and name in rows_only and len(array) == 1):
            steps.arrays[name] = array[0]

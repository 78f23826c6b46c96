"""An attention of a program as steps under our names, each with the expressions that make it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
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
    SINK,
    WEIGHTS,
    X,
)
from attnctl.math.rules import alibi_slopes
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax, is_base_two
from attnctl.sources.program.lines import ChangeKind, LineChange, classify
from attnctl.sources.program.masks import MaskReader, sees_other_regions_only
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Layout, Steps
from attnctl.sources.program.operands import OperandReader
from attnctl.sources.program.origin import BENT, Origins
from attnctl.sources.program.outputs import OutputReader
from attnctl.sources.program.projected import heads_repeated, match_columns
from attnctl.sources.program.record import OF_LINEAR, OF_MODULE, TRAINING
from attnctl.sources.program.relations import (
    HIDDEN,
    Array,
    hidden_in_effect,
    is_near,
    is_same,
    ratio,
    rows_sum_to_one,
    softmax,
)
from attnctl.sources.program.unread import UnreadReader
from attnctl.sources.program.visibility import (
    hidden_keys,
    shows_triangle,
)

SAYS_MODE = re.compile(r"^\s*\w[\w.\[\]]*\.(eval|train)\(\s*\)|=.*\.(eval)\(\s*\)\s*$")

NEAR_ONE = 1e-4
"""How far a factor may be off what it is said to be."""

FAR_FROM_ONE = 0.9
"""Up to where a tanh has digits enough to tell what it is of."""

SUBTRACTED = frozenset({"-", "subtract", "sub"})

MOST_DROPPED = 0.9
"""The share of all weights that dropout makes 0; where more are, they were hidden."""

LEAST_NOTICED = 1e-20
"""A weight below this changes no sum of weights and values in any type."""

SCORES, SOFTCAPPED, BIASED = "scores", "softcapped_scores", "biased_scores"
ALIBI, ALIBI_ASKED = "alibi_scores", "alibi"


class StepReader:
    """Makes the steps of an attention; `asked` are the options that a person gave."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning, asked: Mapping[str, Any]) -> None:
        self.graph = graph
        self.origins = origins
        self.asked = dict(asked)
        self.operands = OperandReader(graph, origins, meaning, asked)
        self.masks = MaskReader(graph, meaning, asked)
        self.unread = UnreadReader(graph, origins, meaning)
        self.outputs = OutputReader(graph, origins, meaning)

    def read(self, attention: Attention) -> Steps:
        """The steps of an attention. Raises ValueError, KeyError or IndexError for what does not fit."""
        if self.is_over_heads(attention):
            attention = tokens_behind_heads(attention)
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
        self.unread.settle(steps)
        self.operands.settle_shared_heads(steps)
        self.operands.settle_rotation(steps)
        self.operands.read_inputs(steps, batch)
        steps.prescale = prescale
        self.read_scores(steps, layout, prescale)
        if steps.dropped is None:
            steps.put(HEAD_OUTPUTS, layout.four(attention.arrays[HEAD_OUTPUTS]), [attention.output])
            self.outputs.read(steps, layout)
        if batch == 1:
            drop_batch(steps)
        return steps

    def is_over_heads(self, attention: Attention) -> bool:
        """True if the rows of each attention are the heads of one token, which nobody moved behind these.

        What a token was projected to lies in one attention then, taken apart into its rows.
        """
        for name in "QK":
            array = attention.arrays[name]
            origins = attention.origins.get(name)
            projection = origins[0].projection if origins else None
            if projection is None or array.ndim < 3 or min(array.shape[-3:-1]) < 2:
                return False
            tokens = array.reshape(-1, array.shape[-2] * array.shape[-1])
            if projection.rows.shape[1] != tokens.shape[1]:
                return False
            if match_columns(projection.rows.T, tokens.T) is None:
                return False
        return True

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
        if shares_keys(attention):
            return True
        return self.are_merged(attention) or self.has_slopes(attention) or self.has_sinks(attention)

    def has_sinks(self, attention: Attention) -> bool:
        """True if each of them has a sink of its own among the sums of its softmax."""
        begins = begins_softmax(self.graph, attention.lines)
        if not begins:
            return False
        arrays = [np.asarray(line.array) for line in attention.lines]
        scores = arrays[before_shifts(arrays, begins)].astype(float)
        return sinks_shown(scores[None], np.asarray(attention.lines[-1].array)[None]) is not None

    def has_slopes(self, attention: Attention) -> bool:
        """True if what is added to its scores are ALiBi's slopes, one for each head."""
        for before, now in itertools.pairwise(attention.lines):
            if self.graph.op(now.n) not in ADDED or before.array.shape != now.array.shape:
                continue
            added = now.array.astype(float) - before.array
            if shows_alibi(added) or favours_far_keys(added):
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
                return self.origins.tokens(projection)
        return None

    # --- scores and weights ---

    def read_scores(self, steps: Steps, layout: Layout, prescale: float) -> None:
        """What stands between Q Kᵀ and the second product, each array told by its numbers."""
        attention = steps.attention
        graph = self.graph
        if attention.over_heads:
            self.read_over_heads(steps)
            return
        if not attention.lines:
            self.masks.read_fused(steps, layout)
            share = attention.arguments.get("dropout_p")
            if isinstance(share, float) and share > 0 and not self.drops_after_eval(attention.output):
                steps.dropped = attention.output
            return

        lines = [(line.n, layout.four(np.asarray(line.array))) for line in attention.lines]
        begins = begins_softmax(graph, attention.lines)
        if is_base_two(graph, attention.lines, begins):
            # exp2 takes scores that are multiplied by log2(e).
            in_base_e = [(n, (array * np.log(2)).astype(array.dtype)) for n, array in lines[:begins]]
            lines[:begins] = in_base_e
            prescale *= 1 / np.log2(np.e)
        lines = self.with_what_is_hidden(steps, lines, begins)
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

        scores = [line for _, line in lines[:begins] if line.shape == weights.shape]
        written = (
            np.any([line <= HIDDEN for line in scores], axis=0) if scores else np.zeros(weights.shape, bool)
        )
        self.masks.read(steps, hidden_on_the_way(lines[:begins], scored, weights), written)
        name = SCALED
        if prescale == 1.0 and attention.factor == 1.0:
            name = SCORES
        first_n, before = lines[0]
        if (before <= HIDDEN).any():
            # Keys are missing from the first line on, as in rows of a growing cache: only the scores
            # that the softmax reads have a name then.
            last_n, last = lines[before_shifts([array for _, array in lines], begins)]
            steps.put(MASKED, infinite(last), [last_n])
            steps.scale_events += self.scaled_in(lines[:begins])
        else:
            steps.put(name, before, [first_n])
            self.read_lines(steps, lines, begins, name)
            self.let_unscaled(steps)
        if not attention.is_tiled:
            steps.put(WEIGHTS, weights, steps.weight_events)
        self.read_sink(steps, layout)

    def read_over_heads(self, steps: Steps) -> None:
        """What is meant to be hidden, of scores that are none of tokens: these have no name."""
        steps.score_events = list(steps.attention.over_heads)
        steps.triangle = self.masks.triangle_at(steps.score_events)
        if steps.triangle is not None or self.asked.get("causal"):
            steps.options["causal"] = True

    def with_what_is_hidden(
        self, steps: Steps, lines: list[tuple[int, Array]], begins: int
    ) -> list[tuple[int, Array]]:
        """The lines with −∞, and weights of 0, where a mask of −100, say, hides keys as well as that."""
        for number in range(1, begins):
            before = lines[number - 1][1]
            now = lines[number][1]
            if before.shape != now.shape:
                continue
            with np.errstate(all="ignore"):
                off = hidden_in_effect(now.astype(float) - before)
            if off is None or (before <= HIDDEN).any() or (now <= HIDDEN).any():
                continue
            if lines[-1][1].shape != off.shape:
                continue
            if lines[-1][1][off].max() > LEAST_NOTICED and not sees_other_regions_only(off):
                continue
            steps.note(
                f"Its mask adds {float(now[off][0] - before[off][0]):.4g}, which hides as well as −∞."
            )
            scores = [(n, np.where(off, -np.inf, array)) for n, array in lines[number:begins]]
            weights = lines[begins:]
            if not sees_other_regions_only(off):
                weights = [(n, np.where(off, 0.0, array)) for n, array in weights]
            return [*lines[:number], *scores, *weights]
        return lines

    def read_sink(self, steps: Steps, layout: Layout) -> None:
        """The logit of each head's sink, which the softmax reads beside the scores."""
        sink = steps.attention.sink
        if sink is None:
            self.read_sink_in_sums(steps)
            return
        logits = layout.four(np.asarray(sink.array))
        of_heads = logits[0, :, 0, 0]
        if (logits == of_heads[:, None, None]).all():
            steps.put(SINK, of_heads, [sink.n])

    def read_sink_in_sums(self, steps: Steps) -> None:
        """The logits of sinks that were added to each row's sum by hand, exp(sink) among the others."""
        scored = [name for name in steps.arrays if name.endswith("scores")]
        if not scored or WEIGHTS not in steps.arrays:
            return
        of_heads = sinks_shown(steps.arrays[scored[-1]].astype(float), steps.arrays[WEIGHTS])
        if of_heads is None:
            return
        for n in self.graph.events:
            if n >= steps.attention.output or not self.graph.has_value(n):
                continue
            value = self.graph.value(n)
            if value.size == of_heads.size and is_near(value.reshape(-1), of_heads, 1e-3):
                steps.put(SINK, value.reshape(-1), [n])
                return
            if self.holds_sinks(n, of_heads):
                steps.put(SINK, of_heads.astype(value.dtype), [n])
                return

    def holds_sinks(self, n: int, of_heads: Array) -> bool:
        """True for a vector, no product, with the logit of the one head that is carried out."""
        value = self.graph.value(n)
        if of_heads.size > 1 or value.ndim != 1 or value.dtype.kind != "f" or self.graph.product(n):
            return False
        return bool((np.abs(value - of_heads) <= NEAR_ONE * np.abs(of_heads)).any())

    def let_unscaled(self, steps: Steps) -> None:
        """Scores that need no scale, where no program shows what was meant: T5's, Luong's, Gemma 2's."""
        if SCALED in steps.arrays:
            for let in (self.let_absorbed, self.let_temperature, self.let_number_of_its_own):
                if let(steps):
                    return
        elif BIAS in steps.arrays and is_relative(steps.arrays[BIAS]):
            steps.options["scale"] = 1.0
            steps.note("Its scores are not scaled, as T5's are not, which has a relative bias, too.")
        elif self.reads_states(steps.attention):
            steps.options["scale"] = 1.0
            steps.note("Its scores are not scaled, as Luong's are not, whose keys are its values.")

    def let_number_of_its_own(self, steps: Steps) -> bool:
        """Take 1 / √N as meant beside a softcap, of an N that is no size here: Gemma 2 says its own."""
        if "softcap" not in steps.options or "scale" in steps.options:
            return False
        scale = scale_shown(steps)
        meant = round(1 / scale**2) if scale > 0 else 0
        if meant < 2 or meant in widths_of(steps) or abs(scale * np.sqrt(meant) - 1) > 1e-5:
            return False
        steps.options["scale"] = float(1 / np.sqrt(meant))
        steps.note(
            f"Its scores are divided by √{meant}, a number of its own, as Gemma 2's are: taken as meant."
        )
        return True

    def let_absorbed(self, steps: Steps) -> bool:
        """Take 1 / √N as meant of queries, N columns wide, that were multiplied by the weight of the keys.

        DeepSeek's latent attention is carried out so: q (c W_UK)ᵀ as (q W_UKᵀ) cᵀ.
        """
        graph = self.graph
        absorbed = graph.product(steps.attention.origins["Q"][0].last)
        if absorbed is None or not any(map(graph.product, (absorbed.left, absorbed.right))):
            return False
        width = graph.summed_width(absorbed)
        if width in widths_of(steps) or abs(scale_shown(steps) * np.sqrt(width) - 1) >= 1e-5:
            return False
        steps.options["scale"] = float(1 / np.sqrt(width))
        steps.note(f"Its queries, {width} columns wide, are multiplied by the weight of the keys.")
        return True

    def let_temperature(self, steps: Steps) -> bool:
        """Take a number as meant that scores, or Q and K, are multiplied by besides 1 / √d_k."""
        begins = begins_softmax(self.graph, steps.attention.lines)
        if is_base_two(self.graph, steps.attention.lines, begins):
            return False  # log2(e) is no temperature
        lines = steps.attention.lines[:begins]
        if lines[0].array.size == 1:
            return False
        scales = [steps.prescale, steps.attention.factor]
        for number, (before, now) in enumerate(itertools.pairwise(lines), 1):
            scale = ratio(before.array, now.array)
            is_of_cap = self.graph.op(lines[min(number + 1, begins - 1)].n) == "tanh"
            if not scale or is_of_cap:
                break  # a cap, a bias: what comes behind it is no factor of the scores
            scales.append(scale)
        factors = [scale for scale in scales if scale != 1.0]
        if len(factors) != 2:
            return False
        root = np.sqrt(steps.arrays["Q"].shape[-1])
        own = [factor for factor in factors if abs(factor * root - 1) > NEAR_ONE]
        if len(own) != 1:
            return False
        widths = [power for width in widths_of(steps) for power in (width, width**0.5)]
        if any(abs(own[0] * each - 1) <= NEAR_ONE or abs(own[0] / each - 1) <= NEAR_ONE for each in widths):
            return False  # a width is what scores are divided or multiplied by in error
        steps.options["scale"] = float(np.prod(factors))
        steps.note(f"Its scores are divided by {1 / own[0]:.4g} besides: a temperature, taken as meant.")
        return True

    def reads_states(self, attention: Attention) -> bool:
        """True if a network's state asks others, as Luong's does: K is V itself or a projection of it."""
        of_q, of_k, of_v = (attention.origins[name][0] for name in "QKV")
        arrays = attention.arrays
        is_read_as_it_is = all(origin.projection is None for origin in (of_q, of_k, of_v))
        if is_read_as_it_is and is_same(arrays["K"], arrays["V"]) and not is_same(arrays["Q"], arrays["K"]):
            return True  # states are asked by others, and answer
        if of_q.projection is not None or of_v.projection is not None or of_q.last == of_v.last:
            return False
        if not any(self.graph.op(origin.path[-1]) in BENT for origin in (of_q, of_v)):
            return False
        if of_k.projection is None:
            return of_k.last == of_v.last
        return is_same(self.origins.tokens(of_k.projection), self.graph.value(of_v.last))

    def drops_after_eval(self, n: int) -> bool:
        """True for F.dropout in a module that is not training: without training= it goes on."""
        graph = self.graph
        event = graph.events[n]
        if event.function in {OF_LINEAR, OF_MODULE} or not event.callers:
            return False
        is_training = self.mode_around(n)
        if is_training is not None:
            return not is_training
        outermost = event.callers[-1]
        before = graph.recording.files.get(outermost.file, "").split("\n")[: outermost.line]
        modes = [mode[1] or mode[2] for line in before if (mode := SAYS_MODE.search(line))]
        return modes[-1:] == ["eval"]

    def mode_around(self, n: int) -> bool | None:
        """Whether the module was training whose call an event stands in; None where none is known."""
        graph = self.graph
        around = graph.events[n].callers[1:]
        for m, event in graph.events.items():
            if m <= n:
                continue
            if event.site == graph.events[n].site:
                break  # another call: what told of this one was not kept
            if TRAINING not in event.arguments:
                continue
            sites = [graph.sites[site] for site in (event.site, *event.returned_at)]
            if any((site.file, site.line) in around for site in sites):
                return bool(event.arguments[TRAINING])
        return None

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
            if now.size == 1 and self.graph.op(n) in SUBTRACTED:
                # One number is any other's multiple, too.
                change = LineChange(ChangeKind.SHIFT, before.astype(float) - now)
            if change.kind is ChangeKind.SHIFT:
                shift = shift + change.shift
            elif change.kind is not ChangeKind.NONE:
                name = self.name_of(steps, n, change.kind, (before, now), name)
                if name == ALIBI and steps.events.get(ALIBI) is None:
                    # Written by the key alone it is another number in each row, which no softmax sees.
                    shift = shift - own_keys(now.astype(float) - before)
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
            if name == BIASED and self.is_made_of_operands(steps):
                factor = ratio(*arrays)
                steps.arrays[BIAS] = (steps.arrays[BIAS] * factor).astype(steps.arrays[BIAS].dtype)
                steps.note("What is added is made of its queries, as Shaw's: scaled with the scores.")
            return name
        if kind is ChangeKind.MASK:
            self.put_bias_beside_mask(steps, n, *arrays, name)
            return MASKED
        return self.read_other(steps, n, *arrays, name)

    def is_made_of_operands(self, steps: Steps) -> bool:
        """True if what is added to the scores is a product of Q or K, as with vectors by distance."""
        graph = self.graph
        attention = steps.attention
        operands = {n for name in "QK" for origin in attention.origins[name] for n in origin.path}
        for n in steps.events.get(BIAS, ()):
            for parent in graph.parents(n):
                if parent != attention.product and operands & {*graph.ancestors(parent)}:
                    return True
        return False

    def put_bias_beside_mask(self, steps: Steps, n: int, before: Array, now: Array, name: str) -> None:
        """The bias that was added in one array with a mask, as T5's decoder has it."""
        hidden = (now <= HIDDEN) | (before <= HIDDEN)
        if self.graph.op(n) not in ADDED or BIAS in steps.arrays or hidden.all():
            return
        if name not in {SCORES, SCALED, SOFTCAPPED} or self.asked.get("positions") == ALIBI_ASKED:
            return
        with np.errstate(all="ignore"):
            added = np.where(hidden, 0, now.astype(float) - before)
        if shows_alibi(added) or is_alibi_of_keys(added):
            steps.options["positions"] = ALIBI_ASKED
        elif np.abs(added).max() > 1e-6 * np.abs(before[~hidden]).max() and not ratio(
            before[~hidden], now[~hidden]
        ):
            steps.put(BIAS, added.astype(now.dtype), [n])

    def softcap_at(self, lines: Sequence[tuple[int, Array]], number: int, begins: int) -> CapShown | None:
        """A cap, c · tanh(s / c), that begins at this line."""
        for tanh in range(number, min(number + 2, begins)):
            if self.graph.op(lines[tanh][0]) != "tanh":
                continue
            capped = lines[tanh][1]
            far_from_one = np.abs(capped) < FAR_FROM_ONE
            scale = ratio(lines[number - 1][1][far_from_one], np.arctanh(capped[far_from_one]))
            after = tanh + 1
            if after < begins and ratio(lines[tanh][1], lines[after][1]) and scale:
                cap = ratio(lines[tanh][1], lines[after][1])
                if abs(cap * scale - 1) < 1e-2:
                    return CapShown(float(f"{cap:.6g}"), after)
        return self.cap_without_tanh(lines, number, begins)

    def cap_without_tanh(
        self, lines: Sequence[tuple[int, Array]], number: int, begins: int
    ) -> CapShown | None:
        """A cap that divides scores and multiplies them again, as nobody does but for what is between."""
        if number + 1 >= begins:
            return None
        before, divided, again = (line for _, line in lines[number - 1 : number + 2])
        share = ratio(before, divided)
        cap = ratio(divided, again)
        if not 0 < share < 1 or abs(share * cap - 1) > 1e-6:
            return None
        return CapShown(float(f"{cap:.6g}"), number + 1)

    def is_added_again(self, steps: Steps, n: int) -> bool:
        """True if what is added to the scores is the array that was added to them before."""
        earlier = steps.events.get(BIAS)
        if not earlier:
            return False
        graph = self.graph
        both = {*graph.parents(earlier[-1])} & {*graph.parents(n)}
        return any(graph.value(m).shape[-2:] == graph.value(n).shape[-2:] for m in both)

    def read_other(self, steps: Steps, n: int, before: Array, now: Array, name: str) -> str:
        """What is no factor and hides nothing: a bias that is added, or a mask that was multiplied."""
        graph = self.graph
        if graph.op(n) in {"*", "multiply", "mul", "where"} and steps.options.get("causal"):
            return MASKED
        zeroed = keys_made_zero(before, now)
        if zeroed is not None and MASK not in steps.arrays:
            steps.put(MASK, ~zeroed, [n])
            return MASKED
        finite = np.isfinite(before) & np.isfinite(now)
        if finite.all() and self.asked.get("positions") != ALIBI_ASKED and graph.op(n) in ADDED:
            added = now.astype(float) - before
            if self.is_added_again(steps, n):
                return BIASED
            if name == BIASED and BIAS in steps.arrays:
                # Two things that are added are one bias.
                steps.put(BIAS, steps.arrays[BIAS] + added.astype(now.dtype), [*steps.events[BIAS], n])
                return BIASED
            if shows_alibi(added) or favours_far_keys(added):
                steps.options["positions"] = ALIBI_ASKED
                return ALIBI
            if BIAS not in steps.arrays and name in {SCORES, SCALED, SOFTCAPPED}:
                steps.put(BIAS, added.astype(now.dtype), [n])
                return BIASED
        if name != MASKED:
            return BIASED
        return MASKED


def keys_made_zero(before: Array, now: Array) -> Array | None:
    """Where scores of some keys, for all queries, were multiplied by 0, as if that would hide these."""
    zeroed = (now == 0) & (before != 0)
    of_all_queries = np.broadcast_to(zeroed.any(axis=-2, keepdims=True), zeroed.shape)
    if not zeroed.any() or zeroed.all() or not np.array_equal(zeroed, of_all_queries):
        return None
    return zeroed if np.array_equal(before[~zeroed], now[~zeroed]) else None


def shares_keys(attention: Attention) -> bool:
    """True if keys and values are repeated along the axis before the rows, as for heads of a group."""
    keys, values = (attention.arrays[name][None] for name in "KV")
    return heads_repeated(keys, values, keys.shape[1]) is not None


def tokens_behind_heads(attention: Attention) -> Attention:
    """An attention over the heads of each token, laid out as was meant: its scores are none of these."""
    arrays = {name: array.swapaxes(-3, -2) for name, array in attention.arrays.items()}
    batch = [*attention.batch[:-1], arrays["Q"].shape[-3]]
    events = tuple(line.n for line in attention.lines) or (attention.product,)
    return replace(attention, arrays=arrays, batch=batch, lines=[], over_heads=events)


def sinks_shown(scores: Array, weights: Array) -> Array | None:
    """The logit of each head, (head,), that takes what a row's sum lacks of 1; None where none does."""
    if scores.shape != weights.shape:
        return None
    kept = weights.sum(-1)
    if not ((kept > 0) & (kept < 1 - 1e-4)).all():
        return None
    if not is_near(weights, softmax(scores) * kept[..., None], 1e-3):
        return None
    top = scores.max(-1)
    sums = top + np.log(np.exp(scores - top[..., None]).sum(-1))
    logits = sums + np.log(1 / kept - 1)
    of_heads: Array = logits.mean(axis=(0, 2))
    if np.abs(logits - of_heads[:, None]).max() > 1e-3 * max(1.0, float(np.abs(of_heads).max())):
        return None
    return of_heads


def own_keys(added: Array) -> Array:
    """What is added where a query sees its own key, (…, query, 1)."""
    return np.diagonal(added, axis1=-2, axis2=-1)[..., None]


def is_alibi_of_keys(added: Array) -> bool:
    """True for ALiBi written by the key alone: another number in each row, which no softmax sees."""
    queries, keys = added.shape[-2:]
    return queries == keys and shows_alibi(added - own_keys(added))


def favours_far_keys(added: Array) -> bool:
    """True for a bias that, less that of a query's own key, is ALiBi's with its sign turned."""
    heads, queries, keys = added.shape[-3:]
    if queries < 3 or keys != queries:
        return False
    own = own_keys(added)
    slopes = alibi_slopes(heads)
    distance = np.arange(queries)[:, None] - np.arange(keys)
    expected: Array = np.broadcast_to(slopes[:, None, None] * distance, added.shape)
    lower: Array = np.tri(queries, keys, dtype=bool)
    return bool(np.allclose((added - own)[..., lower], expected[..., lower], rtol=1e-3, atol=1e-6))


def before_shifts(lines: Sequence[Array], begins: int) -> int:
    """The last line before a softmax from which nothing was taken off row by row, as maxima are."""
    number = max(begins - 1, 0)
    while number:
        before = lines[number - 1]
        now = lines[number]
        if before.shape != now.shape or classify(before, now).kind is not ChangeKind.SHIFT:
            break
        number -= 1
    return number


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
        dropped = ~kept & (before != 0)
        if not dropped.any() or not kept.any():
            continue
        factor = ratio(before[kept], now[kept])
        # A triangle of zeros is a mask that comes late.
        is_late_mask = shows_triangle(dropped) or dropped.mean() >= MOST_DROPPED
        if factor > 1 and not is_late_mask and not rows_sum_to_one(now):
            return number
    return None


def scale_shown(steps: Steps) -> float:
    """By what Q Kᵀ is multiplied, on the way to it and since."""
    if SCORES in steps.arrays:
        return ratio(steps.arrays[SCORES], steps.arrays[SCALED])
    return steps.prescale * steps.attention.factor


def widths_of(steps: Steps) -> set[int]:
    """The sizes of a token's vector and of a query."""
    return {steps.arrays[name].shape[-1] for name in (X, MEMORY, "Q") if name in steps.arrays}


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
    usual = alibi_slopes(heads)
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

"""Finds every attention of a program: two products, with a softmax between them.

The numbers of Q Kᵀ flow through a softmax into the second product, with V. Each array on the way is laid
out as (batch…, query, ·) by following its axes. Names settle only what numbers leave open: which is Q.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.sources.program.called import is_k, is_q
from attnctl.sources.program.graph import GATHERED, MOST_DIGITS, SOFT, Graph, Product
from attnctl.sources.program.origin import Origin, Origins
from attnctl.sources.program.record import Event
from attnctl.sources.program.relations import (
    Array,
    Labels,
    is_near,
    is_same,
    multiply,
    orders,
    ratio,
    rows_sum_to_one,
)

MOVES = frozenset(
    {"T", "mT", "transpose", "swapaxes", "permute", "moveaxis", "swapdims", "movedim", "rearrange"}
)

FUSED = "scaled_dot_product_attention"
FUSED_OF_JAX = "dot_product_attention"
MODULE = "MultiheadAttention"

DEEPEST = 80
"""Expressions between the two products."""

MOST_TRIED_AT_ONCE = 4
"""Rows of one expression that are sought among outputs: where these are none, the others are none."""

KEYS_FIRST, SINK_FIRST = slice(None, -1), slice(1, None)
"""The columns of keys beside that of a sink, which is the last one as a rule."""

NEAR_VALUES = 3
"""Arrays behind values that are looked at: values are made of no weights of their own."""

REDUCED = frozenset({"max", "amax", "min", "amin", "sum", "mean"})

SUMMED = "feature"
"""The axis of Q and K that the first product sums over."""


class ScoreLine(NamedTuple):
    """An array between the two products, laid out as (batch…, query, key)."""

    n: int
    array: Array


class Way(NamedTuple):
    """From the scores to the second product."""

    output: int
    chain: list[int]
    """The product of Q and K, and what became of it, up to the weights."""
    second: Product
    is_left: bool
    """True if the weights stand at its left."""


class SecondAxes(NamedTuple):
    """V, and the axes of the second product under the names that the scores have."""

    v: int
    v_axes: Labels
    out_axes: Labels


class ScoreSides(NamedTuple):
    """The axis of rows that each operand of the first product has to itself: of queries, or of keys."""

    left: str
    right: str
    group: str | None
    """The axis of the heads that share keys, where queries have one for these."""


@dataclass
class Attention:
    """One attention as the program computed it, or several of a loop joined."""

    product: int
    """The event of Q Kᵀ."""
    output: int
    """The event of A V."""
    arrays: dict[str, Array] = field(default_factory=dict)
    """Q, K, V and head_outputs, (batch…, rows, d)."""
    batch: list[int] = field(default_factory=list)
    """The sizes of the axes before the rows: none, batch or head, or both."""
    lines: list[ScoreLine] = field(default_factory=list)
    origins: dict[str, list[Origin]] = field(default_factory=dict)
    """Of Q, K and V; one for each head of a loop."""
    factor: float = 1.0
    """What the first product is multiplied by already."""
    parts: list[Attention] = field(default_factory=list)
    """The heads or rows of a loop that were joined."""
    joined: int | None = None
    """The event in which these come together."""
    is_tiled: bool = False
    """True if it read some keys at a time: its weights were never there as a whole."""
    sink: ScoreLine | None = None
    """The logits of a sink that the softmax reads beside the scores, as wide as these."""
    over_heads: tuple[int, ...] = ()
    """Its scores, where these are of the heads of each token with each other: none of tokens."""
    sums_queries: bool = False
    """True where its second product sums over queries, as a backward pass does, or weights transposed."""
    suspect: int | None = None
    """Of tiles the first running sum that is not what it should be."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """What a library's attention was given beside arrays."""

    @property
    def events(self) -> Iterator[int]:
        yield self.product
        yield from (line.n for line in self.lines)
        yield self.output


def join_heads(attention: Attention) -> None:
    """Lay out both axes before the rows as one: heads in groups, one behind the other."""

    def join(array: Array) -> Array:
        return array.reshape(-1, *array.shape[2:])

    attention.batch = [int(np.prod(attention.batch))]
    attention.arrays = {name: join(array) for name, array in attention.arrays.items()}
    attention.lines = [ScoreLine(line.n, join(np.asarray(line.array))) for line in attention.lines]
    if attention.sink is not None:
        attention.sink = ScoreLine(attention.sink.n, join(np.asarray(attention.sink.array)))


def without_backward(found: Sequence[Attention]) -> list[Attention]:
    """Those of a forward pass: what weights that are read as they are give transposed are gradients."""
    forward = {attention.product for attention in found if not attention.sums_queries}
    return [each for each in found if not each.sums_queries or each.product not in forward]


def is_of_gradients(weights: Array) -> bool:
    """True for gradients of scores: a softmax's come to 0 in each row, whatever the loss is."""
    if weights.dtype.kind != "f" or weights.ndim < 2:
        return False
    sizes = np.abs(weights)
    for axis in (-1, -2):
        size = sizes.sum(axis)
        if size.any() and (np.abs(weights.sum(axis)) <= 1e-4 * size).all():
            return True
    return False


class Unread(Exception):  # noqa: N818  (a reason, no accident)
    """Why an attention that was found is laid out as nothing here knows."""


class NoAttention(Exception):  # noqa: N818  (a reason, no accident)
    """What stands beside an attention, and is none by itself."""


class AttentionFinder:
    """Finds the attentions in a graph; `unread` are those that it cannot lay out, and why."""

    def __init__(self, graph: Graph, origins: Origins) -> None:
        self.graph = graph
        self.origins = origins
        self.unread: list[tuple[int, str]] = []

    def attentions(self) -> list[Attention]:
        found: list[Attention] = []
        for n in [*self.graph.events]:
            if not self.graph.has_value(n):
                continue
            attention = self.attention_at(n)
            if attention is not None:
                found.append(attention)
        return found or self.made_at_once()

    def made_at_once(self) -> list[Attention]:
        """Where there is no other: rows of output that loops made of single numbers."""
        graph = self.graph
        found: list[Attention] = []
        tried: Counter[int] = Counter()
        for n in [*graph.events]:
            site = graph.events[n].site
            row = self.row_of(n)
            if row is None or tried[site] == MOST_TRIED_AT_ONCE:
                continue
            if graph.note_output_of_loop(row):
                attention = self.attention_at(row)
                if attention is not None:
                    found.append(attention)
            else:
                tried[site] += 1
        return found

    def row_of(self, n: int) -> int | None:
        """A row that loops made of single numbers; of a matrix whose rows are all one, that one."""
        graph = self.graph
        if not graph.has_value(n) or not graph.is_float(n) or not graph.is_searched(n):
            return None
        value = graph.value(n)
        if value.ndim == 1:
            return n
        is_one = value.ndim == 2 and len(value) > 1 and bool((value == value[:1]).all())
        return graph.make_event(n + 1, n, value[0], [n]) if is_one and value[0].any() else None

    def attention_at(self, n: int) -> Attention | None:
        """The attention whose last product, or whose only call, this event is."""
        graph = self.graph
        if graph.op(n) in {FUSED, FUSED_OF_JAX, MODULE} and graph.events[n].arguments:
            return self.noting_why(n, partial(self.read_call, n))
        second = graph.product(n)
        if second is None:
            return None

        sides = (second.left, second.right, True), (second.right, second.left, False)
        for weights, v, is_left in sides:
            chain = self.without_partial(self.chain(weights, {}))
            if not chain:
                continue
            if not self.is_attention(chain, v) or is_of_gradients(graph.value(chain[-1])):
                continue
            if {*chain} & {*graph.ancestors(v, most=NEAR_VALUES)}:
                continue  # weights with what was made of them, as in an entropy
            # Without a softmax it may be something else that merely looks like one.
            is_sure = any(graph.op(line) in SOFT for line in chain)
            return self.noting_why(n, partial(self.read, Way(n, chain, second, is_left)), is_sure=is_sure)
        return None

    def noting_why(
        self, n: int, read: Callable[[], Attention | None], *, is_sure: bool = True
    ) -> Attention | None:
        """Read an attention, or note why it cannot be laid out."""
        try:
            return read()
        except NoAttention:
            return None
        except Unread as reason:
            why = str(reason)
        except (ValueError, KeyError, IndexError) as error:
            why = f"its arrays do not fit together ({error})"
        if is_sure:
            self.unread.append((n, why))
        return None

    def read_call(self, n: int) -> Attention | None:
        """A call of a library's own attention."""
        if self.graph.op(n) == MODULE:
            return self.read_module(n)
        return self.read_fused(n)

    # --- between the products ---

    def chain(self, n: int, known: dict[int, list[int]], depth: int = 0) -> list[int]:
        """The longest way back, through arrays of as many numbers, to a product."""
        if n in known or depth > DEEPEST:
            return known.get(n, [])
        graph = self.graph
        known[n] = []
        is_opaque = graph.is_opaque(n) or graph.op(n) in GATHERED
        product = graph.product(n)
        if product and (not is_opaque or {product.left, product.right} <= {*graph.parents(n)}):
            known[n] = [n]
            return [n]

        value = graph.value(n)
        near = [
            parent
            for parent in graph.parents(n)
            if graph.value(parent).size == value.size
            and graph.value(parent).ndim > 0
            and graph.value(parent).dtype.kind != "b"  # a mask, whatever it was made of
            and graph.op(parent) not in REDUCED  # of a single key its maximum is as large as the scores
        ]
        if value.ndim > 1:
            near = [p for p in near if graph.value(p).ndim > 1]
            near += [p for p in graph.parents(n) if self.is_beside_sink(p, n) or self.is_beside_sink(n, p)]
        if is_opaque and not any(self.chain(parent, known, depth + 1) for parent in near):
            if graph.product(n):
                known[n] = [n]
                return [n]
            scores = graph.softened(n)
            near = []
            if scores is not None:
                near = [scores]
        ways = [self.chain(parent, known, depth + 1) for parent in near]
        longest = max(ways, key=len, default=[])
        known[n] = [*longest, n] if longest else []
        return known[n]

    def keys_beside_sink(self, scores: int, wider: int) -> slice | None:
        """The columns of an array that are all of another, as scores stand beside a sink's logit."""
        value = self.graph.value(scores)
        other = self.graph.value(wider)
        if value.ndim < 2 or other.shape != (*value.shape[:-1], value.shape[-1] + 1):
            return None
        return next(
            (columns for columns in (KEYS_FIRST, SINK_FIRST) if is_same(other[..., columns], value)), None
        )

    def is_beside_sink(self, scores: int, wider: int) -> bool:
        return self.keys_beside_sink(scores, wider) is not None

    def without_sink(self, chain: list[int]) -> tuple[list[int], int | None]:
        """A chain of scores and weights of keys alone, and the logits of a sink, as wide, if it has one."""
        graph = self.graph
        for scores, begins in itertools.pairwise(chain):
            of_keys = self.keys_beside_sink(scores, begins)
            if of_keys is not None:
                break
        else:
            return chain, None

        wider = graph.value(begins)
        width = wider.shape[-1]
        kept: list[int] = []
        for n in chain:
            if n == begins:
                continue
            is_wider = graph.value(n).shape[-1] == width
            kept.append(self.made_of_keys(n, of_keys) if is_wider else n)
        of_sink = slice(-1, None) if of_keys == KEYS_FIRST else slice(0, 1)
        logits = np.broadcast_to(wider[..., of_sink], (*wider.shape[:-1], width - 1))
        return kept, graph.make_event(begins + 1, begins, logits, [begins])

    def made_of_keys(self, n: int, of_keys: slice) -> int:
        """An event of an array without the column of a sink."""
        narrower = self.graph.value(n)[..., of_keys]
        return self.graph.make_event(n + 1, n, narrower, [n], self.graph.events[n].function)

    def without_partial(self, chain: list[int]) -> list[int]:
        """A chain without what loops only began to change: of statements in turn the last."""
        kept: list[int] = []
        run: list[int] = []
        for n in [*chain, None]:
            if n is not None and n != chain[0] and self.is_changed_in_part(n):
                run.append(n)
                continue
            kept += self.last_of_turns(run)
            run = []
            if n is not None:
                kept.append(n)
        return kept

    def is_changed_in_part(self, n: int) -> bool:
        if self.graph.events[n].function != "in place":
            return False
        return self.graph.is_opaque(n)

    def last_of_turns(self, run: Sequence[int]) -> list[int]:
        """The last of those whose sites stand between each other; of one site the last."""
        sites = [self.graph.events[n].site for n in run]
        kept = []
        reach = -1
        for place, site in enumerate(sites):
            last = len(sites) - 1 - sites[::-1].index(site)
            reach = max(reach, last)
            if place == reach:
                kept.append(run[place])
        return kept

    def is_attention(self, chain: Sequence[int], v: int) -> bool:
        """True if a softmax stands on the way, or what comes of it looks like one."""
        graph = self.graph
        if any(itertools.starmap(self.is_sigmoid, itertools.pairwise(chain))):
            return False
        if any(graph.op(n) in SOFT or n in graph.exponentials for n in chain):
            return True
        if any(itertools.starmap(self.is_exponential, itertools.pairwise(chain))):
            return True
        first = graph.product(chain[0])
        if len(chain) < 2:
            return False
        if first is None:
            return False
        weights = graph.value(chain[-1])
        if rows_sum_to_one(weights) or (weights.ndim > 1 and rows_sum_to_one(weights, -2)):
            return True
        # Weights without a softmax, perhaps: Q, K and V are all projected then.
        operands = (first.left, first.right, v)
        projections = [self.origins.origin(n).projection for n in operands]
        return len({projection.weight for projection in projections if projection is not None}) == 3

    def is_exponential(self, before: int, n: int) -> bool:
        """True for a row of powers of e that a loop made, of scores less the same number."""
        scores = self.graph.value(before)
        powers = self.graph.value(n)
        if not self.graph.is_opaque(n) or scores.shape != powers.shape or scores.shape[-1] < 2:
            return False
        if powers.dtype.kind != "f" or not (powers > 0).all():
            return False
        taken_off = scores - np.log(powers)
        return bool(np.ptp(taken_off, axis=-1).max() <= 1e-9 * max(1.0, float(np.abs(taken_off).max())))

    def is_sigmoid(self, before: int, n: int) -> bool:
        """True for 1 + exp(−x), by which a gate divides: a softmax adds numbers of a row instead."""
        graph = self.graph
        if graph.op(before) != "exp" or graph.value(before).shape != graph.value(n).shape:
            return False
        return bool(np.allclose(graph.value(n) - graph.value(before), 1))

    def axes_of_chain(self, chain: Sequence[int], first: Labels) -> list[tuple[Labels, tuple[int, ...]]]:
        """The axes of each array of a chain, and the shape in which it has them."""
        found = [(first, self.graph.value(chain[0]).shape)]
        for before, n in itertools.pairwise(chain):
            labels, shape = found[-1]
            a = self.graph.value(before).reshape(shape)
            b = self.graph.value(n)
            is_elementwise = self.graph.op(n) not in MOVES and self.graph.value(before).shape == b.shape
            if is_elementwise:
                found.append((labels, shape))
                continue
            for order in orders(a.shape, b.shape):
                if is_same(a.transpose(order), b):
                    found.append((tuple(labels[axis] for axis in order), b.shape))
                    break
            else:
                squeezed = [size for size in b.shape if size > 1] == [size for size in shape if size > 1]
                keeps_rows = a.shape[-1] == b.shape[-1] and is_same(a, b.reshape(a.shape))
                if a.shape[-2:] != b.shape[-2:] and not squeezed and not keeps_rows:
                    raise Unread("its scores are laid out anew before the softmax")
                # Only what stands before its rows is split or merged.
                found.append((labels, shape))
        return found

    # --- roles ---

    def read(self, way: Way) -> Attention:
        """Tell Q from K, and lay everything out."""
        output = way.output
        chain, sink = self.without_sink(way.chain)
        first = self.graph.product(chain[0])
        assert first is not None
        axes = self.axes_of_chain(chain, first.axes)
        last_axes = axes[-1][0]
        v, v_axes, out_axes = axes_of_second(way, last_axes)
        left, right, group = sides_of(first)
        summed = [axis for axis in v_axes if axis in {left, right} and axis not in out_axes]
        if len(summed) != 1:
            raise Unread("its second product does not sum over keys or queries")

        # The key axis by vote: what Q and K are called, what the second product and the softmax sum over.
        named = self.key_axis_by_name(chain[0], first, left, right)
        normalized = self.axis_of_softmax(chain, axes)
        votes = [axis for axis in (named, summed[0], normalized) if axis in {left, right}]
        key = max((left, right), key=lambda axis: (votes.count(axis), axis == summed[0]))
        query = right
        if key == right:
            query = left

        q = first.left
        k = first.right
        q_axes = first.left_axes
        k_axes = first.right_axes
        if key != right:
            q, k, q_axes, k_axes = k, q, k_axes, q_axes
        if query in v_axes and self.is_mixed_again(chain[-1]):
            raise NoAttention  # vectors by distance, another for each query, beside values
        if key != summed[0]:
            other = {query: key, key: query}
            v_axes, out_axes = (
                tuple(other.get(axis, axis) for axis in each) for each in (v_axes, out_axes)
            )

        divided = self.divided(way, chain[-1], last_axes.index(key) if key in last_axes else -1)
        if divided is not None:
            output, normalized_weights = divided
            chain = [*chain, normalized_weights]
            axes = [*axes, axes[-1]]

        attention = Attention(
            product=chain[0], output=output, factor=first.factor, sums_queries=key != summed[0]
        )
        laid = {"Q": (q, q_axes), "K": (k, k_axes), "V": (v, v_axes), "head_outputs": (output, out_axes)}
        if sink is not None:
            chain = [*chain, sink]
            axes = [*axes, self.axes_before(chain, axes, sink)]
        self.lay_out(attention, laid, (query, key), chain, axes, group)
        if sink is not None:
            attention.sink = attention.lines.pop()
            logits = np.asarray(attention.sink.array)
            if logits.ndim == 4 and not (logits == logits[:1]).all():
                join_heads(attention)  # each head has its sink: what these differ along are heads
        return attention

    def axes_before(
        self, chain: Sequence[int], axes: Sequence[tuple[Labels, tuple[int, ...]]], sink: int
    ) -> tuple[Labels, tuple[int, ...]]:
        """The axes of what a sink was put beside: of the last array of a chain that stands before it."""
        return [found for n, found in zip(chain, axes, strict=False) if n < sink][-1]

    def divided_later(self, output: int, weights: int, axis: int) -> tuple[int, int] | None:
        """Where the output is divided by the sums of the weights, and the weights so divided."""
        graph = self.graph
        value = graph.value(weights)
        if rows_sum_to_one(value, axis):
            return None
        if value.dtype.kind != "f":
            return None
        if not value.min(initial=0.0) >= 0:
            return None
        sums = value.sum(axis, keepdims=True)
        for child in graph.made_from(output):
            if graph.op(child) not in {"/", "divide", "div", "true_divide", "in place /"}:
                continue
            if value.ndim == 1 and is_near(graph.value(child) * sums, graph.value(output)):
                return child, self.made_divided(child, weights, sums)  # by a number, which is no array
            for divisor in graph.parents(child):
                # In any order of its axes.
                by = np.sort(graph.value(divisor), None)
                if divisor != output and is_near(by, np.sort(sums, None)):
                    return child, self.made_divided(child, weights, sums)
        return None

    def divided(self, way: Way, weights: int, keys: int) -> tuple[int, int] | None:
        """The output and its weights where these were divided by their sum later, or within a loop."""
        later = self.divided_later(way.output, weights, keys) or self.before_rounding(way)
        if later is None and way.second.factor != 1.0:
            return self.divided_within(way)
        return later

    def divided_within(self, way: Way) -> tuple[int, int] | None:
        """Where a loop divides weights while it mixes values: the output, and the weights so divided."""
        value = self.graph.value(way.chain[-1])
        if rows_sum_to_one(value):
            return None
        weights = value * way.second.factor
        return way.output, self.graph.make_event(way.output - 1, way.output, weights, [way.chain[-1]])

    def before_rounding(self, way: Way) -> tuple[int, int] | None:
        """What a loop rounded as it mixed values, so as to print it: the output before, and its weights."""
        graph = self.graph
        shown = graph.value(way.output)
        digits = next((d for d in range(MOST_DIGITS) if np.array_equal(np.round(shown, d), shown)), None)
        if digits is None or not graph.is_opaque(way.output):
            return None

        weights = graph.value(way.chain[-1])
        if not rows_sum_to_one(weights):
            weights = weights / weights.sum(axis=-1, keepdims=True)
        second = way.second
        left, right = weights, graph.value(second.right)
        if not way.is_left:
            left, right = graph.value(second.left), weights
        exact = multiply(left, right, (second.left_axes, second.right_axes, second.axes))
        if is_same(exact, shown) or not np.allclose(np.round(exact, digits), shown, rtol=1e-12, atol=1e-12):
            return None
        output = graph.make_event(way.output + 1, way.output, exact, [way.output])
        return output, graph.make_event(way.output - 1, way.output, weights, [way.chain[-1]])

    def made_divided(self, child: int, weights: int, sums: Array) -> int:
        """An event of the weights that were divided with the output."""
        divided = self.graph.value(weights) / sums
        return self.graph.make_event(child - 1, child, divided, [weights])

    def key_axis_by_name(self, n: int, product: Product, left: str, right: str) -> str | None:
        """The axis of keys, if the names of the operands say clearly which of them is Q."""
        parts = self.graph.site(n).parts
        words: list[list[str]] = []
        for side, operand in enumerate((product.left, product.right)):
            written = None
            if len(parts) >= 2:
                written = parts[-2:][side]
            words.append(self.words_of(operand, written))
        left_q, right_q = (any(map(is_q, each)) for each in words)
        left_k, right_k = (any(map(is_k, each)) for each in words)
        if (left_q or right_k) and not (left_k or right_q):
            return right
        if (left_k or right_q) and not (left_q or right_k):
            return left
        return None

    def words_of(self, n: int, site: int | None) -> list[str]:
        """The names nearest to an operand: as it is written, else what it was assigned to."""
        graph = self.graph

        def telling(words: Sequence[str]) -> list[str]:
            return [word for word in words if is_q(word) or is_k(word)]

        words = []
        if site is not None:
            words = telling(graph.sites[site].words)
        while not words and n in graph.events:
            target = graph.site(n).target
            if "," not in target:
                words = telling(re.findall(r"\w+", target))
            parents = graph.parents(n)
            if graph.product(n):
                break
            if not parents:
                break
            n = parents[0]
        return words

    def axis_of_softmax(
        self, chain: Sequence[int], axes: Sequence[tuple[Labels, tuple[int, ...]]]
    ) -> str | None:
        """The axis along which what the softmax gave sums to 1, if it is one."""
        soft = [i for i, n in enumerate(chain) if self.graph.op(n) in SOFT]
        begin = 0
        if soft:
            begin = soft[0]
        for i in reversed(range(begin, len(chain))):
            labels, shape = axes[i]
            value = self.graph.value(chain[i]).reshape(shape)
            sums = [
                label
                for axis, label in enumerate(labels)
                if rows_sum_to_one(value, axis) and shape[axis] > 1
            ]
            if sums:
                if len(sums) == 1:
                    return sums[0]
                return None
        return None

    # --- layout ---

    def is_mixed_again(self, weights: int) -> bool:
        """True if several products are made of these weights."""
        children = self.graph.made_from(weights)
        return sum(self.graph.product(child) is not None for child in children) > 1

    def lay_out(
        self,
        attention: Attention,
        laid: Mapping[str, tuple[int, Labels]],
        rows: tuple[str, str],
        chain: Sequence[int] = (),
        axes: Sequence[tuple[Labels, tuple[int, ...]]] = (),
        group: str | None = None,
    ) -> None:
        """Bring Q, K, V, the output and all lines to (batch…, query or key, ·)."""
        query, key = rows
        of_scores = axes[-1][0] if axes else laid["Q"][1][:-1]
        batch = [axis for axis in of_scores if axis not in {query, key}]
        if group is None and len(batch) == 3 and self.is_spread_over(laid, batch[-1]):
            group = batch[-1]
        if len(batch) > (2 if group is None else 3):
            raise Unread("it has more axes than batch, head, query and key")

        sizes = {query: 1, key: 1, **self.sizes_of(laid, axes)}

        def bring(array: Array, has: Labels, last: Sequence[str]) -> Array:
            wanted = [*batch, *last]
            present = [axis for axis in wanted if axis in has]
            array = array.transpose([has.index(axis) for axis in present])
            shape = [array.shape[present.index(axis)] if axis in present else 1 for axis in wanted]
            array = array.reshape(shape)
            for place, axis in enumerate(batch):
                if attention.arguments.get("enable_gqa") and 1 < array.shape[place] < sizes[axis]:
                    array = np.repeat(array, sizes[axis] // array.shape[place], axis=place)
            whole = np.broadcast_to(array, [sizes[axis] for axis in wanted])
            return whole.reshape(*batch_sizes, *whole.shape[len(batch) :])

        batch_sizes = [sizes[axis] for axis in batch]
        if group in batch[1:]:
            # The heads of all groups, one behind the other.
            place = batch.index(group)
            batch_sizes[place - 1 : place + 1] = [batch_sizes[place - 1] * batch_sizes[place]]

        places = {"Q": query, "K": key, "V": key, "head_outputs": query}
        for name, (n, labels) in laid.items():
            features = [axis for axis in labels if axis not in {*batch, query, key}]
            if len(features) != 1:
                raise Unread(f"{name} has axes that the others have not")
            attention.arrays[name] = bring(self.graph.value(n), labels, [places[name], features[0]])

        for n, (labels, shape) in zip(chain, axes, strict=True):
            array = self.graph.value(n).reshape(shape)
            attention.lines.append(ScoreLine(n, bring(array, labels, [query, key])))
        attention.batch = batch_sizes
        attention.origins = self.origins_of(attention, laid)

    def origins_of(
        self, attention: Attention, laid: Mapping[str, tuple[int, Labels]]
    ) -> dict[str, list[Origin]]:
        """Where Q, K and V come from."""
        origins = {name: self.origins.origin(laid[name][0]) for name in "QKV"}
        if self.has_columns(attention, origins):
            origins = {name: self.with_columns(origin) for name, origin in origins.items()}
        return {name: [origin] for name, origin in origins.items()}

    def has_columns(self, attention: Attention, origins: Mapping[str, Origin]) -> bool:
        """True if tokens are columns, W x: two operands share what was taken for a weight, and not x."""
        of = {name: origin.projection for name, origin in origins.items()}
        for one, other in itertools.combinations(of, 2):
            a = of[one]
            b = of[other]
            if a is None or b is None or a.weight != b.weight or a.x == b.x:
                continue
            width = attention.arrays[one].shape[-1]
            flat = attention.arrays[one].reshape(-1, width)
            if a.rows.shape != flat.shape or not ratio(a.rows, flat):
                return True
        return False

    def with_columns(self, origin: Origin) -> Origin:
        if origin.projection is None:
            return origin
        turned = self.origins.of_columns(origin.projection)
        return origin if turned is None else origin._replace(projection=turned)

    def is_spread_over(self, laid: Mapping[str, tuple[int, Labels]], axis: str) -> bool:
        """True if K and V have one row of heads along an axis, and Q several: heads that share these."""
        sizes: dict[str, int] = {}
        for name in "QKV":
            n, labels = laid[name]
            sizes[name] = self.graph.value(n).shape[labels.index(axis)] if axis in labels else 1
        return sizes["Q"] > 1 and sizes["K"] == sizes["V"] == 1

    def sizes_of(
        self, laid: Mapping[str, tuple[int, Labels]], axes: Sequence[tuple[Labels, tuple[int, ...]]]
    ) -> dict[str, int]:
        """The size of each axis, the largest where some arrays are repeated along it."""
        shapes = [(labels, self.graph.value(n).shape) for n, labels in laid.values()]
        sizes: dict[str, int] = {}
        for labels, shape in (*shapes, *axes):
            for axis, size in zip(labels, shape, strict=True):
                sizes[axis] = max(size, sizes.get(axis, 1))
        return sizes

    # --- attention of a library ---

    def read_fused(self, n: int) -> Attention:
        """A call of F.scaled_dot_product_attention, or of jax.nn.dot_product_attention."""
        arguments = self.graph.events[n].arguments
        is_of_jax = self.graph.op(n) == FUSED_OF_JAX
        if is_of_jax:  # heads stand behind the tokens, and may be fewer of keys than of queries
            arguments = arguments | {"enable_gqa": True, "attn_mask": arguments.get("mask")}
        operands = []
        for name in ("query", "key", "value"):
            operand = self.graph.given(arguments, name)
            if operand is None:
                raise Unread("what it was given was not kept")
            operands.append(operand)

        lead = ("batch", "head")
        laid = {}
        rows = {"Q": "query", "K": "key", "V": "key", "head_outputs": "query"}
        for name, operand in zip(rows, (*operands, n), strict=True):
            axes = self.graph.value(operand).ndim
            last = "d"
            if name in {"V", "head_outputs"}:
                last = "e"
            labels = (*lead[max(0, 4 - axes) :], rows[name], last)
            if is_of_jax:
                labels = (*lead[:1][: axes - 3], rows[name], "head", last)
            laid[name] = operand, labels
        attention = Attention(product=n, output=n, arguments=arguments)
        self.lay_out(attention, laid, ("query", "key"))
        return attention

    def read_module(self, n: int) -> Attention | None:
        """A call of torch.nn.MultiheadAttention; what it gives besides its output, the weights, is left."""
        event = self.graph.events[n]
        first = min(m for m, other in self.graph.events.items() if self.is_same_call(other, event))
        if first != n:
            return None
        for name in ("query", "key", "value"):
            if self.graph.given(event.arguments, name) is None:
                raise Unread("what it was given was not kept")
        return Attention(product=n, output=n, arguments=event.arguments)

    def is_same_call(self, other: Event, event: Event) -> bool:
        if other.site != event.site:
            return False
        if other.arguments != event.arguments:
            return False
        return other.callers == event.callers


def axes_of_second(way: Way, last_axes: Labels) -> SecondAxes:
    """The axes of V and of the output, called as those of the scores. Raises Unread where these differ."""
    second = way.second
    v = second.right
    weights_axes = second.left_axes
    v_axes = second.right_axes
    if not way.is_left:
        v = second.left
        weights_axes = second.right_axes
        v_axes = second.left_axes
    if len(last_axes) != len(weights_axes):
        raise Unread("its weights have other axes than its scores")

    name_of = dict(zip(weights_axes, last_axes, strict=True))
    for axis in (*v_axes, *second.axes):
        name_of.setdefault(axis, f"v {axis}")
    of_v = tuple(name_of[axis] for axis in v_axes)
    of_output = tuple(name_of[axis] for axis in second.axes)
    return SecondAxes(v, of_v, of_output)


def sides_of(first: Product) -> ScoreSides:
    """The axis of rows on each side of the scores. Raises Unread where one has several."""
    shared = {*first.left_axes} & {*first.right_axes}
    own_left = [axis for axis in first.left_axes if axis in first.axes and axis not in shared]
    own_right = [axis for axis in first.right_axes if axis in first.axes and axis not in shared]
    if len(own_left) + len(own_right) > 3 or not (own_left or own_right):
        raise Unread("its scores have more than an axis of queries and one of keys")

    # Queries of a group of heads that share their keys have an axis of the group before that of rows.
    rows = [axis for axis in first.axes if axis in own_left][-1:] or ["one query"]
    columns = [axis for axis in first.axes if axis in own_right][-1:] or ["one query"]
    # Beside a single query of all, the other axes of keys are batch and heads.
    both = own_left and own_right
    groups = [axis for axis in (*own_left, *own_right) if axis not in {*rows, *columns}] if both else []
    return ScoreSides(rows[0], columns[0], groups[0] if groups else None)

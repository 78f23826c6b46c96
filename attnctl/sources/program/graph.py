"""The arrays of a program and what they were made of, and the products of two matrices among them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attnctl.sources.program.instrument import Site
from attnctl.sources.program.loops import (
    Cut,
    LoopProduct,
    output_of_loop,
    product_of_loop,
    scores_behind,
)
from attnctl.sources.program.record import Event
from attnctl.sources.program.relations import (
    Array,
    Labels,
    as_whole,
    contractions,
    factor_of_product,
    is_near,
    is_same,
    is_softmax_of,
    multiply,
    softmax,
)
from attnctl.sources.program.run import SPACING, Recording

PRODUCTS = frozenset(
    {"@", "matmul", "dot", "bmm", "mm", "mv", "__matmul__", "baddbmm", "inner", "tensordot"}
)
SUMS_OF_PRODUCTS = frozenset({"baddbmm", "addmm"})
"""torch's products of two arrays with a third that is added."""

SUMS = frozenset({"+", "add", "in place +"})

EINSUM = "einsum"

SOFTMAX = frozenset({"softmax", "_softmax", "log_softmax", "Softmax"})
SOFT = SOFTMAX | {"exp", "exp2"}

MADE = "made"
"""What made an event that stands for no expression, but for a part of one."""

WRITES = frozenset(
    {
        "set",
        "dynamic_update_slice",
        "dynamic_update_slice_in_dim",
        "dynamic_update_index_in_dim",
        "index_copy",
        "index_put",
        "slice_scatter",
        "select_scatter",
        "scatter",
    }
)
"""Functions that give an array anew with some of it written over, as jax does for x[i] = y."""

GATHERED = frozenset({"array", "asarray", "tensor", "stack", "vstack"})
"""Calls that make an array of what a loop of Python computed."""

MOST_DIGITS = 9
"""Digits behind the point to which people round what they print."""

MOST_SEARCHED = 2**14
"""Numbers of an array that is sought among the products of others."""

POOL = 60
"""Matrices that are tried, the latest first, where nothing says what an array was made of."""

POOL_OF_LOOPS = 12
"""Matrices, and vectors, of which a loop may have read some rows and columns."""

LATER = 3 * SPACING
"""How much later than the array itself a loop may end that made what it is made of."""


class Product(NamedTuple):
    """An array as the product of two others, times a factor."""

    left: int
    right: int
    left_axes: Labels
    right_axes: Labels
    axes: Labels
    factor: float = 1.0


class Spread(NamedTuple):
    """An operand of a product that is written out, and its axes."""

    n: int
    axes: Labels


class Graph:
    """The events of a recording, linked; a number stands for an event, and for the array of that time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events: dict[int, Event] = recording.events
        self.sites = recording.sites
        self.products: dict[int, Product | None] = {}
        self.made: set[int] = set()
        """Parts of matrices that only a loop read, as events of their own."""
        self.exponentials: set[int] = set()
        """What a loop made as exp of scores that it did not keep."""
        self.of_loops: dict[int, LoopProduct] = {}
        """By expression: what the longest array that it gave is a product of."""
        self.tree = cache(self.read_tree)
        """The text of a file as a syntax tree."""
        self.split_einsums()
        self.split_sums()

    def read_tree(self, file: str) -> ast.Module:
        """The syntax tree of a file of the program; an empty one of what cannot be read."""
        try:
            return ast.parse(self.recording.files.get(file, ""))
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])

    def split_einsums(self) -> None:
        """Write einsum of three operands as a product of a product."""
        for n in [*self.events]:
            operands = []
            if self.op(n) == EINSUM and self.has_value(n):
                operands = self.parents(n)
            if len(operands) != 3:
                continue
            for word in self.site(n).words:
                terms = axes_of_terms(word)
                if terms is not None and len(terms) == 4:
                    self.split(n, operands, terms)
                    break

    def split_sums(self) -> None:
        """Write baddbmm(bias, q, k) as a product, times what it is multiplied by, and a sum."""
        for n in [*self.events]:
            if self.op(n) not in SUMS_OF_PRODUCTS or not self.has_value(n):
                continue
            operands = self.parents(n)
            if len(operands) != 3:
                continue
            added, left, right = operands
            ways = list(contractions(self.value(left).shape, self.value(right).shape, self.value(n).shape))
            if not ways:
                continue
            product = multiply(self.value(left), self.value(right), ways[0])
            both = [np.broadcast_to(each, product.shape).ravel() for each in (product, self.value(added))]
            alpha = float(np.linalg.lstsq(np.stack(both, axis=1), self.value(n).ravel(), rcond=None)[0][0])
            made = self.make_event(n - 1, n, (alpha * product).astype(self.value(n).dtype), [left, right])
            self.products[made] = Product(left, right, *ways[0], as_whole(alpha))
            self.products[n] = None
            self.events[n].parents = (made, added)

    def make_event(
        self, number: int, of: int, value: Array, parents: Sequence[int], function: str = MADE
    ) -> int:
        """An array that the program had only within an expression, as an event before or behind it."""
        event = self.events[of]
        self.events[number] = Event(event.site, value, tuple(parents), event.callers, function)
        return number

    def split(self, n: int, operands: Sequence[int], terms: Sequence[Labels]) -> None:
        first, second, third, out = terms
        inner = tuple(axis for axis in dict.fromkeys((*first, *second)) if axis in third or axis in out)
        arrays = [self.value(operand) for operand in operands]
        if [len(term) for term in terms[:3]] != [array.ndim for array in arrays]:
            return
        if "..." in (*first, *second):
            return
        value = multiply(arrays[0], arrays[1], (first, second, inner))
        made = self.make_event(n - 1, n, value, operands[:2])
        self.products[made] = Product(operands[0], operands[1], first, second, inner)
        self.events[n].parents = (made, operands[2])
        self.products[n] = Product(made, operands[2], inner, third, out)

    # --- one event ---

    def has_value(self, n: int) -> bool:
        event = self.events.get(n)
        if event is None:
            return False
        return event.value is not None

    def value(self, n: int) -> Array:
        value = self.events[n].value
        assert value is not None
        return value

    def site(self, n: int) -> Site:
        return self.sites[self.events[n].site]

    def op(self, n: int) -> str:
        """What made it: `@`, `softmax`, `transpose`, `T`, `item`, `in place`."""
        what = self.site(n).what
        function = self.events[n].function
        if what.startswith("call") and function and function != "method":
            return function
        if what.startswith(("call", "attr")):
            return what.partition(" ")[2]
        return what

    def is_write(self, n: int) -> bool:
        """True for an array some of which was written over, in place or as a copy."""
        if self.events[n].function == "in place":
            return True
        parents = self.parents(n)
        if self.op(n) not in WRITES or not parents:
            return False
        return self.value(parents[0]).shape == self.value(n).shape

    def before_writes(self, n: int) -> int:
        """What statements wrote into, as it was made."""
        while self.events[n].function == "in place" and self.parents(n):
            n = self.parents(n)[0]
        return n

    def summed_width(self, product: Product) -> int:
        """How many numbers are multiplied and added up for each number of a product."""
        shape = self.value(product.left).shape
        summed = [
            size for axis, size in zip(product.left_axes, shape, strict=True) if axis not in product.axes
        ]
        return prod(summed)

    def given(self, arguments: Mapping[str, Any], name: str) -> int | None:
        """The array that a call was handed by that name."""
        argument = arguments.get(name)
        if isinstance(argument, dict) and self.has_value(argument["event"]):
            return int(argument["event"])
        return None

    def is_float(self, n: int) -> bool:
        return self.value(n).dtype.kind == "f"

    # --- its neighbours ---

    def parents(self, n: int) -> list[int]:
        return [parent for parent in self.events[n].parents if self.has_value(parent) and parent < n]

    def lost_parents(self, n: int) -> bool:
        """True if something that it was made of was not kept."""
        return not all(map(self.has_value, self.events[n].parents))

    @cached_property
    def children(self) -> dict[int, list[int]]:
        children = defaultdict(list)
        for number, event in self.events.items():
            for parent in event.parents:
                children[parent].append(number)
        return children

    def made_from(self, n: int) -> list[int]:
        """What was made of it, and was kept."""
        return [child for child in self.children[n] if self.has_value(child)]

    @cached_property
    def superseded(self) -> dict[int, int]:
        """What loops changed further, and when: lists that grew, arrays that were filled in."""
        return {
            event.parents[0]: number
            for number, event in self.events.items()
            if event.function == "in place" and event.parents and self.is_opaque(number)
        }

    def is_opaque(self, n: int) -> bool:
        """True for what loops of Python made, or changed: its operands tell nothing."""
        what = self.site(n).what
        if what == "in place":
            return True
        return what.partition(" ")[0] in {"list", "name", "part"}

    def ancestors(self, n: int, most: int = 200) -> Iterator[int]:
        """What it was made of, the nearest first."""
        edge = self.nearest_kept(n)
        seen: set[int] = set()
        while edge and len(seen) < most:
            nearest = edge.pop(0)
            if nearest not in seen:
                seen.add(nearest)
                yield nearest
                edge += self.nearest_kept(nearest)

    def nearest_kept(self, n: int) -> list[int]:
        """What it was made of; what was not kept, as complex numbers are not, is looked through."""
        kept: list[int] = []
        for parent in self.events[n].parents:
            if parent >= n or parent not in self.events:
                continue
            if self.has_value(parent):
                kept.append(parent)
            else:
                kept += self.nearest_kept(parent)
        return kept

    # --- products ---

    def product(self, n: int) -> Product | None:
        if n not in self.products:
            self.products[n] = None  # so that a circle ends
            self.products[n] = self.find_product(n)
        return self.products[n]

    def find_product(self, n: int) -> Product | None:
        if not self.has_value(n):
            return None
        if self.lost_parents(n):
            return None
        value = self.value(n)
        op = self.op(n)
        if not value.ndim:
            return None
        if value.dtype.kind not in "fiu":
            return None

        operands = [parent for parent in self.parents(n) if self.value(parent).ndim]
        if op == "in place" and self.site(n).what.partition(" ")[2] in PRODUCTS:
            return self.multiplied(n, operands[1:])  # np.matmul(x, w, out=buffer)
        if op in PRODUCTS or op == EINSUM:
            return self.of_call(n, op, operands)
        if op == "sum":
            return self.summed(n)
        if self.is_searched(n):
            return self.by_numbers(n) or self.by_loops(n)
        return None

    def of_call(self, n: int, op: str, operands: list[int]) -> Product | None:
        if op == EINSUM:
            return self.of_einsum(n, operands)
        if len(operands) == 1:
            operands = [*operands, *operands]  # x @ x
        return self.of_tensordot(n, operands) or self.multiplied(n, operands)

    def is_searched(self, n: int) -> bool:
        """True if only its numbers can tell what it is a product of."""
        value = self.value(n)
        made_by_loops = self.is_opaque(n) or self.op(n) in GATHERED
        small = 1 <= value.ndim <= 4 and prod(value.shape) < MOST_SEARCHED
        if not made_by_loops:
            return False
        if not small or n in self.superseded:
            return False
        return not self.is_rounded(n)

    def is_rounded(self, n: int) -> bool:
        """True for numbers that were rounded to be shown: these are another array's, and no product."""
        value = self.value(n)
        for parent in self.parents(n):
            exact = self.value(parent)
            if exact.shape != value.shape or is_same(exact, value):
                continue
            if any(is_same(np.round(exact, digits), value) for digits in range(MOST_DIGITS)):
                return True
        return False

    def multiplied(self, n: int, operands: list[int]) -> Product | None:
        """The product of the first two operands, along the axes that give its numbers."""
        if len(operands) < 2:
            return None
        left, right = operands[:2]
        a = self.value(left)
        b = self.value(right)
        value = self.value(n)
        ways = list(contractions(a.shape, b.shape, value.shape))
        if len(ways) == 1 or (ways and self.op(n) in {"@", "matmul", "bmm", "mm", "__matmul__"}):
            return Product(left, right, *ways[0])
        for labels in ways:
            if is_near(value, multiply(a, b, labels)):
                return Product(left, right, *labels)
        return None

    def of_einsum(self, n: int, operands: list[int]) -> Product | None:
        if len(operands) == 1:
            operands *= 2
        if len(operands) != 2:
            return None
        arrays = [self.value(operand) for operand in operands]
        for word in self.site(n).words:
            if "," in word:
                labels = axes_of_einsum(word, arrays)
                if labels is not None and [len(axes) for axes in labels[:2]] == [a.ndim for a in arrays]:
                    return Product(operands[0], operands[1], *labels)
        return self.multiplied(n, operands)

    def of_tensordot(self, n: int, operands: list[int]) -> Product | None:
        """A product over the last axes of one and the first axes of the other, as many as fit."""
        if self.op(n) != "tensordot" or len(operands) != 2:
            return None
        left, right = (self.value(operand) for operand in operands)
        for count in range(1, min(left.ndim, right.ndim) + 1):
            if left.shape[-count:] != right.shape[:count]:
                continue
            if not is_near(self.value(n), np.tensordot(left, right, count)):
                continue
            summed = tuple(f"summed {axis}" for axis in range(count))
            of_left = tuple(f"left {axis}" for axis in range(left.ndim - count))
            of_right = tuple(f"right {axis}" for axis in range(right.ndim - count))
            return Product(
                operands[0], operands[1], (*of_left, *summed), (*summed, *of_right), (*of_left, *of_right)
            )
        return None

    def summed(self, n: int) -> Product | None:
        """(q[:, None] * k[None]).sum(-1): a product, written out."""
        for factors in self.parents(n):
            if self.op(factors) not in {"*", "multiply", "mul"}:
                continue
            operands = self.parents(factors)
            if len(operands) != 2:
                continue
            found = self.of_axes(n, factors, operands)
            if found is not None:
                return found
            left, right = (self.unexpanded(operand) for operand in operands)
            found = self.multiplied(n, [left, right])
            if found is not None:
                return found
        return None

    def of_axes(self, n: int, factors: int, operands: Sequence[int]) -> Product | None:
        """(a[:, :, None] * v).sum(1): the axes of both are those along which they were spread."""
        whole = self.value(factors)
        value = self.value(n)
        summed = [axis for axis in range(whole.ndim) if is_near(whole.sum(axis), value)]
        if len(summed) != 1:
            return None
        axes = tuple(f"{axis}" for axis in range(whole.ndim))
        sides = [self.spread_axes(operand, whole.shape) for operand in operands]
        if any(side is None or axes[summed[0]] not in side.axes for side in sides):
            return None
        left, right = (side for side in sides if side is not None)
        kept = tuple(axis for axis in axes if axis != axes[summed[0]])
        return Product(left.n, right.n, left.axes, right.axes, kept)

    def spread_axes(self, operand: int, shape: tuple[int, ...]) -> Spread | None:
        """An operand before it got axes of size 1, and the axes that it has of what it was spread to."""
        value = self.value(operand)
        padded = (1,) * (len(shape) - value.ndim) + value.shape
        axes = tuple(
            f"{axis}" for axis, (own, whole) in enumerate(zip(padded, shape, strict=True)) if own == whole
        )
        for n in (operand, self.unexpanded(operand)):
            if self.value(n).ndim == len(axes):
                return Spread(n, axes)
        return None

    def unexpanded(self, n: int) -> int:
        """The array that was given more axes, of size 1, to be multiplied."""
        for parent in self.parents(n):
            before = self.value(parent)
            now = self.value(n)
            if before.size == now.size and before.ndim < now.ndim and is_same(before.ravel(), now.ravel()):
                return parent
        return n

    def pool(self, n: int) -> list[int]:
        """The matrices of which it may be made, the likeliest first, none twice."""
        axes = self.value(n).ndim

        def may_be(m: int) -> bool:
            if not self.has_value(m):
                return False
            if self.value(m).dtype.kind not in "fi":
                return False
            if self.value(m).ndim == axes:
                return True
            if axes != 1:
                return False
            return self.value(m).ndim == 2

        near = [parent for parent in self.parents(n) if may_be(parent)]
        others: list[int] = []
        if self.is_opaque(n) or len(near) < 2:
            earlier = [m for m in self.events if m < n + LATER and m not in (n, *self.superseded)]
            others = [m for m in earlier if may_be(m)][-POOL:][::-1]

        pool: list[int] = []
        for candidate in (*near, *others):
            if not any(is_same(self.value(candidate), self.value(other)) for other in pool):
                pool.append(candidate)
        return pool

    def by_numbers(self, n: int) -> Product | None:
        """Two arrays whose product this is, up to a factor and but for what is hidden."""
        value = self.value(n)
        pool = self.pool(n)
        for left in pool:
            if is_same(value, self.value(left)):
                continue
            for right in pool:
                a = self.value(left)
                b = self.value(right)
                for labels in contractions(a.shape, b.shape, value.shape):
                    if a.shape[labels[0].index("d")] < 2:
                        continue  # every array is that times a number, or nearly
                    with np.errstate(all="ignore"):
                        factor = factor_of_product(value, multiply(a, b, labels))
                    if factor:
                        return Product(left, right, *labels, factor)
        return None

    def softened(self, n: int) -> int | None:
        """The scores whose softmax this is, where only its numbers say so."""
        if not self.may_be_softened(n):
            return None
        value = self.value(n)
        pool = self.pool(n)
        kept = self.kept_scores(n, pool)
        if kept is not None:
            return kept
        if value.ndim == 1:
            return self.unkept_scores(n)

        for left in pool:
            for right in pool:
                made = self.made_scores(n, left, right)
                if made is not None:
                    return made
        alike = [m for m in pool if m < n and self.value(m).shape == value.shape and self.product(m)]
        return max(alike, default=None)

    def may_be_softened(self, n: int) -> bool:
        """True for numbers above 0 that a loop made, few enough to be sought; of matrices up to 1."""
        value = self.value(n)
        if not self.is_opaque(n):
            return False
        if value.ndim not in (1, 2):
            return False
        if not self.is_float(n):
            return False
        if value.size > MOST_SEARCHED:
            return False
        # Written so that NaN is no weight.
        if not value.min(initial=1.0) >= 0:
            return False
        return value.ndim == 1 or bool(value.max(initial=0.0) <= 1 + 1e-6)

    def kept_scores(self, n: int, pool: Sequence[int]) -> int | None:
        """An earlier array whose softmax this is, along either axis."""
        value = self.value(n)
        for scores in pool:
            other = self.value(scores)
            if scores >= n:
                continue
            if other.shape != value.shape:
                continue
            if is_softmax_of(value, other):
                return scores
            if value.ndim == 2 and is_softmax_of(value.T, other.T):
                return scores
        return None

    def made_scores(self, n: int, left: int, right: int) -> int | None:
        """An event for the scores of a loop that kept none of them, if these are its Q and K."""
        a = self.value(left)
        b = self.value(right)
        value = self.value(n)
        if left == right:
            return None
        if not a.shape[1] == b.shape[1] > 1:
            return None
        if (len(a), len(b)) != value.shape:
            return None
        scores = a.astype(float) @ b.astype(float).T
        if not is_softmax_of(value, scores):
            return None
        made = self.make_event(n - 1, n, scores, (left, right))
        self.products[made] = Product(left, right, ("n", "d"), ("m", "d"), ("n", "m"))
        return made

    # --- loops over single numbers ---

    def by_loops(self, n: int) -> Product | None:
        """Parts of two matrices that a loop multiplied number by number."""
        made = product_of_loop(self.value(n), self.pool_of_loops(n), self.longest_of_loop(n))
        if made is None:
            return None
        self.of_loops.setdefault(self.events[n].site, made)
        return self.product_of_parts(n, made)

    def longest_of_loop(self, n: int) -> LoopProduct | None:
        """What the longest array of the same expression is: of one query with fewer keys little is told."""
        site = self.events[n].site
        if site not in self.of_loops:
            alike = [m for m, event in self.events.items() if event.site == site and self.has_value(m)]
            vectors = [m for m in alike if self.value(m).ndim == 1 and m not in self.superseded]
            longest = max(vectors, key=lambda m: len(self.value(m)), default=n)
            if self.value(longest).size > self.value(n).size:
                self.product(longest)
        return self.of_loops.get(site)

    def unkept_scores(self, n: int) -> int | None:
        """An event for the scores of one query, of which a loop kept the exponentials alone."""
        behind = scores_behind(self.value(n), self.pool_of_loops(n))
        if behind is None:
            return None
        scores, made = behind
        product = self.product_of_parts(n, made)
        number = self.make_event(n - 1, n, scores, (product.left, product.right))
        self.products[number] = product
        self.exponentials.add(n)
        return number

    def note_output_of_loop(self, n: int) -> bool:
        """True for a row of output that was made at once; what the program never held is made for it."""
        output = output_of_loop(self.value(n), self.pool_of_loops(n))
        if output is None:
            return False
        query = self.cut(n - 4, n, output.query, axes=1)
        scores = self.make_event(n - 3, n, output.scores, [query, output.keys])
        self.products[scores] = Product(query, output.keys, ("d",), ("m", "d"), ("m",), output.factor)
        weights = self.make_event(n - 2, n, softmax(output.scores), [scores])
        self.products[weights] = None
        self.products[n] = Product(weights, output.values, ("m",), ("m", "d"), ("d",))
        return True

    def pool_of_loops(self, n: int) -> dict[int, Array]:
        """The matrices and vectors from which a loop may have read number by number, the latest first."""
        kept: dict[int, dict[int, Array]] = {1: {}, 2: {}}
        is_matrix = self.value(n).ndim == 2
        for m in (*self.parents(n)[::-1], *reversed(self.events)):
            is_left_out = m == n or m in self.made or self.superseded.get(m, n) < n
            if is_left_out or m >= n + LATER or not self.has_value(m) or not self.is_float(m):
                continue
            value = self.value(m)
            if value.ndim == 2 and len(value) == 1:
                continue  # a row in a list
            alike = kept.get(value.ndim, {})
            if value.ndim not in kept or (value.ndim == 1 and is_matrix) or len(alike) == POOL_OF_LOOPS:
                continue
            if not any(is_same(value, other) for other in alike.values()):
                alike[m] = value
        return kept[1] | kept[2]

    def product_of_parts(self, n: int, made: LoopProduct) -> Product:
        left_axes, right_axes, axes = made.axes
        left = self.cut(n - 2, n, made.left, axes=len(left_axes))
        right = self.cut(n - 3, n, made.right, axes=len(right_axes))
        return Product(left, right, left_axes, right_axes, axes, as_whole(made.factor))

    def cut(self, number: int, n: int, part: Cut, *, axes: int) -> int:
        """An event for a part of a matrix; the matrix itself where it is all of it."""
        whole = self.value(part.n)
        if whole.ndim == 1:
            return part.n
        value = whole[part.rows, part.columns]
        if value.shape == whole.shape and axes == 2:
            return part.n
        self.make_event(number, n, value[0] if axes == 1 else value, [part.n])
        self.products[number] = None
        self.made.add(number)
        return number


def axes_of_einsum(spec: str, arrays: Iterable[Array]) -> tuple[Labels, Labels, Labels] | None:
    """The axes of two operands of einsum and of what comes out; None for what is no such text."""
    terms = axes_of_terms(spec)
    if terms is None:
        return None
    if len(terms) != 3:
        return None
    dots = 0
    for term, array in zip(terms, arrays, strict=False):
        if "..." in term:
            dots = max(dots, array.ndim - len(term) + 1)
    labels = []
    for term in terms:
        spread: list[str] = []
        for axis in term:
            spread += [f"{i}" for i in range(dots)] if axis == "..." else [axis]
        labels.append(tuple(spread))
    return labels[0], labels[1], labels[2]


def axes_of_terms(spec: str) -> list[Labels] | None:
    """The axes of each operand of einsum, and of what comes out; None for what is no such text."""
    inputs, arrow, out = spec.partition("->")
    terms = inputs.split(",")
    if len(terms) < 2:
        return None
    # einops has words with spaces between them, NumPy has letters.
    has_words = any(re.search(r"\w{2}", term) and " " in term.strip() for term in (*terms, out)) or (
        " " in terms[0].strip()
    )

    def axes(term: str) -> list[str]:
        if has_words:
            return term.split()
        return re.findall(r"\.\.\.|\w", term)

    named = [axes(term) for term in (*terms, out)]
    if not arrow:
        written = [axis for term in named[:-1] for axis in term]
        once = sorted(axis for axis in {*written} - {"..."} if written.count(axis) == 1)
        named[-1] = [*(["..."] if "..." in written else []), *once]

    return [tuple(axes) for axes in named]

"""What a program made for its attention and never used: that shows what was meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache, cached_property

import numpy as np

from attnctl.sources.program.attention import Attention
from attnctl.sources.program.called import is_called
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.named import Steps
from attnctl.sources.program.origin import Origins, Projection
from attnctl.sources.program.projected import Projected
from attnctl.sources.program.record import OF_LINEAR, OF_MODULE
from attnctl.sources.program.relations import Array, has_same_numbers, is_same, ratio
from attnctl.sources.program.visibility import unused_triangles

IS_OUT = re.compile(
    r"(.*[_.])?w_?(o|out|output|0)|.*(out|output|ausgabe|sortie|salida)_?(proj\w*|w|weights?|mat\w*)?|(o|c)_proj.*|wo|proj",
    re.IGNORECASE,
)
"""What weights of the output are called."""


IS_BIAS_OF = {
    name: re.compile(rf"(.*[_.])?(b(ias)?_?{name}\w*|{name}\w*_?b(ias)?)", re.IGNORECASE) for name in "QKV"
}
"""What the biases of Q, K and V are called: b_v, bv, v_bias, bias_value."""


NEAR_ONE = 1e-2
"""How far a mean square may be off 1 by what a norm adds below its root."""

MOST_OF_NORM = 12
"""Arrays that a norm makes of its rows."""


TO_NUMPY = frozenset({"numpy", "asarray", "array", "__array__"})
"""What carries a tensor over to NumPy."""


class Meaning:
    def __init__(self, graph: Graph, origins: Origins) -> None:
        self.graph = graph
        self.origins = origins
        self.assigned = cache(self.read_assigned)

    @cached_property
    def unused_triangles(self) -> list[int]:
        return unused_triangles(self.graph)

    @cached_property
    def unused(self) -> list[int]:
        """Matrices that were made and never read, or only moved."""
        graph = self.graph
        return [
            n
            for n in graph.events
            if graph.has_value(n)
            and graph.value(n).ndim > 1
            and graph.is_float(n)
            and n not in graph.superseded
            and all(self.ends(child, n) for child in graph.children[n])
            and not self.is_written_out(n)
        ]

    def is_written_out(self, n: int) -> bool:
        """True for the lists of numbers that an array was made of: the array is what is read."""
        graph = self.graph
        if graph.op(n) != "list":
            return False
        arrays = [m for m in graph.events if m > n and graph.op(m) != "list" and graph.has_value(m)]
        return any(is_same(graph.value(m), graph.value(n)) for m in arrays)

    def ends(self, child: int, n: int, depth: int = 8) -> bool:
        """True if what was made of an array is never read, or is but the array moved and never read."""
        graph = self.graph
        if self.origins.projection(child) is not None:
            return all(self.ends(each, child, depth - 1) for each in graph.children[child])
        if not graph.has_value(child):
            return False
        if graph.value(child).size != graph.value(n).size:
            return False
        if not depth:
            return False
        if not has_same_numbers(graph.value(child), graph.value(n)) and not ratio(
            graph.value(n), graph.value(child)
        ):
            return False
        return all(self.ends(each, child, depth - 1) for each in graph.children[child])

    def unread_values(self, attention: Attention) -> Projection | None:
        """The values that were projected and never read, where K is read in their place, or x as it is."""
        of_k, of_v = (attention.origins[name][0].projection for name in "KV")
        if of_k is None:
            return None
        if of_v is None:
            is_input = of_k.x in attention.origins["V"][0].path
        else:
            is_input = self.is_read_twice(of_k, of_v)
        if not is_input:
            return None

        return self.first_unread(attention, beside=of_k, like=of_k)

    def unread_beside(self, name: str, attention: Attention) -> Projection | None:
        """The keys that were projected beside the values and never read, where others are; or values."""
        other = "V" if name == "K" else "K"
        of_this = attention.origins[name][0].projection
        of_other = attention.origins[other][0].projection
        if of_this is None or of_other is None or of_this.x == of_other.x:
            return None
        return self.first_unread(attention, beside=of_other, like=of_this)

    def first_unread(
        self, attention: Attention, *, beside: Projection, like: Projection
    ) -> Projection | None:
        """The first projection of the rows of one, as large as another, that nothing reads.

        It has a weight of its own, which is not that of Q either.
        """
        graph = self.graph
        taken = {beside.weight, *self.weights_of("Q", attention)}
        for n in graph.events:
            if n >= attention.output:
                continue  # events that were made for a reader stand behind their place
            projection = self.origins.projection(n)
            if projection is None or projection.x != beside.x or projection.weight in taken:
                continue
            if projection.rows.shape != like.rows.shape:
                continue
            if all(self.ends(child, n) for child in graph.children[n]):
                return projection
        return None

    def is_read_twice(self, of_k: Projection, of_v: Projection) -> bool:
        """True if one projection, all of it, is read as K and as V."""
        if of_k.n != of_v.n:
            return False
        if of_v.rows.shape[1] != of_v.matrix.shape[1]:
            return False
        if not of_k.is_linear:
            return True
        # A weight that is not square is packed: one projection of all three.
        shape = self.graph.value(of_k.weight).shape
        return shape[0] == shape[-1]

    def weights_of(self, name: str, attention: Attention) -> list[int]:
        return [
            origin.projection.weight for origin in attention.origins[name] if origin.projection is not None
        ]

    def names(self, n: int) -> list[str]:
        """What the program calls an array: variables, attributes, keys of a dict."""
        event = self.graph.events[n]
        names = list(event.names)
        for site in (event.site, *event.returned_at):
            for target in self.targets(n, site):
                names += [target, target.split(".")[-1]]
        return names + self.key_before(n)

    def targets(self, n: int, site: int) -> list[str]:
        """The variables that an expression is assigned to; of several the one that this array is."""
        graph = self.graph
        place = graph.sites[site]
        written = place.target
        if "," not in written:
            return [written.strip("() ")]
        own = self.assigned(place.file).get((place.line, place.column))
        if own is not None:
            return [own]
        targets = [word.strip() for word in written.strip("()").split(",")]
        made = [m for m, other in graph.events.items() if site in (other.site, *other.returned_at)]
        if len(made) % len(targets) == 0:
            return [targets[made.index(n) % len(targets)]]
        return targets

    def read_assigned(self, file: str) -> dict[tuple[int, int], str]:
        """By the place of an expression the variable that it is assigned to, of each in k, v = a, b."""
        out: dict[tuple[int, int], str] = {}
        for node in ast.walk(self.graph.tree(file)):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    for name, value in zip(names, values, strict=False):
                        out[value.lineno, value.col_offset] = ast.unparse(name)
        return out

    def key_before(self, n: int) -> list[str]:
        """The key of a dict that is written out on the line: "W_o": rng.normal(…)."""
        site = self.graph.site(n)
        lines = self.graph.recording.files.get(site.file, "").split("\n")
        if not 0 < site.line <= len(lines):
            return []
        before = lines[site.line - 1].encode()[: site.column].decode(errors="replace")
        key = re.search(r"""(\w+)["']?\s*[:=]\s*$""", before)
        if key:
            return [key[1]]
        return []

    def unread_bias(self, name: str, attention: Attention) -> int | None:
        """The bias that was made for an operand and never read, where others have theirs."""
        projections = {of: origins[0].projection for of, origins in attention.origins.items()}
        own = projections.pop(name)
        others = [other for other in projections.values() if other is not None]
        read = [other.bias for other in others if other.bias is not None]
        if own is None or not others or len(read) < len(others):
            return None
        if own.bias is not None:
            return self.bias_beside(own, others) if any(is_same(own.bias, bias) for bias in read) else None
        return self.bias_left(name, own, read)

    def bias_beside(self, own: Projection, others: Sequence[Projection]) -> int | None:
        """The bias that nothing reads, where it was made nearest to this weight, which has another's."""
        unread = self.bias_left("", own, [other.bias for other in others if other.bias is not None])
        if unread is None:
            return None
        nearest = min((own, *others), key=lambda projection: abs(projection.weight - unread))
        return unread if nearest is own else None

    def bias_left(self, name: str, own: Projection, read: Sequence[Array]) -> int | None:
        """A bias that nothing reads, made where the others' were or called as this one's."""
        graph = self.graph
        width = own.rows.shape[1]
        vectors = [n for n in graph.events if graph.has_value(n) and graph.value(n).shape == (width,)]
        sites = {
            graph.events[n].site for n in vectors if any(is_same(graph.value(n), bias) for bias in read)
        }
        for n in vectors:
            if graph.children[n] or not graph.is_float(n):
                continue
            pattern = IS_BIAS_OF.get(name)
            is_named = pattern is not None and any(map(pattern.fullmatch, self.names(n)))
            if graph.events[n].site in sites or is_named:
                return n
        return self.row_left(read)

    def row_left(self, read: Sequence[Array]) -> int | None:
        """The row of an array of three, where the others are read as biases: b_q, b_k, b_v = rows."""
        graph = self.graph
        for n in [*graph.events]:
            if not graph.has_value(n) or graph.value(n).shape != (3, *read[0].shape):
                continue
            rows = graph.value(n)
            left = [number for number, row in enumerate(rows) if not any(is_same(row, b) for b in read)]
            if len(left) == 1:
                return graph.make_event(n + 1, n, rows[left[0]], [n])
        return None

    def unread_norm(self, x: int, before: int) -> int | None:
        """What an input was normalized to, before it was projected, if nothing reads that."""
        graph = self.graph
        shape = graph.value(x).shape
        if is_normalized(graph.value(x)):
            return None
        for n in graph.events:
            if not x < n < before or graph.children[n] or not graph.has_value(n):
                continue
            value = graph.value(n)
            if value.shape != shape or not is_normalized(value):
                continue
            if x in graph.ancestors(n, most=MOST_OF_NORM):
                return n
        return None

    def meant_instead(self, steps: Steps, name: str, projected: Projected) -> int | None:
        """The weight that was made for an operand, where it is projected with another one's."""
        if not projected.is_whole:
            return None
        if projected.stored is not None:
            return None
        sharing = [
            other
            for other in "QKV"
            if other != name and steps.events.get(f"W_{other}") == [projected.weight]
        ]
        if not sharing:
            return None

        shapes = {projected.matrix.shape, projected.matrix.shape[::-1]}
        unused = [n for n in self.unused if self.graph.value(n).shape in shapes and n not in steps.unused]
        unused = [n for n in unused if not self.is_called_as(n, sharing)]
        named = [n for n in unused if any(is_called(name, word) for word in self.names(n))]
        if named:
            return named[0]
        beside = [
            n for n in unused if self.graph.events[n].site == self.graph.events[projected.weight].site
        ]
        return min(beside, key=lambda n: abs(n - projected.weight), default=None)

    def is_called_as(self, n: int, operands: Sequence[str]) -> bool:
        """True if an array is called as one of these operands is."""
        return any(is_called(name, word) for name in operands for word in self.names(n))

    def unused_output_weight(self, steps: Steps, width: int) -> int | None:
        """The W_O that was made, where what the heads give is not projected."""
        graph = self.graph
        beside = set()
        if steps.options.get("heads", 1) > 1:
            beside = {graph.events[n].site for n in steps.events.get("W_Q", ())}
        candidates = []
        for n in self.unused:
            shape = graph.value(n).shape
            is_last = not any(child in self.unused for child in graph.children[n])
            fits = len(shape) == 2 and width in shape and n not in steps.unused and is_last
            is_out = any(IS_OUT.fullmatch(word) for word in self.names(n))
            is_before = n < steps.attention.output and not self.is_computed(n)
            if fits and is_before and (is_out or graph.events[n].site in beside):
                candidates.append(n)
        is_of_layers = len({(graph.events[n].site, graph.value(n).shape) for n in candidates}) == 1
        if len(candidates) > 1 and is_of_layers and "W_V" in steps.events:
            # Each layer has one: the next that was made behind its other weights.
            later = [n for n in candidates if n > steps.events["W_V"][0]]
            return min(later, default=None)
        if len(candidates) == 1:
            return candidates[0]
        return None

    def is_left_as_torch_has_it(self, steps: Steps, projection: Projection) -> bool:
        """True for a module's weight, (out, in), that is read as it is where the others are transposed."""
        if self.is_left_as_linear_has_it(projection):
            return True
        weight = projection.weight
        if self.is_transposed_parameter(weight) is not False:
            return False
        others = [n for name in "QKV" for n in steps.events.get(f"W_{name}", ())]
        return any(self.is_transposed_parameter(n) for n in others)

    def is_left_as_linear_has_it(self, projected: Projection | Projected) -> bool:
        """True where rows are multiplied by the weight of a torch.nn.Linear, which is (out, in), as it is.

        Beside a bias, or carried over to NumPy, it stands for that module; without, it may be any matrix.
        """
        graph = self.graph
        weight = projected.weight
        if graph.events[self.made_at(weight)].function != OF_LINEAR:
            return False
        is_as_it_is = is_same(projected.matrix, graph.value(weight))
        if not is_as_it_is or self.is_transposed_parameter(weight) is not False:
            return False  # it was transposed; or the module itself was called, or F.linear
        path = self.origins.origin(weight).path
        return projected.bias is not None or any(graph.op(n) in TO_NUMPY for n in path)

    def made_at(self, weight: int) -> int:
        """Where the array of a weight was made; what is drawn into it since leaves it the same module's."""
        return self.graph.before_writes(self.origins.origin(weight).last)

    def is_transposed_parameter(self, n: int) -> bool | None:
        """Whether a module's weight is transposed here; None for what is no such weight, or not square."""
        graph = self.graph
        value = graph.value(n)
        if value.ndim != 2 or value.shape[0] != value.shape[1]:
            return None
        root = self.origins.origin(n).last
        is_read_off = graph.site(root).what.partition(" ")[0] == "attr"
        is_named = any(word.endswith("weight") for word in graph.site(root).words)
        is_of_module = graph.events[self.made_at(n)].function in {OF_LINEAR, OF_MODULE}
        if not (is_of_module or (is_read_off and is_named)):
            return None
        rows = graph.value(root).reshape(-1, value.shape[1])
        if (rows == value[0]).all(1).any():
            return False
        if (rows == value[:, 0]).all(1).any():
            return True
        return None

    def is_computed(self, n: int) -> bool:
        """True for what was made of other arrays, and was not drawn or read, perhaps times a number."""
        last = self.origins.origin(n).last
        return any(map(self.graph.is_float, self.graph.parents(last)))

    def matrix_of(self, n: int, shape: tuple[int, ...]) -> Array:
        """A weight as (in, out)."""
        value = self.graph.value(n)
        is_linear = self.graph.events[n].function in {OF_LINEAR, OF_MODULE}
        if is_linear or value.shape[0] != shape[0]:
            return value.T
        return value

    def added_and_dropped(self, x: int) -> int | None:
        """What was added to the input and then not read, as positions are."""
        graph = self.graph
        for child in graph.made_from(x):
            added = graph.op(child) in {"+", "add"} and graph.value(child).shape == graph.value(x).shape
            if added and not graph.children[child]:
                return child
        return None


def is_normalized(rows: Array) -> bool:
    """True if each row has a mean square of 1, as layer norm and RMS norm give before they are trained."""
    squares = (rows.astype(float) ** 2).mean(-1)
    return rows.dtype.kind == "f" and bool(np.abs(squares - 1).max(initial=0.0) < NEAR_ONE)

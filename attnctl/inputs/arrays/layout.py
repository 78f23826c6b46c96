"""Which axis is which in anyone's arrays, told from names, sizes and one another.

The table of names says how each array may be laid out. A reading of a file picks one layout for
each array so that all sizes agree; our own is tried first, so another one is read only where ours
does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field, replace

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import dims
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import Groups, arrange, names_in, parse_axes, solve_sizes
from attnctl.math.names import HEAD_OUTPUTS, MEMORY, OUTPUT, PAST_KEY, TABLE, W_O, X

GroupsOf = Callable[[str, str], Groups]
"""From the name of an array and a layout of it to the axes of a file."""


def axes_among(there: Container[str], of_all_keys: Container[str] = ()) -> GroupsOf:
    """The axes of a file of these arrays, some of which go by the name of another one.

    Without a cache all keys are new; without memory, keys and values come from X. Arrays `of_all_keys`
    have a row for past keys, too, not for new ones alone.
    """
    same = {"token": "query"}
    if PAST_KEY not in there:
        same["new"] = "key"
    if MEMORY not in there:
        same["d_memory"] = "d_model"

    def groups(name: str, layout: str) -> Groups:
        own = {**same, "new": "key"} if name in of_all_keys else same
        return tuple(tuple(own.get(axis, axis) for axis in group) for group in parse_axes(layout))

    return groups


@dataclass
class LayoutReading:
    axes: GroupsOf
    layouts: dict[str, Groups] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def lay_out(self, name: str, array: Array) -> Array:
        """The array in our layout, with the batch axis where this reading has one."""
        own, layout = self.axes(name, TABLE[name].own), self.layouts[name]
        wanted = (("batch",), *own) if "batch" in self.sizes and not TABLE[name].once else own
        lacking = [(axis,) for axis in names_in(wanted) if axis not in names_in(layout)]  # of one head
        whole = array.reshape((1,) * len(lacking) + array.shape)
        return arrange(whole, (*lacking, *layout), wanted, self.sizes)


@dataclass
class LayoutSearch:
    """Looks for a reading, array by array, and goes back where one cannot be read.

    `documented` keeps to the layouts that `attend` documents: no leading axis of size 1, no layout
    that only a search finds, and W_O is (out, in) only where its rows are the columns of X.
    """

    shapes: Mapping[str, Shape]
    batch: bool
    documented: bool = False
    of_all_keys: Container[str] = ()
    tries: int = 0
    stuck: tuple[int, str, Sizes] = (-1, "", {})

    def __post_init__(self) -> None:
        self.axes = axes_among(self.shapes, self.of_all_keys)
        self.names = [name for name in TABLE if name in self.shapes]
        self.names.sort(key=self.rank)

    def rank(self, name: str) -> tuple[bool, bool, bool, int]:
        """Scores first: they tell most. Square matrices tell nothing. Gradients follow what they are by."""
        row, shape = TABLE[name], self.shapes[name]
        square = row.linear is not None and len(shape) == 2 and shape[0] == shape[1]
        return bool(row.gradient), not row.of_scores, square, -len(shape)

    def reading(self, sizes: Sizes) -> LayoutReading | None:
        return self.go(0, LayoutReading(self.axes, sizes=dict(sizes)))

    def go(self, at: int, reading: LayoutReading) -> LayoutReading | None:
        if at == len(self.names):
            return reading if consistent(reading.sizes) else None
        name = self.names[at]
        tried = (
            (layout, known)
            for layout in self.layouts(name, reading)
            for known in with_shared_heads(layout, reading.sizes)
        )
        for layout, known in tried:
            self.tries += 1
            sizes = unify(layout, self.shapes[name], known)
            if sizes is None or self.tries > 20_000:
                continue
            found = self.go(at + 1, LayoutReading(self.axes, {**reading.layouts, name: layout}, sizes))
            if found is not None:
                return found
        if at > self.stuck[0]:
            self.stuck = (at, name, dict(reading.sizes))
        return None

    def layouts(self, name: str, reading: LayoutReading) -> Iterator[Groups]:
        """The layouts this array may have, ours first; nn.Linear's where other matrices show it."""
        row = TABLE[name]
        if row.gradient in reading.layouts and self.shapes[row.gradient] == self.shapes[name]:
            yield reading.layouts[row.gradient]
            return
        ways = row.layouts if self.documented else (*row.layouts, *row.searched)
        if row.linear:
            # Of documented layouts W_O may be (out, in) only if it then gives as many columns as X has.
            free = not self.documented or name != W_O or X not in self.shapes
            others = {
                layout == self.axes(other, linear)
                for other, layout in reading.layouts.items()
                if (linear := TABLE[other].linear)
            }
            if not free and self.shapes[name][:1] != self.shapes[X][-1:]:
                ways = tuple(way for way in ways if way != row.linear)
            elif others == {True}:
                ways = (row.linear, *ways)
        for way in ways:
            own = self.axes(name, way)
            if ("batch",) in own:  # inside others
                yield from [own] if self.batch else ()
                continue
            if self.batch and not row.once:
                yield (("batch",), *own)
                continue
            yield own
            if not self.documented:
                yield ((), *own)

    def misfit(self) -> str:
        _, name, known = self.stuck
        row, shape = TABLE[name], self.shapes[name]
        told = ", ".join(f"{axis} {size}" for axis, size in known.items())
        ways = (self.axes(name, way) for way in (*row.layouts, *row.searched))
        wanted = " or ".join(f"({', '.join('·'.join(axes) or 'one' for axes in way)})" for way in ways)
        hint = ""
        if row.of_scores and len(shape) < 4 and known.get("head", 1) > 1:
            hint = "; weights averaged over heads cannot be checked (average_attn_weights=False keeps them)"
        if name == OUTPUT:
            renamed = f"{OUTPUT}={HEAD_OUTPUTS}"
            hint = f"; where it still has its heads, call it {HEAD_OUTPUTS} (--name {renamed})"
        return f"{name}: {dims(shape)} does not go with the other arrays ({told}); expected {wanted}{hint}"


def search(
    shapes: Mapping[str, Shape],
    *sizes: Sizes,
    batch_first: bool = False,
    batch_said: bool = False,
    of_all_keys: Container[str] = (),
) -> LayoutReading:
    """Find how to read arrays of these shapes, in any layout we know.

    Several `sizes` known beforehand are tried in turn, and a batch, or none, where nobody said. Arrays
    `of_all_keys` have a row for past keys, too. Raises AttnError naming an array that cannot be brought
    together with the others.
    """
    tried: list[LayoutSearch] = []
    for known in sizes:
        first = LayoutSearch(shapes, batch_first, of_all_keys=of_all_keys)
        tried = [first] if batch_said else [first, replace(first, batch=not batch_first)]
        for attempt in tried:
            if found := attempt.reading(known):
                return found
    raise AttnError(max(tried, key=lambda attempt: attempt.stuck[0]).misfit())


def with_shared_heads(pattern: Groups, known: Sizes) -> Iterator[Sizes]:
    """The sizes known, and then those with fewer heads of keys, where nothing told how many there are."""
    yield known
    unknown = {*names_in(pattern)} - set(known)
    if "kv_head" in unknown and len(unknown) > 1 and "head" in known:
        heads = known["head"]
        yield from ({**known, "kv_head": few} for few in range(heads - 1, 0, -1) if heads % few == 0)


def unify(pattern: Groups, shape: Shape, known: Sizes) -> dict[str, int] | None:
    """The sizes known once an array of this shape is read so; None where it cannot be."""
    for group in pattern:
        unknown = [axis for axis in group if axis not in known]
        if len(unknown) > 1:  # nothing tells how many heads there are: one
            known = {**known, unknown[0]: known.get("head", 1)}
    sizes = solve_sizes(pattern, shape, known)
    axes = names_in(pattern)
    if sizes and {"query", "key"} <= {*axes} and "head" not in axes and sizes.setdefault("head", 1) != 1:
        return None
    return sizes


def consistent(sizes: dict[str, int]) -> bool:
    """True if heads share evenly, and a cache and its new keys make up the keys."""
    if "past" in sizes and "new" in sizes:
        both = sizes["past"] + sizes["new"]
        if sizes.setdefault("key", both) != both:
            return False
    head, kv_head = sizes.get("head"), sizes.get("kv_head")
    return not (head and kv_head and head % kv_head)

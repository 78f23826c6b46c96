"""Anyone's arrays in our layout: which axis is which, told from names, sizes and one another.

Each step may be laid out in a few ways (`PATTERNS`). A reading of a file picks one for each array
so that all sizes agree; our own layout is tried first, so another one is read only where ours
does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from attnctl.array import Array, Shape
from attnctl.errors import AttnError
from attnctl.words import dims

Sizes = dict[str, int]
Groups = tuple[tuple[str, ...], ...]
"""The axes of an array, each one size or the product of several: ((query,), (head, d_k))."""


def groups(pattern: str) -> Groups:
    """'query head*d_k' -> ((query,), (head, d_k))."""
    return tuple(tuple(word.split("*")) for word in pattern.split())


def rows(head: str, row: str, column: str) -> tuple[str, ...]:
    """The ways to lay out vectors of several heads."""
    return f"{head} {row} {column}", f"{row} {head}*{column}", f"{row} {head} {column}"


def weight(head: str, column: str) -> tuple[str, ...]:
    """The ways to lay out a projection: by head, fused, as nn.Linear keeps it, as Flax does."""
    return (
        f"{head} d_model {column}",
        f"d_model {head}*{column}",
        f"{head}*{column} d_model",
        f"d_model {head} {column}",
    )


SCORES = (
    "scores",
    "scaled_scores",
    "softcapped_scores",
    "alibi_scores",
    "biased_scores",
    "masked_scores",
    "attention_weights",
)

PATTERNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(SCORES, ("head query key", "query key")),
    "K_shared": rows("head", "key", "d_k"),
    "V_shared": rows("head", "key", "d_v"),
    "head_outputs": rows("head", "query", "d_v"),
    **dict.fromkeys(("Q", "Q_rotated"), rows("head", "query", "d_k")),
    **dict.fromkeys(("K", "K_rotated"), rows("kv_head", "new", "d_k")),
    "V": rows("kv_head", "new", "d_v"),
    "past_key": rows("kv_head", "past", "d_k"),
    "past_value": rows("kv_head", "past", "d_v"),
    "present_key": rows("kv_head", "key", "d_k"),
    "present_value": rows("kv_head", "key", "d_v"),
    **dict.fromkeys(("embeddings", "X"), ("query d_model",)),
    "memory": ("new d_model",),
    "positions": ("query d_model",),
    "W_Q": weight("head", "d_k"),
    "W_K": weight("kv_head", "d_k"),
    "W_V": weight("kv_head", "d_v"),
    "b_Q": ("head d_k", "head*d_k"),
    "b_K": ("kv_head d_k", "kv_head*d_k"),
    "b_V": ("kv_head d_v", "kv_head*d_v"),
    "concat": ("query head*d_v",),
    "W_O": ("head*d_v d_out", "d_out head*d_v", "head d_v d_out"),
    "b_O": ("d_out",),
    "output": ("query d_out",),
}
"""How each array may be laid out without a batch axis, our own layout first; scores tell most."""

LINEAR = {
    "W_Q": "head*d_k d_model",
    "W_K": "kv_head*d_k d_model",
    "W_V": "kv_head*d_v d_model",
    "W_O": "d_out head*d_v",
}
"""The layout of nn.Linear: a square matrix has it where all the others do."""

ONCE = {"positions", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"}
"""What a batch has once."""

MOST_TRIES = 20_000


@dataclass
class Reading:
    """How a file is read: the pattern of each array, and the sizes that follow."""

    patterns: dict[str, Groups] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)

    def canonical(self, name: str) -> Groups:
        """Our own layout of an array, with the batch axis where this reading has one."""
        pattern = PATTERNS[name][0]
        own = groups(pattern if "new" in self.sizes else pattern.replace("new", "key"))
        return (("batch",), *own) if "batch" in self.sizes and name not in ONCE else own

    def lay_out(self, name: str, array: Array) -> Array:
        """The array in our layout."""
        wanted = self.canonical(name)
        inside = [axis for group in wanted for axis in group]
        there = [axis for group in self.patterns[name] for axis in group if axis in inside]
        flat = array.reshape([self.sizes[axis] for axis in there])  # without leading axes of size 1
        for axis in inside:
            if axis not in there:  # the one head of scores without a head axis
                there.insert(0, axis)
                flat = flat[None]
        ours = flat.transpose([there.index(axis) for axis in inside])
        return ours.reshape([prod(self.sizes[axis] for axis in group) for group in wanted])


def read_layout(shapes: Mapping[str, Shape], sizes: Sizes, *, batch_first: bool = False) -> Reading:
    """How to read arrays of these shapes; `sizes` are known beforehand.

    Raises AttnError naming an array that cannot be brought together with the others.
    """
    names = sorted((name for name in shapes if name in PATTERNS), key=list(PATTERNS).index)
    names.sort(key=lambda name: (name not in SCORES, square(shapes[name]), -len(shapes[name])))
    stuck: list[tuple[int, str, Sizes]] = []
    for batch in (True, False) if batch_first else (False, True):
        search = Search(names, shapes, batch=batch, cached="past_key" in shapes)
        found = search.go(0, Reading(sizes=dict(sizes)))
        if found is not None:
            return found
        stuck.append(search.stuck)
    _, name, known = max(stuck, key=lambda each: each[0])
    raise AttnError(misfit(name, shapes[name], known))


def square(shape: Shape) -> bool:
    """Whether it is that of a square matrix, which says nothing of its layout."""
    return len(shape) == 2 and shape[0] == shape[1]


def misfit(name: str, shape: Shape, known: Sizes) -> str:
    """That an array does not go with the others, and what they show."""
    told = ", ".join(f"{axis} {size}" for axis, size in known.items())
    patterns = (pattern.replace("*", "·").replace("new", "key").split() for pattern in PATTERNS[name])
    ways = " or ".join(f"({', '.join(pattern)})" for pattern in patterns)
    hint = ""
    if name in SCORES and len(shape) < 4 and known.get("head", 1) > 1:
        hint = "; weights averaged over heads cannot be checked (average_attn_weights=False keeps them)"
    if name == "output":
        hint = "; where it still has its heads, call it head_outputs (--name output=head_outputs)"
    return f"{name}: {dims(shape)} does not go with the other arrays ({told}); expected {ways}{hint}"


@dataclass
class Search:
    """Looks for a reading, array by array, and goes back where one cannot be read."""

    names: Sequence[str]
    shapes: Mapping[str, Shape]
    batch: bool
    cached: bool
    tries: int = 0
    stuck: tuple[int, str, Sizes] = (-1, "", {})

    def go(self, at: int, reading: Reading) -> Reading | None:
        """The reading of the arrays from here on, None where there is none."""
        if at == len(self.names):
            return reading if consistent(reading.sizes) else None
        name = self.names[at]
        for pattern in self.patterns(name, reading):
            self.tries += 1
            sizes = unified(pattern, self.shapes[name], reading.sizes)
            if sizes is None or self.tries > MOST_TRIES:
                continue
            found = self.go(at + 1, Reading({**reading.patterns, name: pattern}, sizes))
            if found is not None:
                return found
        if at > self.stuck[0]:
            self.stuck = (at, name, dict(reading.sizes))
        return None

    def patterns(self, name: str, reading: Reading) -> Iterator[Groups]:
        """The ways this array may be laid out, ours first; as other matrices are where they show theirs."""
        ways = PATTERNS[name]
        others = {
            reading.patterns[each] == groups(LINEAR[each]) for each in LINEAR if each in reading.patterns
        }
        if name in LINEAR and others == {True}:
            ways = (LINEAR[name], *ways)
        for pattern in ways:
            own = groups(pattern if self.cached else pattern.replace("new", "key"))
            if not self.batch or name in ONCE:
                yield own
                yield (("one",), *own)
            else:
                yield (("batch",), *own)


def unified(pattern: Groups, shape: Shape, known: Sizes) -> Sizes | None:
    """The sizes known once an array of this shape is read so; None where it cannot be."""
    if len(pattern) != len(shape):
        return None
    sizes = {"one": 1, **known}
    for group, size in zip(pattern, shape, strict=True):
        unknown = [axis for axis in group if axis not in sizes]
        if len(unknown) > 1:  # nothing tells how many heads there are: one
            sizes[unknown.pop(0)] = sizes.get("head", 1)
        rest = prod(sizes[axis] for axis in group if axis in sizes)
        if unknown and rest and size % rest == 0:
            sizes[unknown[0]] = size // rest
        elif unknown or rest != size:
            return None
    inside = {axis for group in pattern for axis in group}
    if {"query", "key"} <= inside and "head" not in inside and sizes.setdefault("head", 1) != 1:
        return None
    return {axis: size for axis, size in sizes.items() if axis != "one"}


def consistent(sizes: Sizes) -> bool:
    """Whether heads share evenly, and a cache and its new keys make up the keys."""
    if (
        "past" in sizes
        and "new" in sizes
        and sizes.setdefault("key", sizes["past"] + sizes["new"]) != (sizes["past"] + sizes["new"])
    ):
        return False
    head, kv_head = sizes.get("head"), sizes.get("kv_head")
    return not (head and kv_head and head % kv_head)


def lay_out_mask(name: str, mask: Array, sizes: Sizes) -> Array:
    """A mask or bias that broadcasts against ([batch,] head, query, key).

    Raises AttnError where its axes cannot be told.
    """
    full = [
        sizes.get(axis) for axis in ("batch", "head", "query", "key") if axis != "batch" or "batch" in sizes
    ]
    batch, queries = sizes.get("batch"), sizes.get("query")
    if mask.ndim == 3 and batch and mask.shape[0] == batch != sizes.get("head"):
        mask = mask[:, None]
    elif mask.ndim == 2 and batch and mask.shape[0] == batch != queries:
        mask = mask[:, None, None]
    pairs = zip(reversed(mask.shape), reversed(full), strict=False)
    if not 1 <= mask.ndim <= len(full) or any(b is not None and a not in {1, b} for a, b in pairs):
        told = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        raise AttnError(
            f"{name}: {dims(mask.shape)} does not go with the other arrays ({told}); "
            "expected what broadcasts against ([batch,] head, query, key)"
        )
    return mask

"""Weights: given, read, identity or drawn; fused or per head; always split by head in the end.

What is drawn is the same number everywhere, for good: streams are those of `numpy.random.RandomState`,
which NumPy has frozen (NEP 19); everything is drawn in float64 and cast afterwards. A named tensor has a
stream of its own, so that adding a head, a mask or W_O changes no other tensor.
"""

from __future__ import annotations

from _random import Random as Twister  # that of `random`, which imports hashing besides
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from math import log, prod, sqrt
from sys import version_info
from typing import TypeAlias

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.values import Path
from attnctl.base.words import dims
from attnctl.inputs.config.settings import IDENTITY, FromFile, Random, Settings
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import parse_axes, rearrange
from attnctl.math.names import PROJECTED, TABLE, W_O, Name, axis_size, matrix_of, shape_in, shown_axis

try:  # hashlib loads OpenSSL for the same digest: 4 MB and 4 ms of every run
    sha256 = import_module("_sha2" if version_info >= (3, 12) else "_sha256").sha256
except ImportError:
    sha256 = import_module("hashlib").sha256

Named = dict[str, tuple[Array, str]]  # arrays by name, each with how it came about


def arrays_of(named: Named) -> dict[str, Array]:
    return {name: array for name, (array, _) in named.items()}


WEIGHTS = sorted((row for row in TABLE.values() if row.is_weight), key=lambda row: bool(row.asked))
"""The weights in the order they are drawn: what a setting asks for moves nothing else."""

PROJECTIONS = [matrix_of(name) for name in PROJECTED]
"""The matrices that W stands for, where one is used for all."""


def from_file(source: FromFile, place: str) -> Array:
    from attnctl.store.source import arrays as arrays_of

    found = arrays_of(source.path)
    if source.name is None and len(found) == 1:
        return next(iter(found.values()))
    if source.name not in found:
        wanted = f"no array {source.name!r}" if source.name else "several arrays"
        raise AttnError(f"{place}: {wanted} in {source.path}; name one of {', '.join(found)}")
    return found[source.name]


def with_file(settings: Settings) -> Settings:
    """The settings with the weights of their file written out. Raises AttnError where it holds none."""
    weights = settings.weights
    if weights.file is None:
        return settings

    from attnctl.store.source import arrays as arrays_of

    stored = arrays_of(weights.file)
    names = [row.name for row in WEIGHTS if row.name in stored]
    if not names:
        place = settings.where(("weights", "file"))
        *others, last = [row.name for row in WEIGHTS if row.drawn]
        raise AttnError(f"{place}: no {', '.join(others)}, {last} or bias in {weights.file}")

    # What is written out beside the file goes before it.
    from_the_file = {name: FromFile(weights.file, name) for name in names}
    return settings.with_(weights=replace(weights, tensors={**from_the_file, **weights.tensors}, file=None))


def given_arrays(settings: Settings) -> dict[Path, Array]:
    """Every weight that is written out or read from a file, as float64, by its path."""
    out: dict[Path, Array] = {}
    for path, tensor in settings.weights.written():
        if isinstance(tensor, list):
            out[path] = np.array(tensor, dtype=np.float64)
        elif isinstance(tensor, FromFile):
            array = from_file(tensor, settings.where(path)).astype(np.float64)
            row = TABLE.get(str(path[-1]))
            is_by_head = row and row.is_split and array.ndim == len(row.axes)  # as a dump has it
            out[path] = np.concatenate(list(array), axis=-1) if is_by_head else array
    return out


def weights_needed(settings: Settings) -> list[Name]:
    """The matrices of a run, but for W_O where the projections are given and it is not."""
    has_projections = any(
        path[-1] in {"W", *PROJECTIONS} and not isinstance(tensor, Random)
        for path, tensor in settings.weights.written()
    )

    needed = []
    for row in WEIGHTS:
        is_asked = not row.asked or getattr(settings, row.asked) not in (None, False)
        is_left_out = has_projections and row.name == W_O
        if is_asked and row.drawn and not is_left_out:
            needed.append(row)
    return needed


def head_count(row: Name, sizes: Sizes) -> int:
    """The number of heads that this weight is split into; W_O and b_O into none."""
    return axis_size(row.own.split()[0], sizes) if row.is_split else 1


def split_heads(fused: Array, row: Name, sizes: Sizes) -> Array:
    """A weight as a run has it: (head, d_model, d) or (head, d), if each head has its own part of it."""
    if not row.is_split:
        return fused
    return rearrange(fused, "... (head d) -> head ... d", head=head_count(row, sizes))


def resolve(settings: Settings, sizes: Sizes, given: Mapping[Path, Array]) -> Named:
    """Every weight of a run, projections split by head. Raises AttnError for all of the wrong shape."""
    raise_all(misfits(settings, sizes, given))
    how = settings.weights.random
    tensors = settings.weights.tensors
    needed = weights_needed(settings)

    out: Named = {}
    missing = []
    for row in WEIGHTS:
        # Under its name, or as W for all projections.
        key = "W" if row.name in PROJECTIONS and row.name not in tensors else row.name
        path = ("weights", key)
        tensor = tensors.get(key)

        if any(row.name in head for head in settings.weights.heads):
            parts = list(head_parts(settings, sizes, given, row))
            out[row.name] = np.stack(parts), "given per head"
        elif path in given:
            origin = f"from {tensor.path}" if isinstance(tensor, FromFile) else "given"
            out[row.name] = split_heads(given[path], row, sizes), origin
        elif tensor == IDENTITY:
            rows, _ = shape_in(row.side_by_side, sizes)
            out[row.name] = split_heads(np.eye(rows), row, sizes), IDENTITY
        elif isinstance(tensor, Random):
            seed = first_given(tensor.seed, how.seed, settings.seed)
            out |= draw_weights([row], tensor, seed, sizes, name=key)
        elif tensor is None and row in needed:
            missing.append(row)

    # Together, as one stream of numbers for all is drawn in textbook order.
    return out | draw_weights(missing, how, first_given(how.seed, settings.seed), sizes)


def head_parts(settings: Settings, sizes: Sizes, given: Mapping[Path, Array], row: Name) -> Iterator[Array]:
    for number in range(head_count(row, sizes)):
        path: Path = ("weights", "heads", number, row.name)
        if path in given:
            yield given[path]
        elif settings.weights.heads[number].get(row.name) == IDENTITY:
            yield np.eye(sizes["d_model"])
        else:
            place = settings.where(path)
            raise AttnError(f"{place}: missing; the other heads give {row.name}, so give it here too")


def draw_weights(rows: Sequence[Name], how: Random, seed: int, sizes: Sizes, *, name: str = "") -> Named:
    """Draw these weights: whole or a head at a time, each from a stream of its own `name`, or all from one.

    From one they come in textbook order: head by head W_Q, W_K, W_V, and W_O at the end.
    """
    one_stream = np.random.RandomState(seed) if how.legacy else None
    is_by_head = how.layout == "per_head"
    part_counts = {row.name: head_count(row, sizes) if is_by_head else 1 for row in rows}
    turns = [(head, row) for row in rows for head in range(part_counts[row.name])]
    if one_stream and is_by_head:
        turns.sort(key=textbook_order)

    streams: dict[str, Numbers] = {}
    parts: dict[str, list[Array]] = {row.name: [] for row in rows}
    for _, row in turns:
        whole = shape_in(row.side_by_side, sizes)
        if row.name not in streams:
            own_name = name or row.name
            streams[row.name] = one_stream or stream(seed, "tensor", own_name, count=prod(whole))

        *lead, columns = whole
        shape = (*lead, columns // part_counts[row.name])
        part = draw_numbers(streams[row.name], shape, how.distribution, sizes["d_model"])
        parts[row.name].append(part)

    origin = description(how, seed)
    named: Named = {}
    for row in rows:
        fused = np.concatenate(parts[row.name], axis=-1)
        named[row.name] = split_heads(fused, row, sizes), origin
    return named


def textbook_order(turn: tuple[int, Name]) -> tuple[bool, int]:
    """Head by head; what no head has a part of comes last."""
    head, row = turn
    return not row.is_split, head


def misfits(settings: Settings, sizes: Sizes, given: Mapping[Path, Array]) -> Iterator[str]:
    """Weights that are given and have not the shape that they need, or hold no finite numbers."""
    projection_shapes = {shape_in(TABLE[name].side_by_side, sizes) for name in PROJECTIONS}

    for path, tensor in settings.weights.written():
        place = settings.where(path)
        is_for_all = path[-1] == "W"
        row = TABLE[PROJECTIONS[0] if is_for_all else str(path[-1])]
        _, _, of_one_head = row.own.partition(" ")
        layout = of_one_head if path[1] == "heads" else row.side_by_side
        expected = shape_in(layout, sizes)

        if is_for_all and len(projection_shapes) > 1:
            yield f"{place}: one matrix for Q, K and V needs d_k = d_v and kv_heads = heads"
            continue
        if tensor == IDENTITY and len(expected) == 2 and expected[0] != expected[1]:
            yield f"{place}: identity must be square, but this is {dims(expected)}; give the matrix"

        if path not in given:
            continue
        array = given[path]
        if array.shape != expected:
            meaning = dims(map(shown_axis, parse_axes(layout)))
            yield f"{place}: {dims(array.shape)}, expected {dims(expected)} ({meaning})"

        is_finite = np.isfinite(array)
        if not is_finite.all():
            first = np.argwhere(~is_finite)[0].tolist()
            yield f"{place}: {array[tuple(first)]} at {first}; every number must be finite"


def description(how: Random, seed: int) -> str:
    words = {"normal": "N(0, 1/d_model)", "standard_normal": "N(0, 1)", "uniform": "U[0, 1)"}
    return f"drawn {words[how.distribution]}, seed {seed}"


def first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


# --- drawing ---

TWISTED = 624
"""Words of the state of a Mersenne Twister."""

FEW = 2**11
"""Up to so many numbers, 2 ms, a tensor is drawn without `numpy.random`, whose import takes 10 ms and 3 MB.

Their number alone decides, so that a tensor is drawn in one way whatever was imported before.
"""


class FewNumbers:
    """The numbers of `RandomState`, one by one: Python has the same Mersenne Twister, seeded alike."""

    def seed(self, words: Array) -> None:
        if words[-1]:
            number = int.from_bytes(words.astype("<u4").tobytes(), "little")
            self.random = Twister(number).random
        else:
            # Of an integer Python leaves out leading words of zeros, which NumPy counts.
            self.random = np.random.RandomState(words).random_sample
        self.spare: float | None = None

    def random_sample(self, shape: Shape) -> Array:
        return np.array([self.random() for _ in range(prod(shape))]).reshape(shape)

    def standard_normal(self, shape: Shape) -> Array:
        return np.array([self.normal() for _ in range(prod(shape))]).reshape(shape)

    def normal(self) -> float:
        """Two points at a time, by the polar method (Marsaglia & Bray 1964)."""
        if self.spare is not None:
            number = self.spare
            self.spare = None
            return number

        r2 = 0.0
        while not 0 < r2 < 1:
            x = 2 * self.random() - 1
            y = 2 * self.random() - 1
            r2 = x * x + y * y

        factor = sqrt(-2 * log(r2) / r2)
        self.spare = factor * x
        return factor * y


Numbers: TypeAlias = "np.random.RandomState | FewNumbers"


def generator_of(count: int) -> Numbers:
    """The quicker of the two for so many numbers; it wants a seed yet."""
    return FewNumbers() if count <= FEW else np.random.RandomState(0)


def stream(seed: int, *name: str, count: int) -> Numbers:
    rng = generator_of(count)
    rng.seed(key(seed, *name))
    return rng


def key(seed: int, *name: str) -> Array:
    """SHA-256 of seed and name, as eight words: the stream of a named thing begins with them."""
    text = "\x1f".join((str(seed), *name))
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def draw_numbers(rng: Numbers, shape: Shape, distribution: str, d_model: int) -> Array:
    """Numbers of this shape: normal is N(0, 1/d_model), standard_normal N(0, 1), uniform [0, 1)."""
    match distribution:
        case "normal":
            return rng.standard_normal(shape) / sqrt(d_model)
        case "standard_normal":
            return rng.standard_normal(shape)
        case "uniform":
            return rng.random_sample(shape)
    raise ValueError(f"unknown distribution {distribution!r}")


def token_rows(seed: int, tokens: Sequence[str], d_model: int, distribution: str) -> Array:
    """A row for each token, (token, d_model), drawn from (seed, token) alone."""
    rows = np.empty((len(tokens), d_model))
    rng = generator_of(rows.size)  # made once: a new RandomState asks the system for entropy first
    for row, token in zip(rows, tokens, strict=True):
        rng.seed(key(seed, "token", token))
        row[:] = draw_numbers(rng, (d_model,), distribution, d_model)
    return rows


def uniform_numbers(seed: int, count: int) -> Array:
    """The first numbers of `RandomState(seed).random_sample`, without `numpy.random`.

    Python's generator is set to the state that NumPy's begins with, and asked for all bits at once.
    """
    state = [seed]
    for place in range(1, TWISTED):
        last = state[-1]
        state.append((1812433253 * (last ^ last >> 30) + place) % 2**32)  # Knuth's, as Matsumoto has it

    twister = Twister()
    twister.setstate((*state, TWISTED))
    bits = twister.getrandbits(64 * count).to_bytes(8 * count, "little")
    high, low = np.frombuffer(bits, "<u4").reshape(count, 2).T
    return ((high >> 5) * 2.0**26 + (low >> 6)) / 2.0**53

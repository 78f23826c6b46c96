"""Two models of one shape, layer by layer: a fine-tune, an adapter or a quantised file beside what it was.

Both are run on one text side by side, and each layer's weights are held beside each other as it comes by:
no more than a layer of both is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import dims
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Progress
from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.layer import Model
from attnctl.models.next import Pass, Ranked, begin_pass, log_sum_exp, logits_of
from attnctl.models.run import ModelInput
from attnctl.models.tensors import Checkpoint
from attnctl.store.header import Stored

PIECE = 2**20
"""Numbers of a tensor that are compared together."""

MATRICES = ("W_Q", "W_K", "W_V", "W_O")


class Squares(NamedTuple):
    """The sum of squares of a difference, and of what it is the difference from."""

    moved: float = 0.0
    whole: float = 0.0

    def plus(self, other: Squares) -> Squares:
        return Squares(self.moved + other.moved, self.whole + other.whole)

    @property
    def share(self) -> float:
        """‖B − A‖ / ‖A‖."""
        if not self.moved:
            return 0.0
        return float(np.sqrt(self.moved / self.whole)) if self.whole else float("inf")


@dataclass(frozen=True)
class LayerDiff:
    """A layer of both models."""

    layer: int
    weights: float
    """‖B − A‖ / ‖A‖ of all its tensors together."""
    tensors: Mapping[str, float]
    """The same of each tensor that differs, by its name in the layer."""
    heads: tuple[float, ...]
    """The same of the matrices of each head; empty where it has none of its own."""
    cosine: float
    """Of the rows that leave the layer, the mean over positions."""
    last_cosine: float
    next_divergence: float
    """Kullback–Leibler of the token after the last position, were this the last layer, in nats."""


@dataclass(frozen=True)
class ModelsDiff:
    """What two models say of one text, and where they differ."""

    a: str
    b: str
    tokens: tuple[str, ...]
    first: str | None
    """The first tensor that differs, in the order in which they are read."""
    outside: Mapping[str, float]
    """The change of each tensor outside of layers that differs."""
    layers: tuple[LayerDiff, ...]
    divergence: tuple[float, ...]
    """Kullback–Leibler of the next token, A from B, in nats, at each position."""
    next_a: tuple[Ranked, ...]
    next_b: tuple[Ranked, ...]

    @property
    def same(self) -> bool:
        return self.first is None and not any(self.divergence)

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "tokens": list(self.tokens),
            "same": self.same,
            "first_tensor": self.first,
            "outside": dict(self.outside),
            "layers": [dict(vars_of(layer)) for layer in self.layers],
            "divergence": list(self.divergence),
            "next_a": [token._asdict() for token in self.next_a],
            "next_b": [token._asdict() for token in self.next_b],
        }


def vars_of(layer: LayerDiff) -> Iterator[tuple[str, Any]]:
    yield "layer", layer.layer
    yield "weights", layer.weights
    yield "tensors", dict(layer.tensors)
    yield "heads", list(layer.heads)
    yield "cosine", layer.cosine
    yield "last_cosine", layer.last_cosine
    yield "next_divergence", layer.next_divergence


MOST_NAMED = 3
"""The likeliest tokens that are told."""


def compare_models(a: str, b: str, given: ModelInput, moved: Progress | None = None) -> ModelsDiff:
    """Two models on one text. Raises AttnError where their shapes or their tokens of it are others."""
    settings = Settings(dtype="float32")
    first, second = (begin_pass(name, given, settings) for name in (a, b))
    refuse_unlike(first, second)
    models = (first.runner.model, second.runner.model)
    passes = (first, second)

    count = len(models[0].description.layers)
    found: list[LayerDiff] = []
    rows: tuple[Array, Array] | None = None
    in_step = pairwise(zip(first.states(), second.states(), strict=True))
    for index, (_, leaving) in enumerate(in_step):
        found.append(compare_layer(passes, index, leaving))
        rows = leaving
        if moved:
            moved(index + 1, count)

    assert rows is not None
    logits = [logits_of(each, row) for each, row in zip(passes, rows, strict=True)]
    outside = outside_of_layers(models)
    return ModelsDiff(
        a=a,
        b=b,
        tokens=tuple(first.tokens.labels),
        first=first_that_differs(outside, found),
        outside=outside,
        layers=tuple(found),
        divergence=tuple(divergences(*logits)),
        next_a=likeliest(first, logits[0][-1]),
        next_b=likeliest(second, logits[1][-1]),
    )


def refuse_unlike(first: Pass, second: Pass) -> None:
    """Refuse models that cannot be laid over each other."""
    problems = []
    ours, theirs = (each.runner.model.description for each in (first, second))
    for name in ("layers", "width", "heads"):
        found = [len(each.layers) if name == "layers" else each[name] for each in (ours, theirs)]
        if found[0] != found[1]:
            problems.append(f"--model: {name}: {found[0]} of one and {found[1]} of the other")
    if first.head.vocab != second.head.vocab:
        problems.append(f"--model: vocabularies of {first.head.vocab} and {second.head.vocab} tokens")
    raise_all(problems)
    if first.tokens.ids != second.tokens.ids:
        raise AttnError("TEXT: the two tokenizers cut it otherwise; give the ids of tokens: --ids 1,2,3")


# --- weights ---


def compare_layer(passes: tuple[Pass, Pass], index: int, leaving: tuple[Array, Array]) -> LayerDiff:
    first, second = passes
    models = (first.runner.model, second.runner.model)
    shares: dict[str, float] = {}
    total = Squares()
    for name, change in tensors_of_layer(models, index):
        total = total.plus(change)
        if change.moved:
            shares[name] = change.share

    cosines = cosine_of_rows(*leaving)
    last = [logits_of(each, rows[-1:]) for each, rows in zip(passes, leaving, strict=True)]
    (nats,) = divergences(*last)
    return LayerDiff(
        layer=index,
        weights=total.share,
        tensors=shares,
        heads=heads_of(models, index),
        cosine=float(cosines.mean()),
        last_cosine=float(cosines[-1]),
        next_divergence=nats,
    )


def tensors_of_layer(models: tuple[Model, Model], index: int) -> Iterator[tuple[str, Squares]]:
    """The change of each tensor of a layer. Raises AttnError where one has what the other has not."""
    checkpoints = [model.checkpoint for model in models]
    prefixes = [model.layer(index).prefix for model in models]
    names = [
        [name.removeprefix(prefix) for name in checkpoint.under(prefix)]
        for checkpoint, prefix in zip(checkpoints, prefixes, strict=True)
    ]
    if alone := set(names[0]) ^ set(names[1]):
        raise AttnError(f"--model: layer {index}: only one of them has {min(alone)}")
    for name in names[0]:
        yield name, change_of(checkpoints, [prefix + name for prefix in prefixes])


def change_of(checkpoints: Sequence[Checkpoint], names: Sequence[str]) -> Squares:
    """The change of a tensor, a block of its rows at a time."""
    ours, theirs = (each.tensors[name] for each, name in zip(checkpoints, names, strict=True))
    if ours.shape != theirs.shape:
        raise AttnError(
            f"--model: {names[0]} is {dims(ours.shape)} of one, {dims(theirs.shape)} of the other"
        )
    if not ours.shape:
        return change_in(part_of(ours, ...), part_of(theirs, ...))

    size = max(1, PIECE * ours.shape[0] // max(1, int(np.prod(ours.shape))))
    total = Squares()
    for start in range(0, ours.shape[0], size):
        part = slice(start, start + size)
        total = total.plus(change_in(part_of(ours, part), part_of(theirs, part)))
    return total


def part_of(tensor: Stored, part: Any) -> Array:
    return np.asarray(tensor.load(part))


def change_in(ours: Array, theirs: Array) -> Squares:
    before = ours.astype(np.float64)
    after = theirs.astype(np.float64)
    return Squares(float(np.sum((after - before) ** 2)), float(np.sum(before**2)))


def heads_of(models: tuple[Model, Model], index: int) -> tuple[float, ...]:
    """The change of the matrices of each head: what it reads by, and what it writes by."""
    if models[0].description.layers[index].is_linear:
        return ()
    ours, theirs = (prepare_attention(model.layer(index), blank_rows(model, 1)).given for model in models)
    if not {*MATRICES} <= ours.keys() & theirs.keys():
        return ()

    heads = len(ours["W_Q"])
    found = []
    for head in range(heads):
        total = Squares()
        for name in MATRICES:
            total = total.plus(
                change_in(*(of_head(each[name], name, head, heads) for each in (ours, theirs)))
            )
        found.append(total.share)
    return tuple(found)


def of_head(matrix: Array, name: str, head: int, heads: int) -> Array:
    """The part of a projection that is a head's: its rows of W_O, its group's K and V."""
    if name == "W_O":
        size = matrix.shape[0] // heads
        return matrix[head * size : (head + 1) * size]
    return matrix[head * len(matrix) // heads]


def outside_of_layers(models: tuple[Model, Model]) -> dict[str, float]:
    """The change of the tensors that both have outside of layers."""
    ours, theirs = models
    start = ours.description.stack.layer.partition("{i}")[0]
    found = {}
    for name in ours.checkpoint.names:
        other = theirs.prefix + name.removeprefix(ours.prefix) if name.startswith(ours.prefix) else name
        if name.startswith(ours.prefix + start) or other not in theirs.checkpoint.tensors:
            continue
        change = change_of([ours.checkpoint, theirs.checkpoint], [name, other])
        if change.moved:
            found[name] = change.share
    return found


def first_that_differs(outside: Mapping[str, float], layers: Sequence[LayerDiff]) -> str | None:
    embedded = [name for name in outside if "embed" in name or "wte" in name]
    if embedded:
        return embedded[0]
    for layer in layers:
        if layer.tensors:
            return f"layer {layer.layer}: {next(iter(layer.tensors))}"
    return next(iter(outside), None)


# --- what they compute ---


def cosine_of_rows(ours: Array, theirs: Array) -> Array:
    """The cosine of the angle between the two rows at each position."""
    before = ours.astype(np.float64)
    after = theirs.astype(np.float64)
    lengths = np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1)
    products = np.sum(before * after, axis=-1)
    cosines: Array = np.divide(products, lengths, out=np.ones_like(products), where=lengths > 0)
    return np.clip(cosines, -1, 1)


def divergences(ours: Array, theirs: Array) -> Iterator[float]:
    """Σ p (log p − log q) at each position, in nats."""
    for before, after in zip(ours, theirs, strict=True):
        log_p = before.astype(np.float64) - log_sum_exp(before.astype(np.float64))
        log_q = after.astype(np.float64) - log_sum_exp(after.astype(np.float64))
        yield max(0.0, float(np.sum(np.exp(log_p) * (log_p - log_q))))


def likeliest(prompt: Pass, row: Array) -> tuple[Ranked, ...]:
    best = np.argsort(-row, kind="stable")[:MOST_NAMED]
    return tuple(prompt.rank(best, row[best], log_sum_exp(row)))


# --- on a screen ---

TITLES = ["layer", "weights", "most in", "by", "head", "by", "cosine", "at the last"]


def compare_lines(found: ModelsDiff, screen: Screen) -> Iterator[Element]:
    yield [(f"A  {screen.printable(found.a)}", "sentence")]
    yield [(f"B  {screen.printable(found.b)}", "sentence")]
    yield []
    if found.same:
        yield [("the same weights, and the same logits", "")]
        return

    yield from Listing(screen, [TITLES], [layer_row(layer, screen) for layer in found.layers], LEFT).lines()
    yield [("weights: ‖B − A‖ / ‖A‖; cosine: of the rows that leave the layer", "dim")]
    for name, share in found.outside.items():
        yield [(f"{screen.printable(name)}  {share:.3g}", "")]
    if found.first is not None:
        yield [(f"the first tensor that differs: {screen.printable(found.first)}", "")]
    yield []

    last = found.divergence[-1]
    mean = float(np.mean(found.divergence))
    yield [(f"Kullback–Leibler of the next token: {last:.3g} nats at the last, {mean:.3g} in the mean", "")]
    for name, tokens in (("A", found.next_a), ("B", found.next_b)):
        words = "  ".join(f"{screen.token(token.text)} {token.probability:.1%}" for token in tokens)
        yield [(f"{name}: {words}", "")]


LEFT = frozenset({2})


def layer_row(layer: LayerDiff, screen: Screen) -> Line:
    worst = max(layer.tensors, key=lambda name: layer.tensors[name], default="")
    head = int(np.argmax(layer.heads)) if layer.heads else None
    cells = [
        str(layer.layer),
        f"{layer.weights:.3g}",
        screen.printable(worst),
        f"{layer.tensors[worst]:.3g}" if worst else "",
        "" if head is None or not layer.heads[head] else str(head),
        "" if head is None or not layer.heads[head] else f"{layer.heads[head]:.3g}",
        f"{layer.cosine:.5f}",
        f"{layer.last_cosine:.5f}",
    ]
    return [(cell, "") for cell in cells]

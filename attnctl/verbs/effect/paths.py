"""Path patching: what one part does to the next token through another alone (Goldowsky-Dill et al. 2023).

What the first part writes is changed where the second reads it, and nowhere else: all between them stays as
it was. What the second part makes of that goes on through the layers above as usual.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.math import Array, Progress
from attnctl.math.names import HEAD_OUTPUTS, RESIDUAL
from attnctl.models.attention import prepare_attention
from attnctl.models.backward import refuse_backward
from attnctl.models.forward import Change, attend_plainly, through
from attnctl.models.layer import LayerTensors
from attnctl.models.next import Pass
from attnctl.verbs.effect import Effects, through_layers
from attnctl.verbs.effect.metrics import DIVERGENCE, log_probabilities, measure
from attnctl.verbs.effect.parts import HEAD, POSITION, Replacement, edit_step, noting, read_other
from attnctl.verbs.effect.parts import NETWORK as BY_NETWORK

LOGITS = "logits"
NETWORK = "mlp"
EMBEDDINGS = "embed"
EVERY = "*"
PLACE = re.compile(r"(\d{1,5})\.(?:(\d{1,5})(?:\.([qkv]))?|mlp)")
ARROW = re.compile(r"\s*(?:->|→)\s*")
USAGE = "write 4.2->7.3, from head 2 of layer 4 to head 3 of layer 7"
MOST_PATHS = 100_000


@dataclass(frozen=True)
class PathEnd:
    """A part of a model that a path begins or ends at."""

    text: str
    layer: int
    """−1 of the embeddings, the number of layers of the logits."""
    head: int | None = None
    role: str = ""
    """Which of a head's inputs: q, k or v; all three where none is said."""


class PathEffect(NamedTuple):
    sender: str
    receiver: str
    effect: float


@dataclass(frozen=True)
class PathEffects:
    """The change in the metric along each path."""

    asked: Effects
    paths: tuple[PathEffect, ...]

    @property
    def strongest(self) -> PathEffect:
        return max(self.paths, key=lambda path: abs(path.effect))

    def to_dict(self) -> dict[str, Any]:
        question = {name: value for name, value in self.asked.asked.items() if name != "by"}
        return {**question, "paths": [path._asdict() for path in self.paths]}


class Path(NamedTuple):
    sender: PathEnd
    receiver: PathEnd


def read_paths(texts: Sequence[str], layers: int, heads: int) -> list[Path]:
    """The paths of a model that texts name. Raises AttnError for parts that there are not."""
    found: list[Path] = []
    for text in texts:
        ends = ARROW.split(text.strip())
        if len(ends) != 2:
            raise AttnError(f"--path: {quote(text)}; {USAGE}")
        first, second = (ends_named(end, text, layers, heads) for end in ends)
        pairs = [Path(*pair) for pair in ((a, b) for a in first for b in second) if goes_up(*pair)]
        if not pairs:
            raise AttnError(
                f"--path: {quote(text)} leads nowhere: what is read must stand above what writes"
            )
        found += pairs
    if len(found) > MOST_PATHS:
        raise AttnError(f"--path: {len(found)} paths; {MOST_PATHS} are the most")
    return found


def ends_named(end: str, text: str, layers: int, heads: int) -> list[PathEnd]:
    """The parts that one end of a path names: one, or * for every head."""
    if end == EVERY:
        return [PathEnd(f"{layer}.{head}", layer, head) for layer in range(layers) for head in range(heads)]
    if end == EMBEDDINGS:
        return [PathEnd(end, -1)]
    if end == LOGITS:
        return [PathEnd(end, layers)]

    match = PLACE.fullmatch(end)
    if match is None:
        known = (
            f"a head like 4.2 (4.2.q, .k or .v of the second), 4.{NETWORK}, {EMBEDDINGS}, {LOGITS}, {EVERY}"
        )
        raise AttnError(f"--path: {quote(end)} in {quote(text)}; expected {known}")
    layer = int(match[1])
    head = None if match[2] is None else int(match[2])
    if layer >= layers:
        raise AttnError(f"--path: {quote(text)}: no layer {layer}; there are {layers}, from 0")
    if head is not None and head >= heads:
        raise AttnError(f"--path: {quote(text)}: no head {head}; there are {heads}, from 0")
    return [PathEnd(end, layer, head, match[3] or "")]


def goes_up(sender: PathEnd, receiver: PathEnd) -> bool:
    """Whether what one part writes is read by the other: of one layer the network reads heads."""
    if sender.role or sender.text == LOGITS or receiver.text == EMBEDDINGS:
        return False
    reads_heads = sender.head is not None and receiver.head is None
    return sender.layer < receiver.layer or (sender.layer == receiver.layer and reads_heads)


# --- what goes along them ---


def path_effects(
    prompt: Pass, begun: Effects, other: Pass | None, paths: Sequence[Path], moved: Progress | None = None
) -> PathEffects:
    """The effect of each path. Raises AttnError for models whose layers do not add to one stream."""
    refuse_other_layers(prompt)
    rows = list(prompt.states())
    others = [None] * len(rows) if other is None else list(other.states())
    before = None
    if begun.metric == DIVERGENCE:
        before = log_probabilities(prompt, prompt.head.final(rows[-1][begun.prompt["at"]]))

    written: dict[str, Array] = {}
    found = []
    for number, path in enumerate(paths):
        sender = path.sender
        if sender.text not in written:
            written[sender.text] = moved_by(prompt, begun, sender, rows, others)
        last = last_rows(prompt, path.receiver, rows, written[sender.text])
        value = measure(
            prompt,
            last[begun.prompt["at"]],
            [token.id for token in begun.between],
            begun.metric,
            before,
        )
        found.append(PathEffect(sender.text, path.receiver.text, float(value) - begun.before))
        if moved:
            moved(number + 1, len(paths))
    return PathEffects(begun, tuple(found))


def refuse_other_layers(prompt: Pass) -> None:
    d = prompt.runner.model.description
    try:
        refuse_backward(d)
    except AttnError as error:
        raise AttnError(str(error).replace("--attribution", "--path", 1)) from None
    if {"attention_sum_norm", "mlp_sum_norm"} & {*d.inner}:
        raise AttnError(
            f"--path: {d.family} norms the stream itself after each sum: nothing in it is one part's; "
            "leave it out"
        )


def moved_by(
    prompt: Pass, begun: Effects, sender: PathEnd, rows: Sequence[Array], others: Sequence[Array | None]
) -> Array:
    """By how much a part moves the stream where it is replaced."""
    if sender.text == EMBEDDINGS:
        return Replacement(POSITION, begun.how).instead(rows[0], others[0]) - rows[0]

    tensors = prompt.runner.model.layer(sender.layer)
    hidden = rows[sender.layer]
    theirs = others[sender.layer]
    if sender.head is None:
        own: list[Array] = []
        through(tensors, hidden, None, attend_plainly, noting(own))
        new = None if theirs is None else read_other(tensors, theirs, BY_NETWORK).network
        return Replacement(BY_NETWORK, begun.how).instead(own[0], new) - own[0]

    replacement = Replacement(HEAD, begun.how)
    if theirs is not None:
        replacement = replace(replacement, other=read_other(tensors, theirs, HEAD))
    own_sum = attend_plainly(tensors, hidden, None, False)[RESIDUAL]
    edited = edit_step(HEAD_OUTPUTS, replacement.heads(range(sender.head, sender.head + 1)))
    return np.asarray(edited(tensors, hidden, None, False)[RESIDUAL][0] - own_sum)


def last_rows(prompt: Pass, receiver: PathEnd, rows: Sequence[Array], change: Array) -> Array:
    """The rows that leave the last layer where one part alone reads the change."""
    model = prompt.runner.model
    layers = len(model.description.layers)
    if receiver.text == LOGITS:
        return rows[-1] + change

    tensors = model.layer(receiver.layer)
    hidden = rows[receiver.layer]
    if receiver.head is None:
        made = network_of_moved(tensors, hidden, change)
        leaving = through(tensors, hidden, None, attend_plainly, lambda _: made)
    else:
        step, edit = edit_of_head(tensors, hidden, change, receiver)
        leaving = through(tensors, hidden, None, edit_step(step, edit))
    return through_layers(model, leaving, range(receiver.layer + 1, layers))


def network_of_moved(tensors: LayerTensors, hidden: Array, change: Array) -> Array:
    """What the network makes where the stream that it reads is moved."""
    if tensors.d["parallel"]:
        seen: list[Array] = []
        through(tensors, hidden + change, None, attend_plainly, noting(seen))
        return seen[0]

    made: list[Array] = []
    run = edit_step(RESIDUAL, lambda residual: residual + change)
    through(tensors, hidden, None, run, noting(made))
    return made[0]


def edit_of_head(
    tensors: LayerTensors, hidden: Array, change: Array, receiver: PathEnd
) -> tuple[str, Change]:
    """The step that a moved stream is read into, and the edit that puts the head's own rows there."""
    step = receiver.role.upper() or HEAD_OUTPUTS
    moved = prepare_attention(tensors, hidden + change).run([step])[step]
    assert receiver.head is not None
    head = receiver.head
    if receiver.role in {"k", "v"}:  # which heads of a group share
        head = head * len(moved) // tensors.d["heads"]

    def edit(own: Array) -> Array:
        new = own.copy()
        new[..., head, :, :] = moved[head]
        return new

    return step, edit

"""What each head does to the difference of two logits: left out, taken from elsewhere, and by itself.

Layer after layer: all below is computed once, the attention of the layer once, and its heads go through the
layers above it side by side, as members of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_own
from attnctl.base.words import quote
from attnctl.math import Array, Progress
from attnctl.math.engine import carry_out
from attnctl.math.names import B_O, HEAD_OUTPUTS, OUTPUT, RESIDUAL, W_O, X
from attnctl.math.ops import LayerNorm, RMSNorm
from attnctl.math.ops.models import AddScaled
from attnctl.math.ops.products import in_tiles
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import MOST_ROWS, Run, attend_plainly, finish, through
from attnctl.models.layer import LayerTensors, norm_op
from attnctl.models.next import Pass, Ranked, log_sum_exp
from attnctl.models.stream import steps_to_keep
from attnctl.record import Trace

ZERO, MEAN, PATCH = "zero", "mean", "patch"

Change = Callable[[Array], Array]
"""From the outputs of a layer's heads, (head, query, d_v), what takes the place of each."""


@dataclass(frozen=True)
class Effects:
    """The change in logit A − logit B by each head, (layer, head); NaN where it is yet to be computed."""

    prompt: dict[str, Any]
    """The model, the tokens, and the position that is asked about."""
    between: tuple[Ranked, Ranked]
    how: str
    effect: Array
    other: dict[str, Any] = field(default_factory=dict)
    """Of a patch the tokens of the other prompt, and its own difference."""
    direct: dict[str, Any] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        a, b = self.between
        return a.logit - b.logit

    @property
    def strongest(self) -> tuple[int, int]:
        at = int(np.nanargmax(np.abs(self.effect)))
        return divmod(at, self.effect.shape[1])

    @property
    def is_changed(self) -> bool:
        """Whether any head does more to the difference than rounding may."""
        size = max(abs(token.logit) for token in self.between)
        return bool(np.abs(self.effect).max() > 1e-5 * max(size, abs(self.difference)))

    @property
    def asked(self) -> dict[str, Any]:
        """All that the numbers follow from."""
        said = {"between": [token._asdict() for token in self.between], "difference": self.difference}
        return {**self.prompt, **said, "how": self.how, **({"other": self.other} if self.other else {})}

    def to_dict(self) -> dict[str, Any]:
        rows = [[None if np.isnan(cell) else cell for cell in row] for row in self.effect.tolist()]
        return {**self.asked, "effect": rows, **({"direct": self.direct} if self.direct else {})}


def difference_at(prompt: Pass, hidden: Array, place: int, ids: Sequence[int]) -> Array:
    """Logit A − logit B at a position, of rows that left the last layer."""
    logits = prompt.head.logits_of(prompt.head.final(hidden[..., place, :]), ids).astype(np.float64)
    return np.asarray(logits[..., 0] - logits[..., 1])


def begin_effects(prompt: Pass, ids: tuple[int, int], how: str, other: Pass | None = None) -> Effects:
    """The difference as it is, and what is asked. Raises AttnError for misfits."""
    model = prompt.runner.model
    if len(model.description.attending) < len(model.description.layers):
        raise AttnError(f"{model.name}: layers of a delta rule have other heads than those that attend")
    raise_all(
        f"--between: no token {number}; there are {prompt.head.vocab}, from 0"
        for number in ids
        if not 0 <= number < prompt.head.vocab
    )
    if ids[0] == ids[1]:
        raise AttnError(f"--between: both are token {ids[0]}; give two that differ")
    place, d = prompt.place(None), model.description
    final = prompt.head.final(prompt.last()[place])
    row = prompt.head.logits_of(final, ids)
    between = prompt.rank(np.array(ids), row, log_sum_exp(prompt.head.logits(final[None]))[0])
    told = {"model": model.name, "family": d.family, **prompt.runner.header, "at": place}
    beside = {}
    if other is not None:
        count, there = len(prompt.tokens.ids), len(other.tokens.ids)
        if count != there:
            raise AttnError(
                f"--patch: {there} tokens, but the prompt has {count}; a patch goes from place to place"
            )
        end = difference_at(other, other.last(), place, ids)
        beside = {"tokens": other.tokens.labels, "ids": other.tokens.ids, "difference": float(end)}
    empty = np.full((len(d.layers), d["heads"]), np.nan)
    return Effects(told, (between[0], between[1]), how, empty, beside)


def fill_effects(
    prompt: Pass, begun: Effects, other: Pass | None, moved: Progress | None = None
) -> Iterator[Effects]:
    """The effects after each layer that lacks some, until all are there."""
    model, effect = prompt.runner.model, begun.effect.copy()
    hidden = prompt.runner.begin(prompt.tokens)
    source = None if other is None else other.runner.begin(other.tokens)
    layers = len(effect)
    for index in range(layers):
        if np.isnan(effect[index]).any():
            done = index * effect.shape[1]
            for heads, found in effects_of_layer(prompt, begun, index, hidden, source=source):
                effect[index, heads.start : heads.stop] = found
                if moved:
                    moved(done + heads.stop, effect.size)
            yield replace(begun, effect=effect.copy())
        if index < layers - 1:
            hidden = through(model.layer(index), hidden, None, attend_plainly)
            if source is not None:
                source = through(model.layer(index), source, None, attend_plainly)
    yield replace(begun, effect=effect)


def effects_of_layer(
    prompt: Pass, begun: Effects, index: int, hidden: Array, *, source: Array | None = None
) -> Iterator[tuple[range, Array]]:
    """The effects of the heads of a layer, as many at once as go; of a patch `source` came into it."""
    model, (layers, count) = prompt.runner.model, begun.effect.shape
    place, ids = begun.prompt["at"], [token.id for token in begun.between]
    tensors, at_once = model.layer(index), max(1, MOST_ROWS // len(prompt.tokens.ids))
    given = None
    if source is not None:
        given = prepare_attention(tensors, source).run([HEAD_OUTPUTS])[HEAD_OUTPUTS]

    for start in range(0, count, at_once):
        heads = range(start, min(start + at_once, count))
        with in_tiles():  # rows of all members are one product
            rows = through(tensors, hidden, None, edit_heads(replacing(heads, begun.how, given)))
            for later in range(index + 1, layers):
                rows = through(model.layer(later), rows, None, attend_plainly)
        yield heads, difference_at(prompt, rows, place, ids) - begun.difference


def replacing(heads: range, how: str, given: Array | None) -> Change:
    """A batch of head outputs, in each member another head zero, its mean, or that of the other prompt."""

    def change(own: Array) -> Array:
        batch = np.repeat(own[None], len(heads), axis=0)
        for member, head in enumerate(heads):
            if given is not None:
                batch[member, head] = given[head]
            else:
                batch[member, head] = own[head].mean(axis=0) if how == MEAN else 0
        return batch

    return change


def edit_heads(change: Change) -> Run:
    """Carries out attention with the outputs of its heads changed before anything reads them."""

    def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        plan = prepare_attention(replace(tensors, passing=True), hidden, None, memory, cross=cross)
        edits, keep = {HEAD_OUTPUTS: change}, steps_to_keep(tensors, X, RESIDUAL)
        done = carry_out(plan.derivation, plan.given, plan.dtype, edits=edits, keep=keep)
        return plan.record(done)

    return run


def resume(begun: Effects, path: str) -> Effects:
    """Those that an interrupted run left in a file, where they are of the same prompt."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        with open_own(path) as stream:
            left = json.loads(stream.read())
        effect = np.array(left["effect"], np.float64)
        asked = json.loads(json.dumps(begun.asked))
        if effect.shape == begun.effect.shape and {name: left[name] for name in asked} == asked:
            return replace(begun, effect=effect)
    return begun


def read_pair(prompt: Pass, between: Sequence[str | int]) -> tuple[int, int]:
    """The ids of two tokens. Raises AttnError for texts that are no token, or several."""
    problems, ids = [], list[int]()
    for word in between:
        if isinstance(word, int) or (prompt.tokens.text is None and word.strip().isdecimal()):
            ids.append(int(word))
            continue
        pieces = prompt.pieces(word)
        if len(pieces) == 1:
            ids.append(pieces[0])
            continue
        names = " ".join(quote(text) for _, text in prompt.name_tokens(pieces))
        problems.append(
            f"--between: {quote(word)} is {len(pieces)} tokens, {names}; give a word that is one"
            if pieces
            else f"--between: {quote(word)} is no token"
        )
    raise_all(problems)
    return ids[0], ids[1]


# --- what each part writes into the difference itself, norms held as they were ---
#
# With the root of each norm held, the logits are a sum over what was added to the residual stream: the
# embeddings, each head, each network, and the biases (Elhage et al. 2021, "direct logit attribution").

ENOUGH = 1e-4
"""Of the difference, or of the largest share: how far the sum of the shares may be off."""


def direct_shares(prompt: Pass, ids: tuple[int, int], place: int) -> dict[str, Any]:
    """The share of each part in logit A − logit B. Raises AttnError where a model is no such sum."""
    refuse_other_streams(prompt)
    model = prompt.runner.model
    hidden = prompt.runner.begin(prompt.tokens)
    parts, fixed = [hidden[place]], np.zeros(hidden.shape[-1])
    for index in range(len(model.description.layers)):
        tensors = model.layer(index)
        trace = prepare_attention(tensors, hidden).run()
        heads, added = head_contributions(trace, tensors, place)
        out = finish(tensors, hidden, trace[X], trace[RESIDUAL])
        parts += [*heads, out[place] - trace[RESIDUAL][place]]
        fixed, hidden = fixed + added, out
    return add_up(prompt, ids, hidden[place], np.array(parts, np.float64), fixed)


def refuse_other_streams(prompt: Pass) -> None:
    model, head = prompt.runner.model, prompt.head
    d = model.description
    why = {
        "its head has a layer of its own, which is no sum": head.own_layer,
        "it norms the stream itself after each sum": {"attention_sum_norm", "mlp_sum_norm"} & {*d.inner},
        "its stream goes on from a norm": d["from_norm"],
        "each layer predicts and corrects several streams": "altup_router" in d.inner,
        "it multiplies the stream after each layer": "layer_scale" in d.inner,
    }
    for reason, holds in why.items():
        if holds:
            raise AttnError(f"--direct: {d.family}: {reason}; leave it out, ablation needs no sum")


def head_contributions(trace: Trace, tensors: LayerTensors, place: int) -> tuple[Array, Array]:
    """What each head adds to the stream at a position, (head, d_model), and what no head does."""
    d, lines = tensors.d, trace.steps
    rows = trace[lines[OUTPUT].inputs[0]][place].reshape(d["heads"], 1, -1).astype(np.float64)
    parts = (rows @ trace[W_O].reshape(d["heads"], -1, d["width"]).astype(np.float64))[:, 0]
    fixed = trace[B_O].astype(np.float64) if B_O in trace else np.zeros(d["width"])
    residual = lines[RESIDUAL]
    if (last := residual.inputs[1]) != OUTPUT:
        op = lines[last].op
        assert isinstance(op, LayerNorm | RMSNorm)
        factors = [trace[name] for name in lines[last].inputs[1:]]
        parts, fixed = through_norm(op, trace[OUTPUT][place], parts, fixed, factors)
    factor = residual.op.factor if isinstance(residual.op, AddScaled) else 1.0
    return parts * factor, fixed * factor


def through_norm(
    norm: LayerNorm | RMSNorm, row: Array, parts: Array, fixed: Array, factors: list[Array]
) -> tuple[Array, Array]:
    """The parts of a row, and what is in it besides, through its norm with the root of the whole row."""
    _, root = norm.normalize(row[None].astype(np.float64))
    both = np.vstack([parts, fixed])
    if norm.centred:
        both = both - both.mean(axis=-1, keepdims=True)
    both = both / root * (norm.factor(factors[0]) if factors else 1)
    if len(factors) > 1:
        both[-1] += factors[1]
    return both[:-1], both[-1]


def add_up(prompt: Pass, ids: tuple[int, int], row: Array, parts: Array, fixed: Array) -> dict[str, Any]:
    """The shares through the final norm and the unembedding; refused where they do not add up."""
    model, head = prompt.runner.model, prompt.head
    d = model.description
    if d["final_norm"]:
        factors = [model.outer("final_norm", suffix, row.shape) for suffix in d.norm_suffixes]
        parts, fixed = through_norm(norm_op(d, d["eps"]), row, parts, fixed, factors)
    columns = head.columns(ids)
    toward = (columns["W_U"][:, 0] - columns["W_U"][:, 1]).astype(np.float64)
    if head.projects:
        toward = model.outer("final_project", ".weight", (head.width, d["width"])).T @ toward
    scale = 1.0 if head.said["scale"] is None else head.said["scale"]
    bias = float(np.subtract(*columns["b_U"].astype(np.float64))) if "b_U" in columns else 0.0
    shares, rest = parts @ toward * scale, (float(fixed @ toward) + bias) * scale
    raw = head.logits_of(head.final(row), ids, capped=False).astype(np.float64)
    difference, total = float(raw[0] - raw[1]), float(shares.sum() + rest)
    if abs(total - difference) > ENOUGH * max(abs(difference), float(np.abs(shares).max())):
        raise AttnError(
            f"--direct: the shares come to {total:.6g}, not to {difference:.6g}; not all were found"
        )
    layers = shares[1:].reshape(len(d.layers), -1)
    found: dict[str, Any] = {"difference": difference, "capped": head.said["cap"] is not None}
    found |= {"sum": total, "embeddings": float(shares[0]), "biases": rest}
    return {**found, "heads": layers[:, :-1].tolist(), "networks": layers[:, -1].tolist()}

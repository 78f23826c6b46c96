"""What each part of a model does to its next token: left out, taken from elsewhere, and by itself.

Layer after layer: all below is computed once, the attention of the layer once, and its heads go through the
layers above it side by side, as members of a batch; so do the rows of its positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_own
from attnctl.base.words import quote
from attnctl.math import Array, Progress
from attnctl.math.names import B_O, OUTPUT, RESIDUAL, W_O, X
from attnctl.math.ops import LayerNorm, RMSNorm
from attnctl.math.ops.models import AddScaled
from attnctl.math.ops.products import in_tiles
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import MOST_ROWS, attend_plainly, finish, through
from attnctl.models.layer import LayerTensors, Model, norm_op
from attnctl.models.next import Pass, Ranked, log_sum_exp
from attnctl.record import Trace
from attnctl.verbs.effect.metrics import (
    DIFFERENCE,
    DIVERGENCE,
    log_probabilities,
    measure,
    value_before,
)
from attnctl.verbs.effect.parts import HEAD, LAYER, NETWORK, POSITION, Replacement, read_other


@dataclass(frozen=True)
class Effects:
    """The change in logit A − logit B by each head, (layer, head); NaN where it is yet to be computed.

    Or in another metric, by each layer, network or position: (layer, 1) or (layer, position).
    """

    prompt: dict[str, Any]
    """The model, the tokens, and the position that is asked about."""
    between: tuple[Ranked, Ranked]
    how: str
    effect: Array
    other: dict[str, Any] = field(default_factory=dict)
    """Of a patch the tokens of the other prompt, and its own difference."""
    direct: dict[str, Any] = field(default_factory=dict)
    by: str = HEAD
    metric: str = DIFFERENCE
    estimated: bool = False
    """Whether a gradient says the effects, and no pass for each."""

    @property
    def difference(self) -> float:
        a, b = self.between
        return a.logit - b.logit

    @property
    def before(self) -> float:
        """The metric of the prompt as it is."""
        return value_before(self.metric, self.between)

    @property
    def columns(self) -> list[str]:
        """What each column of the effects is of."""
        if self.by == POSITION:
            return list(self.prompt["tokens"])
        if self.by == HEAD:
            return list(map(str, range(self.effect.shape[1])))
        return [self.by]

    @property
    def strongest(self) -> tuple[int, int]:
        """The layer and the column, that of a head, with the largest effect."""
        largest = int(np.nanargmax(np.abs(self.effect)))
        return divmod(largest, self.effect.shape[1])

    @property
    def is_changed(self) -> bool:
        """Whether any part does more to the difference than rounding may."""
        # A difference of large logits is as rough as they are.
        logit = max(abs(token.logit) for token in self.between)
        rounding = 1e-5 * max(logit, abs(self.difference))
        if self.metric == DIVERGENCE:  # which grows by the square of a change
            rounding **= 2
        return bool(np.abs(self.effect).max() > rounding)

    @property
    def asked(self) -> dict[str, Any]:
        """All that the numbers follow from."""
        question = {
            **self.prompt,
            "between": [token._asdict() for token in self.between],
            "difference": self.difference,
            "how": self.how,
            "by": self.by,
            "metric": self.metric,
            "before": self.before,
        }
        if self.estimated:
            question["estimated"] = True
        if self.other:
            question["other"] = self.other
        return question

    def to_dict(self) -> dict[str, Any]:
        data = {**self.asked, "effect": rows_without_nan(self.effect)}
        if self.direct:
            data["direct"] = self.direct
        return data


def rows_without_nan(table: Array) -> list[list[float | None]]:
    """The rows of a table for JSON, which has no NaN."""
    return [[None if np.isnan(cell) else cell for cell in row] for row in table.tolist()]


def difference_at(prompt: Pass, hidden: Array, place: int, ids: Sequence[int]) -> Array:
    """Logit A − logit B at a position, of rows that left the last layer."""
    return measure(prompt, hidden[..., place, :], ids, DIFFERENCE)


def begin_effects(
    prompt: Pass,
    ids: tuple[int, int],
    how: str,
    other: Pass | None = None,
    *,
    by: str = HEAD,
    metric: str = DIFFERENCE,
    at: int | None = None,
) -> Effects:
    """The difference as it is, and what is asked. Raises AttnError for misfits."""
    model = prompt.runner.model
    d = model.description
    if by == HEAD and len(d.attending) < len(d.layers):
        raise AttnError(f"{model.name}: layers that do not attend have other heads")
    if by in {LAYER, NETWORK} and d["one_part"]:
        raise AttnError(f"{model.name}: each of its layers is a mixer or a network; ask --by {POSITION}")
    refuse_pair(ids, prompt.head.vocab)

    place = prompt.place(at)
    columns = {HEAD: d["heads"], POSITION: len(prompt.tokens.ids), LAYER: 1, NETWORK: 1}
    final = prompt.head.final(prompt.last()[place])
    total = log_sum_exp(prompt.head.logits(final[None]))[0]
    first, second = prompt.rank(np.array(ids), prompt.head.logits_of(final, ids), total)
    return Effects(
        prompt={"model": model.name, "family": d.family, **prompt.runner.header, "at": place},
        between=(first, second),
        how=how,
        effect=np.full((len(d.layers), columns[by]), np.nan),
        other={} if other is None else about_other(prompt, other, place, ids, metric),
        by=by,
        metric=metric,
    )


def likeliest_pair(prompt: Pass, at: int | None) -> tuple[int, int]:
    """The two likeliest next tokens, for a metric that does not ask which."""
    row = prompt.last()[prompt.place(at)]
    logits = prompt.head.logits(prompt.head.final(row[None]))[0]
    first, second = np.argsort(-logits, kind="stable")[:2].tolist()
    return first, second


def refuse_pair(ids: tuple[int, int], vocab: int) -> None:
    raise_all(
        f"--between: no token {number}; there are {vocab}, from 0"
        for number in ids
        if not 0 <= number < vocab
    )
    if ids[0] == ids[1]:
        raise AttnError(f"--between: both are token {ids[0]}; give two that differ")


def about_other(prompt: Pass, other: Pass, place: int, ids: tuple[int, int], metric: str) -> dict[str, Any]:
    """What is said of the other prompt. Raises AttnError where it has more tokens, or fewer."""
    count = len(prompt.tokens.ids)
    other_count = len(other.tokens.ids)
    if count != other_count:
        raise AttnError(
            f"--patch: {other_count} tokens, but the prompt has {count}; a patch goes from place to place"
        )

    row = other.last()[place]
    logs = log_probabilities(prompt, prompt.head.final(prompt.last()[place]))
    return {
        "tokens": other.tokens.labels,
        "ids": other.tokens.ids,
        "difference": float(measure(other, row, ids, DIFFERENCE)),
        "value": float(measure(other, row, ids, metric, logs)),
    }


def fill_effects(
    prompt: Pass, begun: Effects, other: Pass | None, moved: Progress | None = None
) -> Iterator[Effects]:
    """The effects after each layer that lacks some, until all are there."""
    model = prompt.runner.model
    effect = begun.effect.copy()
    layers, parts_of_layer = effect.shape
    hidden = prompt.runner.begin(prompt.tokens)
    source = None if other is None else other.runner.begin(other.tokens)
    for index in range(layers):
        if np.isnan(effect[index]).any():
            for parts, changes in effects_of_layer(prompt, begun, index, hidden, source=source):
                effect[index, parts.start : parts.stop] = changes
                if moved:
                    moved(index * parts_of_layer + parts.stop, effect.size)
            yield replace(begun, effect=effect.copy())

        if index < layers - 1:
            hidden = through(model.layer(index), hidden, None, attend_plainly)
            if source is not None:
                source = through(model.layer(index), source, None, attend_plainly)
    yield replace(begun, effect=effect)


def effects_of_layer(
    prompt: Pass, begun: Effects, index: int, hidden: Array, *, source: Array | None = None
) -> Iterator[tuple[range, Array]]:
    """The effects of the parts of a layer, as many at once as go; of a patch `source` came into it."""
    model = prompt.runner.model
    tensors = model.layer(index)
    layers, count = begun.effect.shape
    place = begun.prompt["at"]
    ids = [token.id for token in begun.between]
    replacement = Replacement(begun.by, begun.how)
    if source is not None:
        replacement = replace(replacement, other=read_other(tensors, source, begun.by))
    logs = None
    if begun.metric == DIVERGENCE:
        unchanged = through_layers(model, hidden, range(index, layers))
        logs = log_probabilities(prompt, prompt.head.final(unchanged[place]))

    at_once = max(1, MOST_ROWS // len(prompt.tokens.ids))
    for start in range(0, count, at_once):
        members = range(start, min(start + at_once, count))
        with in_tiles():  # rows of all members are one product
            rows = replacement.through(tensors, hidden, members)
            rows = through_layers(model, rows, range(index + 1, layers))
        yield members, measure(prompt, rows[:, place], ids, begun.metric, logs) - begun.before


def through_layers(model: Model, hidden: Array, layers: range) -> Array:
    for index in layers:
        hidden = through(model.layer(index), hidden, None, attend_plainly)
    return hidden


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What a file that is missing, damaged or of something else may raise when effects are read from it."""


def resume(begun: Effects, path: str) -> Effects:
    """Those that an interrupted run left in a file, where they are of the same prompt."""
    # Whatever else the file holds, or where there is none, all is computed again.
    with suppress(*UNREADABLE):
        with open_own(path) as stream:
            saved = json.loads(stream.read())
        effect = np.array(saved["effect"], np.float64)
        question = json.loads(json.dumps(begun.asked))
        is_same = {name: saved[name] for name in question} == question
        if is_same and effect.shape == begun.effect.shape:
            return replace(begun, effect=effect)
    return begun


def read_pair(prompt: Pass, between: Sequence[str | int]) -> tuple[int, int]:
    """The ids of two tokens. Raises AttnError for texts that are no token, or several."""
    problems: list[str] = []
    ids: list[int] = []
    for word in between:
        # In a prompt of ids a number is an id; in a text it may be a word.
        if isinstance(word, int) or (prompt.tokens.text is None and word.strip().isdecimal()):
            ids.append(int(word))
            continue

        pieces = prompt.pieces(word)
        if len(pieces) == 1:
            ids.append(pieces[0])
        elif pieces:
            names = " ".join(quote(text) for _, text in prompt.name_tokens(pieces))
            tokens = f"{len(pieces)} tokens, {names}; give a word that is one"
            problems.append(f"--between: {quote(word)} is {tokens}")
        else:
            problems.append(f"--between: {quote(word)} is no token")

    raise_all(problems)
    return ids[0], ids[1]


# --- what each part writes into the difference itself, norms held as they were ---
#
# With the root of each norm held, the logits are a sum over what was added to the residual stream: the
# embeddings, each head, each network, and the biases (Elhage et al. 2021, "direct logit attribution").

ENOUGH = 1e-4
"""Of the difference, or of the largest share: how far the sum of the shares may be off."""


class RowSum(NamedTuple):
    """A row of the stream as a sum: what each part wrote into it, (part, d_model), and what no part did."""

    parts: Array
    fixed: Array


def direct_shares(prompt: Pass, ids: tuple[int, int], place: int) -> dict[str, Any]:
    """The share of each part in logit A − logit B. Raises AttnError where a model is no such sum."""
    refuse_other_streams(prompt)
    model = prompt.runner.model
    hidden = prompt.runner.begin(prompt.tokens)
    parts = [hidden[place]]
    fixed = np.zeros(hidden.shape[-1])
    for index in range(len(model.description.layers)):
        tensors = model.layer(index)
        trace = prepare_attention(tensors, hidden).run()
        heads = head_contributions(trace, tensors, place)
        hidden = finish(tensors, hidden, trace[X], trace[RESIDUAL])

        parts += [*heads.parts, hidden[place] - trace[RESIDUAL][place]]
        fixed = fixed + heads.fixed

    return add_up(prompt, ids, hidden[place], RowSum(np.array(parts, np.float64), fixed))


def refuse_other_streams(prompt: Pass) -> None:
    """Refuse models whose last rows are no sum of what parts write into the stream."""
    head = prompt.head
    d = prompt.runner.model.description
    applies = {
        "its head has a layer of its own, which is no sum": head.own_layer,
        "it norms the stream itself after each sum": bool(
            {"attention_sum_norm", "mlp_sum_norm"} & {*d.inner}
        ),
        "its stream goes on from a norm": d["from_norm"],
        "each layer predicts and corrects several streams": "altup_router" in d.inner,
        "it multiplies the stream after each layer": "layer_scale" in d.inner,
    }
    for reason, holds in applies.items():
        if holds:
            raise AttnError(f"--direct: {d.family}: {reason}; leave it out, ablation needs no sum")


def head_contributions(trace: Trace, tensors: LayerTensors, place: int) -> RowSum:
    """What each head of a layer adds to the stream at a position."""
    heads = tensors.d["heads"]
    width = tensors.d["width"]
    steps = trace.steps
    residual = steps[RESIDUAL]
    (concat, *_) = steps[OUTPUT].inputs

    rows = trace[concat][place].reshape(heads, 1, -1).astype(np.float64)
    matrices = trace[W_O].reshape(heads, -1, width).astype(np.float64)
    written = RowSum(
        parts=(rows @ matrices)[:, 0],
        fixed=trace[B_O].astype(np.float64) if B_O in trace else np.zeros(width),
    )

    added = residual.inputs[1]
    if added != OUTPUT:  # the output goes through a norm before it is added
        norm = steps[added]
        assert isinstance(norm.op, LayerNorm | RMSNorm)
        factors = [trace[name] for name in norm.inputs[1:]]
        written = through_norm(norm.op, trace[OUTPUT][place], written, factors)

    factor = residual.op.factor if isinstance(residual.op, AddScaled) else 1.0
    return RowSum(written.parts * factor, written.fixed * factor)


def through_norm(norm: LayerNorm | RMSNorm, row: Array, written: RowSum, factors: list[Array]) -> RowSum:
    """What a row is the sum of through its norm, with the root of the whole row."""
    _, root = norm.normalize(row[None].astype(np.float64))
    rows = np.vstack([written.parts, written.fixed])
    if norm.centred:
        rows = rows - rows.mean(axis=-1, keepdims=True)
    rows = rows / root * (norm.factor(factors[0]) if factors else 1)
    if len(factors) > 1:  # the bias is of no part
        rows[-1] += factors[1]
    return RowSum(rows[:-1], rows[-1])


class Direction(NamedTuple):
    """What takes a row that leaves the last layer to logit A − logit B: row @ vector · scale + bias."""

    vector: Array
    scale: float
    bias: float


def direction_between(prompt: Pass, ids: tuple[int, int]) -> Direction:
    head = prompt.head
    columns = head.columns(ids)
    vector = (columns["W_U"][:, 0] - columns["W_U"][:, 1]).astype(np.float64)
    if head.projects:
        model = prompt.runner.model
        shape = (head.width, model.description["width"])
        vector = model.outer("final_project", ".weight", shape).T @ vector

    scale = 1.0 if head.settings["scale"] is None else head.settings["scale"]
    bias = 0.0
    if "b_U" in columns:
        bias_a, bias_b = columns["b_U"].astype(np.float64)
        bias = float(bias_a - bias_b)
    return Direction(vector, scale, bias)


def add_up(prompt: Pass, ids: tuple[int, int], row: Array, written: RowSum) -> dict[str, Any]:
    """The shares through the final norm and the unembedding; refused where they do not add up."""
    model = prompt.runner.model
    head = prompt.head
    d = model.description
    if d["final_norm"]:
        factors = [model.outer("final_norm", suffix, row.shape) for suffix in d.norm_suffixes]
        written = through_norm(norm_op(d, d["eps"]), row, written, factors)

    toward = direction_between(prompt, ids)
    shares = written.parts @ toward.vector * toward.scale
    biases = (float(written.fixed @ toward.vector) + toward.bias) * toward.scale
    total = float(shares.sum() + biases)

    logits = head.logits_of(head.final(row), ids, capped=False).astype(np.float64)
    difference = float(logits[0] - logits[1])
    largest = max(abs(difference), float(np.abs(shares).max()))
    if abs(total - difference) > ENOUGH * largest:
        raise AttnError(
            f"--direct: the shares come to {total:.6g}, not to {difference:.6g}; not all were found"
        )

    # In the order of `direct_shares`: the embeddings, then of each layer its heads and its network.
    of_layers = shares[1:].reshape(len(d.layers), -1)
    return {
        "difference": difference,
        "capped": head.settings["cap"] is not None,
        "sum": total,
        "embeddings": float(shares[0]),
        "biases": biases,
        "heads": of_layers[:, :-1].tolist(),
        "networks": of_layers[:, -1].tolist(),
    }

"""What the weights of each head say without a text: whether it copies, what it looks for.

With the weights of norms taken into the matrices, the OV circuit of a head, W_E W_V W_O W_U, says what a
token that is attended to does to each logit, and its QK circuit, W_E W_Q W_Kᵀ W_Eᵀ, which tokens a token
looks for (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). Both are vocabulary ×
vocabulary, but of the rank of a head: all eigenvalues but zeros are those of the product turned round,
d_k × d_k. A score is their sum over the sum of their sizes: 1 where every token makes itself likelier, or
looks for itself. What is the same for all tokens is left out, as softmax takes no notice of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import Element
from attnctl.math import Array, Progress
from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.description import Description
from attnctl.models.layer import Model
from attnctl.models.next import LogitHead
from attnctl.models.source import open_model
from attnctl.verbs.effect import rows_without_nan
from attnctl.verbs.effect.view import table_of

BLOCK = 4096
"""Rows of the vocabulary that are read at a time."""

NOTHING = 1e-6
"""Of the sizes of its factors: a product that rounding may have made."""

MEANINGS = {
    "copying": "OV: 1 where what is attended to becomes likelier itself, -1 where it becomes less likely",
    "matching": "QK, without positions: 1 where a token looks for the same token",
    "previous": "QK of the learned positions: the share of places whose best key is the one before",
}


@dataclass(frozen=True)
class Spectra:
    """Scores of every head by name, (layer, head); NaN in layers without K and V of their own."""

    model: str
    scores: dict[str, Array]

    def to_dict(self) -> dict[str, Any]:
        definitions = {name: MEANINGS[name] for name in self.scores}
        rows = {name: rows_without_nan(table) for name, table in self.scores.items()}
        return {"model": self.model, "definitions": definitions, **rows}


def find_spectra(name: str, moved: Progress | None = None) -> Spectra:
    """The scores of every head. Raises AttnError where a model has no such matrices."""
    model = open_model(name)
    d = model.description
    head = LogitHead(model)
    if head.own_layer or head.projects or d["kv_rank"] or d["project"]:
        raise AttnError(
            f"{name}: {d.family}'s heads do not read and write its embeddings by one matrix each"
        )

    circuits = Circuits(*token_products(model, head), learned_positions(model))
    names = [score for score in MEANINGS if score != "previous" or circuits.positions is not None]
    scores = {score: np.full((len(d.layers), d["heads"]), np.nan) for score in names}
    for index in d.attending:
        plan = prepare_attention(model.layer(index), blank_rows(model, 1))
        if "W_K" not in plan.given:  # K and V are those of an earlier layer
            continue
        for number, head_matrices in enumerate(matrices_of_heads(d, plan.given)):
            for score, value in circuits.scores_of(head_matrices).items():
                scores[score][index, number] = value
        if moved:
            moved(index + 1, len(d.layers))
    return Spectra(name, scores)


def learned_positions(model: Model) -> Array | None:
    d = model.description
    if not d["positions"] or "position" not in d.stack.outer:
        return None
    return model.outer("position", ".weight", (model.rows("position"), d["width"]))


class HeadMatrices(NamedTuple):
    """The matrices of a head, with the weights of norms taken into them."""

    q: Array
    k: Array
    v: Array
    o: Array


def matrices_of_heads(d: Description, given: Mapping[str, Array]) -> Iterator[HeadMatrices]:
    before: Array = np.ones(d["width"])
    if "norm_weight" in given:
        before = given["norm_weight"] + d["plus_one"]
    w_o = given["W_O"].reshape(d["heads"], -1, d["width"])
    if "output_norm_weight" in given:
        w_o = w_o * (given["output_norm_weight"] + d["plus_one"])

    before = before[:, None]
    queries_of_kv = len(given["W_Q"]) // len(given["W_K"])
    for number in range(d["heads"]):
        kv = number // queries_of_kv
        yield HeadMatrices(
            q=before * given["W_Q"][number],
            k=before * given["W_K"][kv],
            v=before * given["W_V"][kv],
            o=w_o[number],
        )


class Circuits(NamedTuple):
    """What the circuits of all heads have in common: W_Eᵀ W_E, W_Uᵀ W_E, and the learned positions."""

    alike: Array
    read_out: Array
    positions: Array | None

    def scores_of(self, head: HeadMatrices) -> dict[str, float]:
        scores = {
            "copying": positive_share(head.o, self.read_out, head.v),
            "matching": positive_share(head.k.T, self.alike, head.q),
        }
        if self.positions is not None:
            queries = self.positions @ head.q
            keys = self.positions @ head.k
            scores["previous"] = share_of_previous(queries @ keys.T)
        return scores


def token_products(model: Model, head: LogitHead) -> tuple[Array, Array]:
    """W_Eᵀ W_E and W_Uᵀ W_E, (width, width), of tokens less their mean, read a block at a time."""
    d = model.description
    width = d["width"]
    rows = model.rows("embed")
    vocab = min(rows, head.vocab)
    final: Array | int = 1
    if d["final_norm"]:
        final = model.outer("final_norm", ".weight", (width,)) + d["plus_one"]

    alike = np.zeros((width, width))
    read_out = np.zeros((width, width))
    token_sum = np.zeros(width)
    logit_sum = np.zeros(width)
    for start in range(0, vocab, BLOCK):
        part = np.arange(start, min(start + BLOCK, vocab))
        tokens = model.outer("embed", ".weight", (rows, width), part)
        logits = head.read(head.weight, head.vocab, width, part=part) * final
        if d["norm"] == "layer":  # which takes the mean of a row off
            tokens = tokens - tokens.mean(axis=-1, keepdims=True)
            logits = logits - logits.mean(axis=-1, keepdims=True)

        alike += tokens.T @ tokens
        read_out += logits.T @ tokens
        token_sum += tokens.sum(axis=0)
        logit_sum += logits.sum(axis=0)

    # Σ (x − mean) (y − mean)ᵀ = Σ x yᵀ − Σ x Σ yᵀ / n
    alike -= np.outer(token_sum, token_sum) / vocab
    read_out -= np.outer(logit_sum, token_sum) / vocab
    return alike, read_out


def positive_share(*factors: Array) -> float:
    """Σ λ / Σ |λ| of the eigenvalues of a product; 0 where all are, but for rounding."""
    eigenvalues = np.linalg.eigvals(np.linalg.multi_dot(factors))
    size = np.abs(eigenvalues).sum()
    if not size > NOTHING * prod(map(np.linalg.norm, factors)):
        return 0.0
    return float(eigenvalues.real.sum() / size)


def share_of_previous(scores: Array) -> float:
    """The share of rows, but for the first, whose largest score up to their own place is the one before."""
    seen = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)[1:]
    before = np.arange(len(seen))
    return float((seen.argmax(axis=-1) == before).mean())


def spectra_lines(found: Spectra, screen: Screen) -> Iterator[Element]:
    for name, table in found.scores.items():
        yield [(f"{name}  ", "label"), (screen.printable(MEANINGS[name]), "dim")]
        yield from table_of(table, screen)
        yield []
    yield [("With a prompt: attnctl effect PROMPT --model DIR --between A B", "")]

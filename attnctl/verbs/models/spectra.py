"""What the weights of each head say without a text: whether it copies, what it looks for.

With the weights of norms taken into the matrices, the OV circuit of a head, W_E W_V W_O W_U, says what a
token that is attended to does to each logit, and its QK circuit, W_E W_Q W_Kᵀ W_Eᵀ, which tokens a token
looks for (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). Both are vocabulary ×
vocabulary, but of the rank of a head: all eigenvalues but zeros are those of the product turned round,
d_k × d_k. A score is their sum over the sum of their sizes: 1 where every token makes itself likelier, or
looks for itself. What is the same for all tokens is left out, as softmax takes no notice of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import Element
from attnctl.math import Array, Progress
from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.layer import Model
from attnctl.models.next import LogitHead
from attnctl.models.source import open_model
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
        rows = {
            name: [[None if np.isnan(cell) else cell for cell in row] for row in table.tolist()]
            for name, table in self.scores.items()
        }
        return {"model": self.model, "definitions": {name: MEANINGS[name] for name in rows}, **rows}


def find_spectra(name: str, moved: Progress | None = None) -> Spectra:
    """The scores of every head. Raises AttnError where a model has no such matrices."""
    model = open_model(name)
    d, head = model.description, LogitHead(model)
    if head.own_layer or head.projects or d["kv_rank"] or d["project"]:
        raise AttnError(
            f"{name}: {d.family}'s heads do not read and write its embeddings by one matrix each"
        )
    alike, read_out = token_products(model, head)
    places = None
    if d["positions"] and "position" in d.stack.outer:
        places = model.outer("position", ".weight", (model.rows("position"), d["width"]))
    names = [name for name in MEANINGS if name != "previous" or places is not None]
    scores = {name: np.full((len(d.layers), d["heads"]), np.nan) for name in names}
    for index in d.attending:
        given = prepare_attention(model.layer(index), blank_rows(model, 1)).given
        norm = given["norm_weight"] + d["plus_one"] if "norm_weight" in given else np.ones(d["width"])
        if "W_K" not in given:  # K and V are those of an earlier layer
            continue
        w_q, w_k, w_v = (given[f"W_{symbol}"] for symbol in "QKV")
        after = given["output_norm_weight"] + d["plus_one"] if "output_norm_weight" in given else 1
        w_o = given["W_O"].reshape(d["heads"], -1, d["width"]) * after
        share = len(w_q) // len(w_k)
        for at in range(d["heads"]):
            q, k, v = (norm[:, None] * w for w in (w_q[at], w_k[at // share], w_v[at // share]))
            scores["copying"][index, at] = positive_share(w_o[at], read_out, v)
            scores["matching"][index, at] = positive_share(k.T, alike, q)
            if places is not None:
                scores["previous"][index, at] = share_of_previous((places @ q) @ (places @ k).T)
        if moved:
            moved(index + 1, len(d.layers))
    return Spectra(name, scores)


def token_products(model: Model, head: LogitHead) -> tuple[Array, Array]:
    """W_Eᵀ W_E and W_Uᵀ W_E, (width, width), of tokens less their mean, read a block at a time."""
    d, width, vocab = model.description, model.description["width"], min(model.rows("embed"), head.vocab)
    final = model.outer("final_norm", ".weight", (width,)) + d["plus_one"] if d["final_norm"] else 1
    alike, read_out, sums = np.zeros((width, width)), np.zeros((width, width)), np.zeros((2, width))
    for start in range(0, vocab, BLOCK):
        part = np.arange(start, min(start + BLOCK, vocab))
        both = (
            model.outer("embed", ".weight", (model.rows("embed"), width), part),
            head.read(head.weight, head.vocab, width, part=part) * final,
        )
        if d["norm"] == "layer":  # which takes the mean of a row off
            both = tuple(rows - rows.mean(axis=-1, keepdims=True) for rows in both)
        tokens, unembed = both
        alike += tokens.T @ tokens
        read_out += unembed.T @ tokens
        sums += [rows.sum(axis=0) for rows in both]
    token, logit = sums
    return alike - np.outer(token, token) / vocab, read_out - np.outer(logit, token) / vocab


def positive_share(*factors: Array) -> float:
    """Σ λ / Σ |λ| of the eigenvalues of a product; 0 where all are, but for rounding."""
    found = np.linalg.eigvals(np.linalg.multi_dot(factors))
    size = np.abs(found).sum()
    return float(found.real.sum() / size) if size > NOTHING * prod(map(np.linalg.norm, factors)) else 0.0


def share_of_previous(scores: Array) -> float:
    """The share of rows, but for the first, whose largest score up to their own place is the one before."""
    seen = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)[1:]
    return float((seen.argmax(axis=-1) == np.arange(len(seen))).mean())


def spectra_lines(found: Spectra, screen: Screen) -> Iterator[Element]:
    for name, table in found.scores.items():
        yield [(f"{name}  ", "label"), (screen.printable(MEANINGS[name]), "dim")]
        yield from table_of(table, screen)
        yield []
    yield [("With a prompt: attnctl effect PROMPT --model DIR --between A B", "")]

"""What is measured of the next token: a difference of logits, a logit, a probability, a divergence."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from attnctl.base.words import quote
from attnctl.math import Array
from attnctl.models.next import Pass, Ranked, log_sum_exp

DIFFERENCE = "difference"
LOGIT = "logit"
LOGPROB = "logprob"
PROBABILITY = "probability"
DIVERGENCE = "divergence"

METRICS = {
    DIFFERENCE: "logit {a} − logit {b}",
    LOGIT: "logit {a}",
    LOGPROB: "ln p({a})",
    PROBABILITY: "p({a})",
    DIVERGENCE: "Kullback–Leibler of the next token from what it was, in nats",
}
"""What may be measured, and how it is written of the tokens A and B."""


def metric_words(metric: str, between: Sequence[Ranked]) -> str:
    a, b = (quote(token.text) for token in between)
    return METRICS[metric].format(a=a, b=b)


def value_before(metric: str, between: Sequence[Ranked]) -> float:
    """The metric of the prompt as it is."""
    a, b = between
    if metric == DIFFERENCE:
        return a.logit - b.logit
    if metric == LOGIT:
        return a.logit
    if metric == DIVERGENCE:
        return 0.0
    if metric == PROBABILITY:
        return a.probability
    return log(a.probability) if a.probability else float("-inf")


def measure(
    prompt: Pass, rows: Array, ids: Sequence[int], metric: str, before: Array | None = None
) -> Array:
    """The metric of rows that left the last layer, (…, d_model).

    A divergence is that from the logarithms of probabilities that the prompt had `before`.
    """
    head = prompt.head
    final = head.final(rows)
    if metric in {DIFFERENCE, LOGIT}:
        logits = head.logits_of(final, ids).astype(np.float64)
        found = logits[..., 0]
        return np.asarray(found if metric == LOGIT else found - logits[..., 1])

    logs = log_probabilities(prompt, final)
    if metric == DIVERGENCE:
        assert before is not None
        return np.asarray(np.maximum(np.sum(np.exp(before) * (before - logs), axis=-1), 0))
    of_token = logs[..., ids[0]]
    return np.asarray(np.exp(of_token) if metric == PROBABILITY else of_token)


def log_probabilities(prompt: Pass, final: Array) -> Array:
    """ln p of every token, of the rows that the unembedding reads."""
    rows = final[None] if final.ndim == 1 else final
    logits = prompt.head.logits(rows).astype(np.float64)
    logs = logits - log_sum_exp(logits)[..., None]
    return np.asarray(logs.reshape(*final.shape[:-1], -1))

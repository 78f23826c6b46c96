"""All effects at once, by the gradient: attribution patching (Nanda 2023; Kramár et al. 2024).

To first order a part that is replaced changes the metric by gradient · (other − own), over all its numbers.
One pass forward and one back give the gradient by every part; the passes that patching needs, one a part,
are what it is an estimate of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Progress
from attnctl.models.backward import LayerSlopes, PartsMade, norm_slope, refuse_backward, turn_layer
from attnctl.models.layer import norm_op
from attnctl.models.next import Pass
from attnctl.verbs.effect import Effects
from attnctl.verbs.effect.metrics import DIFFERENCE, DIVERGENCE, LOGIT, PROBABILITY, log_probabilities
from attnctl.verbs.effect.parts import HEAD, LAYER, NETWORK, OtherLayer, Replacement, read_other

BLOCK = 2**22
"""Numbers of the unembedding that are read at a time."""


def refuse_attribution(prompt: Pass, metric: str) -> None:
    """Refuse what has no slope, or none that is worked out here."""
    refuse_backward(prompt.runner.model.description)
    if prompt.head.own_layer:
        family = prompt.runner.model.description.family
        raise AttnError(f"--attribution: the head of {family} has a layer of its own; leave it out")
    if metric == DIVERGENCE:
        raise AttnError(
            "--attribution: a divergence has no slope where nothing is changed; give another --metric"
        )


def estimate_effects(
    prompt: Pass, begun: Effects, other: Pass | None, moved: Progress | None = None
) -> Iterator[Effects]:
    """The effects of all parts, estimated by one backward pass."""
    refuse_attribution(prompt, begun.metric)
    model = prompt.runner.model
    rows = list(prompt.states())
    others = [None] * len(rows) if other is None else list(other.states())
    place = begun.prompt["at"]
    slope = np.zeros(rows[-1].shape)
    slope[place] = slope_at_last(prompt, begun, rows[-1][place])

    effect = begun.effect.copy()
    layers = len(effect)
    for index in reversed(range(layers)):
        tensors = model.layer(index)
        back = turn_layer(tensors, rows[index], slope)
        replacement = Replacement(begun.by, begun.how)
        theirs = others[index]
        if theirs is not None:
            replacement = replace(replacement, other=read_other(tensors, theirs, begun.by))
        effect[index] = estimate(replacement, rows[index], back.parts, back.slopes)

        slope = back.slopes.hidden
        if moved:
            moved(layers - index, layers)
    yield replace(begun, effect=effect)


def estimate(replacement: Replacement, hidden: Array, parts: PartsMade, slopes: LayerSlopes) -> Array:
    """Gradient · (other − own) of each part of a layer."""
    other: OtherLayer = replacement.other
    if replacement.by == HEAD:
        change = replacement.instead(parts.heads, other.heads) - parts.heads
        return np.einsum("htd,htd->h", slopes.heads, change, dtype=np.float64)
    if replacement.by == NETWORK:
        change = replacement.instead(parts.network, other.network) - parts.network
        return np.array([np.vdot(slopes.network, change)])
    if replacement.by == LAYER:
        of_output = replacement.instead(parts.output, other.output) - parts.output
        of_network = replacement.instead(parts.network, other.network) - parts.network
        by_output = np.vdot(slopes.output_alone, of_output)
        return np.array([by_output + np.vdot(slopes.network, of_network)])

    change = replacement.instead(hidden, other.hidden) - hidden
    return np.einsum("td,td->t", slopes.hidden, change, dtype=np.float64)


# --- the slope of what is asked ---


def slope_at_last(prompt: Pass, asked: Effects, row: Array) -> Array:
    """The gradient of the metric by the row that leaves the last layer."""
    model = prompt.runner.model
    head = prompt.head
    d = model.description
    at_final = slope_at_final(prompt, asked, head.final(row))
    if head.projects:
        matrix = model.outer("final_project", ".weight", (head.width, d["width"]))
        at_final = at_final @ matrix
    if not d["final_norm"]:
        return at_final

    own = row[: d["width"]]
    factors = [model.outer("final_norm", suffix, own.shape) for suffix in d.norm_suffixes]
    return norm_slope(norm_op(d, d["eps"]), own, factors, at_final)


def slope_at_final(prompt: Pass, asked: Effects, final: Array) -> Array:
    """The gradient by the row that the unembedding reads."""
    head = prompt.head
    ids = [token.id for token in asked.between]
    if asked.metric in {DIFFERENCE, LOGIT}:
        signs = np.array([1.0, -1.0 if asked.metric == DIFFERENCE else 0.0])
        plain = head.logits_of(final, ids, capped=False).astype(np.float64)
        return np.asarray(
            head.columns(ids)["W_U"].astype(np.float64) @ (signs * slope_of_bend(prompt, plain))
        )

    # ln p of A: the logit of A less the mean of all, each counted by its share.
    chances = np.exp(log_probabilities(prompt, final))
    by_logit = -chances
    by_logit[ids[0]] += 1
    if asked.metric == PROBABILITY:
        by_logit *= chances[ids[0]]
    return through_unembedding(prompt, final, by_logit)


def slope_of_bend(prompt: Pass, plain: Array) -> Array:
    """By how much a logit moves with its product: a scale, and the slope of a cap's tanh."""
    settings = prompt.head.settings
    factor = 1.0 if settings["scale"] is None else float(settings["scale"])
    cap = settings["cap"]
    if cap is None:
        return np.full(plain.shape, factor)
    return factor * (1 - np.tanh(plain / cap) ** 2)


def through_unembedding(prompt: Pass, final: Array, by_logit: Array) -> Array:
    """Σ of the unembedding's rows, each times what its logit counts, a block of tokens at a time."""
    head = prompt.head
    total = np.zeros(head.width)
    at_once = max(1, BLOCK // head.width)
    for start in range(0, head.vocab, at_once):
        ids = range(start, min(start + at_once, head.vocab))
        plain = head.logits_of(final, ids, capped=False).astype(np.float64)
        counted = by_logit[ids.start : ids.stop] * slope_of_bend(prompt, plain)
        total += head.columns(ids)["W_U"] @ counted
    return total

"""Mistakes in softmax itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import log

import numpy as np

from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.math.ops import Copy, Softmax
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import at

STEP = at(WEIGHTS, Softmax)

LEAST_DROPPED = 1.001
"""Weights that grow by less are as they were: what is 0 was lost in another way."""


def grown_or_cut(case: WrongStep) -> Array | None:
    """By how much each weight that can be told grew, 0 where it was cut; None unless some were, not all."""
    if case.first != WEIGHTS or not isinstance(case.op(WEIGHTS), Softmax):
        return None
    told = (case.expected.value > 2 * case.expected.error) & np.isfinite(case.found)
    times: Array = case.found[told] / case.expected.value[told]
    return times if times.any() and not times.all() else None


def plant_dropout(case: WrongStep) -> Iterator[Plant]:
    """Survivors grown by one and the same factor, the others 0: p follows from the factor."""
    times = grown_or_cut(case)
    if times is not None and (factor := float(np.median(times[times != 0]))) > LEAST_DROPPED:
        yield Plant(case.put(WEIGHTS, wrong.Dropped(case.found != 0, factor)), rate(factor))


def plant_bare_dropout(case: WrongStep) -> Iterator[Plant]:
    times = grown_or_cut(case)
    if times is not None:
        yield Plant(case.put(WEIGHTS, wrong.Dropped(case.found != 0, 1.0)), f"{(times == 0).mean():.0%}")


def rate(factor: float) -> str:
    """The p of dropout, of the 1 / (1 − p) by which what is kept grows."""
    return f"{1 - 1 / factor:.3g}"


def shows_nan(case: WrongStep) -> bool:
    told = ~case.record.unseen(case.found.shape) if case.first == WEIGHTS else True
    return bool((np.isnan(case.found) & told).any())


def naive_softmax(dtype: str) -> wrong.ByRow:
    """exp(s) / Σ exp(s), the row maximum not subtracted: exp overflows, and ∞ / ∞ is NaN.

    Where nothing overflows it is another mistake that gives NaN, where nothing is seen.
    """

    def divide(s: Array) -> Array:
        grown = np.exp(s.astype(dtype))
        if not np.isinf(grown).any():
            return wrong.softmax(s)
        return (grown / wrong.total(grown)).astype(np.float64)

    return wrong.ByRow(divide)


def constant_in_sum(
    form: Callable[[Array, float], Array], said: Callable[[float], str | None], starts: tuple[float, ...]
) -> Plants:
    """Plants a constant in the sum that softmax divides by; `said` is None where it is another mistake."""
    return STEP.fitted(lambda _, constant: wrong.By(lambda s: form(s, constant)), starts, said)


def whole_keys(count: float) -> str | None:
    return f"{count:.0f} keys" if count > 1 and abs(count - round(count)) <= 1e-6 * count else None


def keep_highest(s: Array, count: int) -> Array:
    """Softmax over so many keys of each row, those of the highest scores."""
    least = np.sort(s, axis=-1)[..., -count, None]
    return wrong.softmax(np.where(s >= least, s, -np.inf))


def counts_of_keys(case: WrongStep) -> range:
    """Fewer keys than there are; of one alone it is another mistake."""
    return range(2, min(case.size("key") or 0, MOST_KEPT + 1))


MOST_KEPT = 64
"""Keys of a row that are tried as those that are kept."""

OVERFLOWING = ("float32", "float64", "float16")
SMALL = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-12)
LARGE = (0.1, 1.0, 5.0, 30.0)

of_weights = about(WEIGHTS)
of_softmax = about(WEIGHTS, subject="softmax")
of_sum = about(WEIGHTS, subject="softmax", fitted=True)

SOFTMAX = (
    of_weights(
        "nan-where-nothing-is-seen",
        "softmax divides 0 by 0 in rows that see nothing",
        "give such rows zeros, np.where(mask.any(-1, keepdims=True), weights, 0)",
        STEP.instead(
            wrong.ByRow(lambda s: np.where(np.isneginf(s).all(-1, keepdims=True), np.nan, wrong.softmax(s)))
        ),
        why="exp(-inf - -inf) is NaN, and most tests have no row without a key.",
        meant="blind",
        equivalent="a convention, as zeros are and the mean",
        example="e = np.exp(masked_scores - masked_scores.max(axis=-1, keepdims=True))\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_weights(
        "no-max-subtraction",
        "exp overflows {}, as the row maximum is not subtracted",
        "take np.exp(s - s.max(axis=-1, keepdims=True))",
        STEP.where(shows_nan).instead({dtype: naive_softmax(dtype) for dtype in OVERFLOWING}),
        why="The formula has no maximum in it, and small scores do not need one.",
        meant="large",
        example="e = np.exp(scaled_scores)\nattention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_softmax(
        "softmax-over-queries",
        "softmax runs over queries",
        "use axis=-1",
        STEP.instead(wrong.SoftmaxOver(axes=(-2,)), wrong.GrownOver()),
        across=True,
        seen="nerdai/llms-from-scratch-rs#30",
        why="axis=-2, or dim=1 of an array that has gained a head axis: columns sum to 1, not rows.",
        example="attention_weights = softmax(scaled_scores, axis=-2)",
    ),
    of_softmax(
        "softmax-over-heads",
        "softmax runs over heads",
        "use axis=-1",
        STEP.by(lambda s: wrong.softmax(s, axis=-3), lambda s: wrong.over(wrong.grown(s), -3)),
        why="axis=0 was right before there were heads, or dim=1 of (batch, head, query, key).",
        example="attention_weights = softmax(scaled_scores, axis=-3)",
    ),
    of_softmax(
        "softmax-over-batch",
        "softmax runs over {}",
        "use axis=-1",
        STEP.where(lambda case: (case.size("batch") or 1) > 1).by(
            {
                "the batch": lambda s: wrong.softmax(s, axis=-4),
                "the batch and queries": lambda s: wrong.softmax(s, axis=(-4, -2)),
            }
        ),
        across=True,
        seen="PetrochukM/PyTorch-NLP#2; jadore801120/attention-is-all-you-need-pytorch#52",
        why="Softmax was given axis 0, or none, where arrays have a batch or are (batch · query, key).",
        meant="batch",
        example="attention_weights = softmax(scaled_scores, axis=0)",
    ),
    of_softmax(
        "softmax-over-everything",
        "softmax runs over queries and keys together",
        "use axis=-1",
        STEP.instead(wrong.SoftmaxOver(axes=(-2, -1))),
        across=True,
        why="exp is divided by e.sum() without an axis.",
        example="e = np.exp(scaled_scores)\nattention_weights = e / e.sum(axis=(-1, -2), keepdims=True)",
    ),
    of_softmax(
        "softmax-sums-transposed",
        "each column is divided by the sum of a row, where each row should be",
        "divide by e.sum(axis=-1, keepdims=True)",
        STEP.instead(wrong.ByOtherSums(wrong.grown), wrong.ByOtherSums(np.exp)),
        across=True,
        why="e.sum(-1) of as many queries as keys has the shape of a row, and broadcasts as one.",
        example="e = np.exp(scaled_scores)\nattention_weights = e / e.sum(axis=-1)[:, None]",
    ),
    of_softmax(
        "no-softmax",
        "there is no softmax",
        "take softmax over keys (axis=-1)",
        STEP.instead(Copy(), wrong.By(lambda s: np.where(np.isneginf(s), 0.0, s))),
        why="A debugging shortcut that stayed, or a function that returns scores.",
        example="attention_weights = scaled_scores",
    ),
    of_weights(
        "exp-base-2",
        "exp is taken to another base than e: exp2 without the factor log2(e), or with it twice",
        "take np.exp2(s * np.log2(np.e)), or np.exp(s)",
        STEP.by(lambda s: wrong.softmax(s * np.log(2.0)), lambda s: wrong.softmax(s / np.log(2.0))),
        subject="scale",
        why="Kernels use exp2 because it is quicker, and need the factor log2(e) in the scale.",
        example="e = np.exp2(scaled_scores)\nattention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_softmax(
        "softmax-plus-one",
        "softmax divides by 1 + Σ",
        "divide by the sum of exp alone; rows then sum to 1",
        STEP.by(lambda s: wrong.with_constant(s, 1.0), lambda s: wrong.with_logit(s, 1.0)),
        why="“Softmax off by one”, or a safeguard against dividing by 0.",
        example="e = np.exp(scaled_scores)\nattention_weights = e / (1 + e.sum(axis=-1, keepdims=True))",
    ),
    of_softmax(
        "softmax-twice",
        "softmax is taken twice",
        "take it once",
        STEP.by(
            lambda s: wrong.softmax(wrong.softmax(s)),
            lambda s: wrong.softmax(np.where(np.isneginf(s), s, wrong.softmax(s))),
        ),
        why="A function that already ends in softmax is wrapped in another one.",
        example="attention_weights = softmax(softmax(scaled_scores))",
    ),
    of_softmax(
        "softmax-unnormalized",
        "the weights are not divided by their sum",
        "divide by exp's sum over keys",
        STEP.by(wrong.grown, np.exp),
        why="The division is left to a later step that was never written.",
        example="attention_weights = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))",
    ),
    of_softmax(
        "softmax-normalized-twice",
        "the weights are divided by exp's sum twice",
        "divide once, when all keys are summed",
        STEP.by(lambda s: wrong.shared_out(wrong.softmax(s), wrong.total(wrong.grown(s)))),
        why="Each block is divided by its sum, and the whole once more.",
        example="e = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True) ** 2",
    ),
    of_softmax(
        "softmax-log",
        "the weights are their logarithms",
        "use softmax, not log_softmax",
        STEP.by(lambda s: np.log(wrong.softmax(s))),
        why="log_softmax stands beside softmax in every library, for the loss.",
        example="attention_weights = np.log(softmax(scaled_scores))",
    ),
    of_softmax(
        "softmax-sigmoid",
        "the weights are a sigmoid of the scores",
        "use softmax over keys",
        STEP.by(lambda s: 1 / (1 + np.exp(-s))),
        why="Sigmoid attention, or a gate copied from another layer.",
        example="attention_weights = 1 / (1 + np.exp(-scaled_scores))",
    ),
    of_softmax(
        "softmax-relu",
        "the weights are the positive scores, without exp",
        "use softmax over keys",
        STEP.by(lambda s: wrong.over(np.maximum(s, 0.0), -1), lambda s: np.maximum(s, 0.0)),
        why="Linear and ReLU attention leave exp out on purpose; here it was meant.",
        example="attention_weights = np.maximum(scaled_scores, 0)",
    ),
    of_softmax(
        "softmax-hard",
        "only the key of the highest score gets weight",
        "use softmax, not argmax",
        STEP.by(lambda s: (s == s.max(axis=-1, keepdims=True)).astype(np.float64)),
        why="argmax is quick to write, and right where one score is far above the others.",
        example="attention_weights = 1.0 * (scaled_scores == scaled_scores.max(axis=-1, keepdims=True))",
    ),
    of_softmax(
        "mean-of-values",
        "every key that may be seen has the same weight, whatever the scores are",
        "take softmax of the scores",
        STEP.by(lambda s: wrong.softmax(np.where(np.isneginf(s), s, 0.0))),
        why="A baseline, or scores that never reach softmax; nearly equal scores do not show it.",
        seen="ScalingIntelligence/KernelBench#165",
        example="attention_weights = np.ones_like(scaled_scores) / scaled_scores.shape[-1]",
    ),
    of_weights(
        "dropout-left-on",
        "dropout is on (p = {}), so that some weights are 0 and the others too large",
        "call model.eval(), or set dropout to 0",
        plant_dropout,
        seen="NVIDIA/torch-harmonics#221; facebookresearch/vjepa2#160; huggingface/transformers#1146",
        why="The module is still in training mode: nobody called model.eval().",
        meant="long",
        example="kept = np.random.RandomState(0).random_sample(attention_weights.shape) < 0.9\n"
        "attention_weights = np.where(kept, attention_weights / 0.9, 0)",
    ),
)

SUMS = (
    of_weights(
        "dropout-not-scaled",
        "{} of the weights are 0 and the others as they were: dropout without 1 / (1 − p), or a late mask",
        "divide what dropout keeps by 1 − p, call model.eval(), or hide scores before softmax",
        plant_bare_dropout,
        fitted=True,
        why="A kernel multiplies by the random mask, and the factor stands in another line.",
        seen="NVIDIA/apex#816; rasbt/LLMs-from-scratch#431",
        meant="long",
        example="kept = np.random.RandomState(0).random_sample(attention_weights.shape) < 0.9\n"
        "attention_weights = np.where(kept, attention_weights, 0)",
    ),
    of_weights(
        "top-k",
        "only the {} keys of the highest scores get weight, which nothing asks for",
        "take softmax over all keys that may be seen",
        STEP.best(lambda _, count: wrong.ByRow(partial(keep_highest, count=count)), counts_of_keys),
        fitted=True,
        why="Sparse attention keeps some keys of each row; the sizes of a test are often below that.",
        meant="long",
        example="least = np.sort(scaled_scores, axis=-1)[..., -min(4, scaled_scores.shape[-1]), None]\n"
        "attention_weights = softmax(np.where(scaled_scores >= least, scaled_scores, -np.inf))",
    ),
    of_sum(
        "softmax-epsilon",
        "{} is added to the sum that softmax divides by",
        "divide by the sum alone: after the maximum is subtracted it is at least 1",
        constant_in_sum(wrong.with_constant, lambda c: f"{c:.3g}" if 0 < c < 1 else None, SMALL),
        why="1e-6 in the denominator, to be safe: in half precision, or with 1e-3, it shows.",
        example="e = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + 0.01)",
        slight="e = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + 1e-4)",
    ),
    of_sum(
        "keys-padded",
        "softmax counts {} of zeros, the padding of the last block",
        "hide keys from the sentence's length on before softmax",
        constant_in_sum(wrong.with_logit, whole_keys, LARGE),
        seen="flashinfer-ai/flashinfer#5090; jax-ml/jax#27224; 66RING/tiny-flash-attention#12",
        why="The last block is filled up with zeros, whose scores are 0 and not −∞.",
        example="e = np.exp(scaled_scores)\nattention_weights = e / (e.sum(axis=-1, keepdims=True) + 3)",
    ),
    of_sum(
        "sink",
        "softmax counts a key more whose score is {} everywhere (an attention sink), and drops its weight",
        "take softmax over the keys alone, or check a model that has sinks",
        constant_in_sum(wrong.with_logit, lambda c: f"{log(c):.4g}" if c > 0 else None, LARGE),
        why="Code for gpt-oss, or “softmax off by one” with a learnt logit.",
        example="e = np.exp(scaled_scores)\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + np.exp(0.7))",
    ),
)

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
    right = case.expected.value
    is_told = (right > 2 * case.expected.error) & np.isfinite(case.found)
    times: Array = case.found[is_told] / right[is_told]

    if not times.any() or times.all():
        return None
    return times


def plant_dropout(case: WrongStep) -> Iterator[Plant]:
    """Survivors grown by one and the same factor, the others 0: p follows from the factor."""
    times = grown_or_cut(case)
    if times is None:
        return
    factor = float(np.median(times[times != 0]))
    if factor > LEAST_DROPPED:
        dropped = wrong.Dropped(case.found != 0, factor)
        yield Plant(case.put(WEIGHTS, dropped), rate(factor))


def plant_bare_dropout(case: WrongStep) -> Iterator[Plant]:
    times = grown_or_cut(case)
    if times is None:
        return
    dropped = wrong.Dropped(case.found != 0, 1.0)
    share = (times == 0).mean()
    yield Plant(case.put(WEIGHTS, dropped), f"{share:.0%}")


def rate(factor: float) -> str:
    """The p of dropout, of the 1 / (1 − p) by which what is kept grows."""
    return f"{1 - 1 / factor:.3g}"


def shows_nan(case: WrongStep) -> bool:
    is_nan = np.isnan(case.found)
    if case.first == WEIGHTS:
        is_nan = is_nan & ~case.record.unseen(case.found.shape)
    return bool(is_nan.any())


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

    def with_number(_: Softmax, constant: float) -> wrong.By:
        return wrong.By(lambda s: form(s, constant))

    return STEP.fitted(with_number, starts, said)


def epsilon(constant: float) -> str | None:
    """The words for a constant that is there for safety; from 1 on it is another mistake."""
    return f"{constant:.3g}" if 0 < constant < 1 else None


def whole_keys(count: float) -> str | None:
    is_whole = abs(count - round(count)) <= 1e-6 * count
    return f"{count:.0f} keys" if count > 1 and is_whole else None


def logit(constant: float) -> str | None:
    """The score of a key that adds this constant to the sum."""
    return f"{log(constant):.4g}" if constant > 0 else None


def keep_highest(s: Array, count: int) -> Array:
    """Softmax over so many keys of each row, those of the highest scores."""
    least = np.sort(s, axis=-1)[..., -count, None]
    return wrong.softmax(np.where(s >= least, s, -np.inf))


def of_highest(_: Softmax, count: int) -> wrong.ByRow:
    return wrong.ByRow(partial(keep_highest, count=count))


def counts_of_keys(case: WrongStep) -> range:
    """Fewer keys than there are; of one alone it is another mistake."""
    keys = case.size("key") or 0
    return range(2, min(keys, MOST_KEPT + 1))


MOST_KEPT = 64
"""Keys of a row that are tried as those that are kept."""


def has_members(case: WrongStep) -> bool:
    return (case.size("batch") or 1) > 1


def nan_of_nothing(s: Array) -> Array:
    """Softmax, and 0 / 0 in rows that see nothing."""
    sees_nothing = np.isneginf(s).all(-1, keepdims=True)
    return np.where(sees_nothing, np.nan, wrong.softmax(s))


def over_heads(s: Array) -> Array:
    return wrong.softmax(s, axis=-3)


def grown_over_heads(s: Array) -> Array:
    """exp(s − the row's maximum), divided by its sum over heads."""
    return wrong.over(wrong.grown(s), -3)


def over_batch(s: Array) -> Array:
    return wrong.softmax(s, axis=-4)


def over_batch_and_queries(s: Array) -> Array:
    return wrong.softmax(s, axis=(-4, -2))


def zeros_for_hidden(s: Array) -> Array:
    return np.where(np.isneginf(s), 0.0, s)


def base_2(s: Array) -> Array:
    """2^s / Σ 2^s."""
    return wrong.softmax(s * np.log(2.0))


def base_e_twice(s: Array) -> Array:
    """Softmax of log2(e) · s, e in the place of the 2 that this factor is for."""
    return wrong.softmax(s / np.log(2.0))


def one_beside_grown(s: Array) -> Array:
    """1 in the sum after the maximum is taken off."""
    return wrong.with_constant(s, 1.0)


def one_beside_exp(s: Array) -> Array:
    """1 in the sum of exp(s) itself."""
    return wrong.with_logit(s, 1.0)


def softmax_twice(s: Array) -> Array:
    return wrong.softmax(wrong.softmax(s))


def softmax_masked_twice(s: Array) -> Array:
    """Softmax of weights, of which the mask hides the same ones again."""
    once = wrong.softmax(s)
    return wrong.softmax(np.where(np.isneginf(s), s, once))


def divided_twice(s: Array) -> Array:
    sums = wrong.total(wrong.grown(s))
    return wrong.shared_out(wrong.softmax(s), sums)


def log_softmax(s: Array) -> Array:
    return np.log(wrong.softmax(s))


def sigmoid(s: Array) -> Array:
    return 1 / (1 + np.exp(-s))


def positive(s: Array) -> Array:
    return np.maximum(s, 0.0)


def positive_shared(s: Array) -> Array:
    """The positive scores, divided by their sum."""
    return wrong.over(positive(s), -1)


def highest(s: Array) -> Array:
    """1 for the highest score of a row, 0 for the others."""
    top = s.max(axis=-1, keepdims=True)
    return (s == top).astype(np.float64)


def same_for_all(s: Array) -> Array:
    """One weight for every key that may be seen."""
    return wrong.softmax(np.where(np.isneginf(s), s, 0.0))


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
        STEP.instead(wrong.ByRow(nan_of_nothing)),
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
        STEP.by(over_heads, grown_over_heads),
        why="axis=0 was right before there were heads, or dim=1 of (batch, head, query, key).",
        example="attention_weights = softmax(scaled_scores, axis=-3)",
    ),
    of_softmax(
        "softmax-over-batch",
        "softmax runs over {}",
        "use axis=-1",
        STEP.where(has_members).by(
            {"the batch": over_batch, "the batch and queries": over_batch_and_queries}
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
        STEP.instead(Copy(), wrong.By(zeros_for_hidden)),
        why="A debugging shortcut that stayed, or a function that returns scores.",
        example="attention_weights = scaled_scores",
    ),
    of_weights(
        "exp-base-2",
        "exp is taken to another base than e: exp2 without the factor log2(e), or with it twice",
        "take np.exp2(s * np.log2(np.e)), or np.exp(s)",
        STEP.by(base_2, base_e_twice),
        subject="scale",
        why="Kernels use exp2 because it is quicker, and need the factor log2(e) in the scale.",
        example="e = np.exp2(scaled_scores)\nattention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_softmax(
        "softmax-plus-one",
        "softmax divides by 1 + Σ",
        "divide by the sum of exp alone; rows then sum to 1",
        STEP.by(one_beside_grown, one_beside_exp),
        why="“Softmax off by one”, or a safeguard against dividing by 0.",
        example="e = np.exp(scaled_scores)\nattention_weights = e / (1 + e.sum(axis=-1, keepdims=True))",
    ),
    of_softmax(
        "softmax-twice",
        "softmax is taken twice",
        "take it once",
        STEP.by(softmax_twice, softmax_masked_twice),
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
        STEP.by(divided_twice),
        why="Each block is divided by its sum, and the whole once more.",
        example="e = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True) ** 2",
    ),
    of_softmax(
        "softmax-log",
        "the weights are their logarithms",
        "use softmax, not log_softmax",
        STEP.by(log_softmax),
        why="log_softmax stands beside softmax in every library, for the loss.",
        example="attention_weights = np.log(softmax(scaled_scores))",
    ),
    of_softmax(
        "softmax-sigmoid",
        "the weights are a sigmoid of the scores",
        "use softmax over keys",
        STEP.by(sigmoid),
        why="Sigmoid attention, or a gate copied from another layer.",
        example="attention_weights = 1 / (1 + np.exp(-scaled_scores))",
    ),
    of_softmax(
        "softmax-relu",
        "the weights are the positive scores, without exp",
        "use softmax over keys",
        STEP.by(positive_shared, positive),
        why="Linear and ReLU attention leave exp out on purpose; here it was meant.",
        example="attention_weights = np.maximum(scaled_scores, 0)",
    ),
    of_softmax(
        "softmax-hard",
        "only the key of the highest score gets weight",
        "use softmax, not argmax",
        STEP.by(highest),
        why="argmax is quick to write, and right where one score is far above the others.",
        example="attention_weights = 1.0 * (scaled_scores == scaled_scores.max(axis=-1, keepdims=True))",
    ),
    of_softmax(
        "mean-of-values",
        "every key that may be seen has the same weight, whatever the scores are",
        "take softmax of the scores",
        STEP.by(same_for_all),
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
        STEP.best(of_highest, counts_of_keys),
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
        constant_in_sum(wrong.with_constant, epsilon, SMALL),
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
        constant_in_sum(wrong.with_logit, logit, LARGE),
        why="Code for gpt-oss, or “softmax off by one” with a learnt logit.",
        example="e = np.exp(scaled_scores)\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + np.exp(0.7))",
    ),
)

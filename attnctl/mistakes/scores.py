"""Mistakes in scaling scores, squeezing them, and adding to them: ALiBi's slopes, a given bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np

from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, MASKED, WEIGHTS
from attnctl.math.ops import (
    Add,
    Copy,
    Hide,
    MatMul,
    MatMulT,
    Op,
    Project,
    Scale,
    Slope,
    Softmax,
    Squeeze,
)
from attnctl.math.rules import alibi_slopes
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import at, planted_fit, shifts, spoken, spoken_after

FACTORS = (1 / 16, 1 / 4, 1 / 2, 0.8, 1.25, 2.0, 4.0, 16.0, -1.0, -4.0)
"""Factors from which another scale is sought, as parts of the right one."""

SAME_SCALE = 1e-6
"""Two scales are one when they are apart by no more than this part."""

SCALED = "scaled_scores"
CAPPED = "softcapped_scores"

SCALE = at(SCALED, Scale)
CAP = at(CAPPED, Squeeze)
SOFTMAX = at(WEIGHTS, Softmax)


def factor_of(scale: Scale) -> float:
    return 1 / sqrt(scale.d_k) if scale.factor is None else scale.factor


def bend(change: Callable[[Array], Array]) -> wrong.By:
    """Softmax of the scores changed, −∞ left as it is."""

    def softmax(s: Array) -> Array:
        hidden = np.isneginf(s)
        return wrong.softmax(np.where(hidden, s, change(np.where(hidden, 0.0, s))))

    return wrong.By(softmax)


def plant_by_d_k(case: WrongStep) -> Iterator[Plant]:
    for scale in SCALE.right(case).values():
        own = scale.d_k if scale.factor is None else None
        d_k = case.size("d_k") or own
        if d_k:
            yield Plant(case.put(SCALED, Scale(factor=1 / d_k)))


def plant_usual_scale(case: WrongStep) -> Iterator[Plant]:
    """1 / √d_k where the factor of the plan is another one, whose part beside it is told."""
    for scale in SCALE.right(case).values():
        d_k = scale.d_k if scale.d_k > 1 else case.size("d_k") or 0
        if d_k <= 1 or scale.factor is None:
            continue

        part_of_usual = scale.factor * sqrt(d_k)
        if abs(part_of_usual - 1) > SAME_SCALE:
            usual = Plant(case.put(SCALED, Scale(d_k)), str(d_k))
            yield replace(usual, fix="{scale}")


def plant_by_root_of_d_model(case: WrongStep) -> Iterator[Plant]:
    all_columns = (case.size("head") or 0) * (case.size("d_k") or 0)
    d_model = case.size("d_model") or all_columns
    if d_model:
        by_root = Scale(factor=1 / sqrt(d_model))
        yield from SCALE.instead(by_root)(case)


def plant_twice(case: WrongStep) -> Iterator[Plant]:
    """Scaled once more: at the scores, in Q Kᵀ, in Q, or after they were written down."""
    scale = case.op(SCALED)
    if not isinstance(scale, Scale):
        return

    again = Scale(factor=factor_of(scale))

    def scaled(op: Op) -> Op:
        return wrong.Then(op, again)

    for steps in (SCALE, at("scores", MatMulT), at("Q", Project)):
        yield from steps.instead(scaled)(case)
    yield from SOFTMAX.instead(bend(again.apply))(case)


def plant_already_scaled(case: WrongStep) -> Iterator[Plant]:
    name = case.first
    op = case.op(name)
    if name not in ("scores", "Q", "K") or not isinstance(op, (MatMulT, Project)):
        return
    for scale in SCALE.right(case).values():
        ops = {name: wrong.Then(op, scale), SCALED: Copy()}
        yield Plant(case.put_all(ops), name)


def plant_other_factor(case: WrongStep) -> Iterator[Plant]:
    scale = case.op(SCALED)
    if isinstance(scale, Scale):
        right = factor_of(scale)

        def multiplied(factor: float) -> WrongStep:
            return case.put(SCALED, Scale(factor=factor))

        starts = [right * part for part in FACTORS]
        say = partial(said_as_divisor, right=right)
        yield from planted_fit(case, multiplied, starts, say)

    # What the scaled scores were is only open where nobody wrote them down.
    if SCALED in case.record or not isinstance(scale, Scale):
        yield from SOFTMAX.fitted(softmax_of_times, FACTORS, say_times)(case)


def softmax_of_times(_: Op, factor: float) -> wrong.By:
    """Softmax of the scores times a factor."""
    return bend(lambda s: factor * s)


def say_times(factor: float) -> str:
    return f"softmax is taken of {spoken(factor)} times the scores"


def said_as_divisor(factor: float, right: float) -> str:
    """Divided by √17; multiplied by 2 where that is shorter."""
    divisor = spoken(1 / factor, 1 / right)
    size = abs(factor)
    has_two_digits = f"{size:.15g}" == f"{size:.2g}"
    is_shorter = "√" not in divisor and has_two_digits
    if size >= 1 or is_shorter:
        return f"the scores are multiplied by {spoken(factor, right)}"
    return f"the scores are divided by {divisor}"


LEAST_CAP = 0.05
"""The least cap that is one: by a smaller one all keys weigh alike, which has other causes."""


def squeeze_by(cap: float) -> Squeeze:
    return Squeeze(max(abs(cap), LEAST_CAP))


of_softcap = about(CAPPED, subject="softcap", meant="capped")
of_scale = about(SCALED, subject="scale")

SCALING = (
    of_scale(
        "no-scale",
        "the scores are not scaled",
        "{scale}",
        SCALE.without(),
        seen="flexflow/flexflow-train#467; mlc-ai/mlc-llm#3426",
        why="The division is easily lost in copying the formula, and small sizes hide it: with d_k = 1 "
        "nothing changes.",
        example="scaled_scores = scores",
    ),
    of_scale(
        "scale-usual",
        "the scores are divided by √{}, the root of d_k, where another scale is meant",
        "{scale}",
        plant_usual_scale,
        seen="ggml-org/llama.cpp#8197; onnxruntime/mobius#548",
        why="1 / √d_k is what most models have; Gemma's is of query_pre_attn_scalar, YaRN has a factor.",
        meant="scaled",
        example="scaled_scores = scores / np.sqrt(d_k)",
    ),
    of_scale(
        "scale-by-d_k",
        "the scores are divided by d_k rather than its root",
        "{scale}",
        plant_by_d_k,
        why="The root is dropped, or d_k is taken for a name of the root.",
        example="scaled_scores = scores / d_k",
    ),
    of_scale(
        "scale-by-sqrt-d_model",
        "the scores are divided by √d_model",
        "{scale}",
        plant_by_root_of_d_model,
        seen="aladdinpersson/Machine-Learning-Collection#65; omihub777/ViT-CIFAR#12",
        why="With one head d_model and d_k are the same; the code is kept when heads are added.",
        example="scaled_scores = scores / np.sqrt(d_model)",
    ),
    about("Q", "scores", "scaled_scores", WEIGHTS, subject="scale")(
        "scaled-twice",
        "the scores are scaled twice",
        "scale Q or Q Kᵀ, not both",
        plant_twice,
        why="Q is scaled where it is made, and a library function scales again.",
        example="scores = (Q / np.sqrt(d_k)) @ K.swapaxes(-1, -2)",
    ),
    about("scores", subject="scale")(
        "scores-already-scaled",
        "the array called {} holds scaled numbers",
        "write it down before it is scaled, or say --name scores=scaled_scores if it is the scores",
        plant_already_scaled,
        why="What goes into softmax is what people call scores.",
        example="scores = Q @ K.swapaxes(-1, -2) / np.sqrt(d_k)\nscaled_scores = scores",
        equivalent="the output is right",
    ),
)

OTHER_SCALE = (
    about("scaled_scores", WEIGHTS, fitted=True, subject="scale")(
        "scale-other",
        "{}",
        "{scale}, or give the factor that is meant with --scale",
        plant_other_factor,
        seen="esceptico/perceiver-io#9; BobMcDear/attorch#14",
        why="A temperature, or a model's own scale (Gemma's query_pre_attn_scalar).",
        example="scaled_scores = scores * 0.3",
        slight="scaled_scores = scores * 1.003 / np.sqrt(d_k)",
    ),
)


def plant_after_mask(case: WrongStep) -> Iterator[Plant]:
    """−∞ squeezed to −cap, so that hidden keys are seen again; the steps are recorded in either order."""
    cap = case.op(CAPPED)
    hide = case.op(MASKED)
    if not isinstance(cap, Squeeze) or not isinstance(hide, Hide):
        return
    previous, *mask = case.derivation[MASKED].inputs
    if previous != CAPPED:
        return

    # Capped scores are recorded as they should be, and hidden ones show the cap.
    filled = replace(hide, hidden=-cap.cap)
    yield Plant(case.put(MASKED, filled))

    # Or they are recorded masked: as what masked scores are copied from, or as what softmax reads.
    scaled = (*case.derivation[CAPPED].inputs, *mask)
    ops = {CAPPED: wrong.Then(hide, cap), MASKED: hide, WEIGHTS: case.derivation[WEIGHTS].op}
    yield Plant(case.put_all({**ops, MASKED: Copy()}, {CAPPED: scaled}))
    yield Plant(case.put_all(ops, {CAPPED: scaled, MASKED: scaled, WEIGHTS: (CAPPED,)}))


def plant_before_scale(case: WrongStep) -> Iterator[Plant]:
    cap = case.op(CAPPED)
    scale = case.op(SCALED)
    if isinstance(cap, Squeeze) and isinstance(scale, Scale):
        ops = {SCALED: Copy(), CAPPED: wrong.Then(cap, scale)}
        yield Plant(case.put_all(ops))


def uncapped(case: WrongStep) -> bool:
    return CAPPED not in case.derivation


def never_multiplied(op: Squeeze) -> wrong.By:
    """tanh(s / cap)."""
    return wrong.By(lambda s: np.tanh(s / op.cap))


def never_divided(op: Squeeze) -> wrong.By:
    """cap · tanh(s)."""
    return wrong.By(lambda s: op.cap * np.tanh(s))


def clipped(op: Squeeze) -> wrong.By:
    return wrong.By(lambda s: np.clip(s, -op.cap, op.cap))


def other_cap(_: Squeeze, cap: float) -> Squeeze:
    return Squeeze(abs(cap))


def caps_beside(op: Squeeze) -> list[float]:
    """Caps from which another one is sought, as parts of the right one."""
    return [op.cap * part for part in (0.1, 0.3, 0.6, 1.5, 3.0, 10.0)]


def capped_before_mask(op: Scale, cap: float) -> wrong.Then:
    return wrong.Then(op, squeeze_by(cap))


def capped_beside_mask(_: Softmax, cap: float) -> wrong.By:
    """Softmax of scores that are squeezed, those that are hidden left alone."""
    return bend(squeeze_by(cap).apply)


def capped_after_mask(op: Softmax, cap: float) -> wrong.Then:
    """Softmax of scores that are squeezed, −∞ to −cap with the others."""
    return wrong.Then(squeeze_by(cap), op)


CAPS = (0.5, 2.0, 8.0, 20.0, 50.0)

SOFTCAP = (
    about("softcapped_scores", "masked_scores", subject="softcap", meant="capped causal")(
        "softcap-after-mask",
        "the soft cap comes after the mask, so that hidden scores are −cap instead of −∞",
        "squeeze first, then mask",
        plant_after_mask,
        why="tanh(−∞) is −1: the cap is applied to what is masked already.",
        example="hidden = np.triu(np.ones((n, n), bool), k=1)\n"
        "masked_scores = softcapped_scores = 3 * np.tanh(np.where(hidden, -np.inf, scaled_scores) / 3)",
    ),
    of_softcap(
        "softcap-missing",
        "there is no soft cap",
        "squeeze the scaled scores: {cap}",
        CAP.without(),
        why="Fused kernels often have no soft cap, and drop it.",
        example="softcapped_scores = scaled_scores",
    ),
    of_softcap(
        "softcap-before-scale",
        "the soft cap comes before the scale",
        "scale first, then squeeze",
        plant_before_scale,
        why="The cap is applied to Q Kᵀ, before √d_k.",
        example="softcapped_scores = 3 * np.tanh(scores / 3) / np.sqrt(d_k)\ndel scaled_scores",
    ),
    of_softcap(
        "softcap-half",
        "the scores are not both divided by the cap and multiplied by it again",
        "take {cap}",
        CAP.instead(never_multiplied, never_divided, wrong.By(np.tanh)),
        why="c · tanh(s) or tanh(s / c): one of the two factors is left out.",
        example="softcapped_scores = np.tanh(scaled_scores / 3)",
    ),
    of_softcap(
        "softcap-clipped",
        "the scores are cut off at the cap rather than squeezed",
        "take {cap}, not np.clip",
        CAP.instead(clipped),
        why="A cap sounds like np.clip.",
        example="softcapped_scores = np.clip(scaled_scores, -3, 3)",
    ),
    of_softcap(
        "softcap-other",
        "the cap is {}",
        "take {cap}; if this cap is meant, say so with --softcap",
        CAP.fitted(other_cap, caps_beside, spoken),
        fitted=True,
        why="Gemma 2 has one cap for attention, 50, and one for its logits, 30.",
        example="softcapped_scores = 5 * np.tanh(scaled_scores / 5)",
    ),
    about("scaled_scores", WEIGHTS, fitted=True, subject="softcap", meant="loud")(
        "softcap-unasked",
        "the scores are squeezed into (−cap, cap), which nothing asks for; the cap is {}",
        "say --softcap {} if it is meant",
        SCALE.where(uncapped).fitted(capped_before_mask, CAPS, spoken),
        SOFTMAX.where(uncapped).fitted(capped_beside_mask, CAPS, spoken),
        SOFTMAX.where(uncapped).fitted(capped_after_mask, CAPS, spoken),
        why="The code was written for Gemma 2; the model at hand has no cap.",
        example="scaled_scores = 2 * np.tanh(scaled_scores / 2)",
        slight="scaled_scores = 50 * np.tanh(scaled_scores / 50)",
    ),
)


# --- what is added to scores ---

BIASED = ("alibi_scores", "biased_scores")
SLOPE = at(*BIASED, Slope)
BIAS = at("biased_scores", Add)


def by_slopes(op: Slope, slopes: Callable[[int], Array]) -> wrong.By:
    """The scores less other slopes, which so many heads have, times the distance."""

    def biased(s: Array) -> Array:
        heads = s.shape[-3]
        of_heads = slopes(heads)[:, None, None]
        return s - of_heads * op.distances(s.shape)

    return wrong.By(biased)


def power_slopes(heads: int) -> Array:
    """2^(−8h/heads), h from 1: those of the paper where the number of heads is a power of two."""
    return 2.0 ** (-8.0 * (np.arange(heads) + 1) / heads)


def slopes_from_0(heads: int) -> Array:
    return 2.0 ** (-8.0 * np.arange(heads) / heads)


def slopes_of_eight(heads: int) -> Array:
    return 2.0 ** -(np.arange(heads) + 1.0)


def first_slopes_of_more(heads: int) -> Array:
    """Those of the first of so many heads as the next power of two is."""
    power = int(np.ceil(np.log2(heads)))
    return alibi_slopes(2**power)[:heads]


SLOPES: dict[str, Callable[[int], Array]] = {
    "they have the wrong sign": lambda heads: -alibi_slopes(heads),
    "their exponents begin at 0": slopes_from_0,
    "they are in reverse order": lambda heads: alibi_slopes(heads)[::-1],
    "they are 2^(−8h/heads), though the number of heads is no power of two": power_slopes,
    "they are those of eight heads": slopes_of_eight,
    "they are those of the first heads of the next power of two": first_slopes_of_more,
}

DISTANCES: dict[str, Callable[[Array, Array], Array]] = {
    "query − key with its sign": lambda query, key: query - key,
    "key − query with its sign": lambda query, key: key - query,
    "its square": lambda query, key: (query - key) ** 2,
    "its root": lambda query, key: np.sqrt(np.abs(query - key)),
    "the key's position alone": lambda query, key: -key + 0 * query,
}


def slopes_times(op: Slope, factor: float) -> wrong.By:
    return by_slopes(op, lambda heads: factor * alibi_slopes(heads))


def one_slope(op: Slope, slope: float) -> wrong.By:
    return by_slopes(op, lambda heads: slope * np.ones(heads))


def all_slopes(op: Slope) -> dict[str, Op]:
    return {said: by_slopes(op, slopes) for said, slopes in SLOPES.items()}


def by_distance(op: Slope, distance: Callable[[Array, Array], Array]) -> wrong.By:
    def biased(s: Array) -> Array:
        query, key = op.positions(s.shape)
        return s - op.slopes(s.shape) * distance(query, key)

    return wrong.By(biased)


def by_slots(op: Slope) -> dict[str, Op]:
    """Slots in place of the positions that are given."""
    if not op.places:
        return {}
    return {"that of their slots: the positions that are given are not read": replace(op, places=())}


def all_distances(op: Slope) -> dict[str, Op]:
    return {said: by_distance(op, distance) for said, distance in DISTANCES.items()}


def from_another_query(op: Slope, by: int) -> wrong.By:
    """Distances as they are from a query so many places later."""
    return by_distance(op, lambda query, key: np.abs(query + by - key))


def moved_queries(case: WrongStep) -> list[int]:
    """By how many places the query may be off.

    From one place farther every key is on the same side: to softmax, that is the distance with its sign.
    """
    places = max(case.size("query") or 0, case.size("key") or 0)
    return shifts(places - 2)


def say_moved_query(by: int) -> str:
    side = "later" if by > 0 else "earlier"
    return f"that from a query {abs(by)} keys {side}"


def plant_bias_before_scale(case: WrongStep) -> Iterator[Plant]:
    scale = case.op(SCALED)
    if not isinstance(case.op("scores"), MatMulT) or not isinstance(scale, Scale):
        return

    for name, op in at(*BIASED, Add, Slope).right(case).items():

        def both(s: Array, *bias: Array, op: Op = op) -> Array:
            alone = op.apply(np.zeros_like(s), *bias)
            return s + scale.apply(alone)

        yield Plant(case.put(name, wrong.By(both)))


def plant_bias_after_softmax(case: WrongStep) -> Iterator[Plant]:
    has_weights = SOFTMAX.right(case) and at(HEAD_OUTPUTS, MatMul).right(case)
    if not BIAS.right(case) or not has_weights:
        return

    def late_bias(s: Array, b: Array) -> Array:
        return wrong.softmax(s) + b

    scores, bias = case.derivation["biased_scores"].inputs
    last_scores = case.derivation[WEIGHTS].inputs[0]
    ops = {"biased_scores": wrong.By(np.copy), WEIGHTS: wrong.By(late_bias)}
    reads = {"biased_scores": (scores,), WEIGHTS: (last_scores, bias)}
    yield Plant(case.put_all(ops, reads))


def bias_transposed(s: Array, b: Array) -> Array:
    return s + b.swapaxes(-1, -2)


def bias_of_first_head(s: Array, b: Array) -> Array:
    return s + b[..., :1, :, :]


def times_bias(s: Array, b: Array) -> Array:
    return s * b


def exp_of_bias(s: Array, b: Array) -> Array:
    return s + np.exp(b)


def scaled_bias(_: Add, factor: float) -> wrong.By:
    return wrong.By(lambda s, b: s + factor * b)


of_bias = about(*BIASED, subject="bias", meant="bias")
of_alibi = about(*BIASED, subject="bias", meant="alibi", fitted=True)

BIASES = (
    of_bias(
        "bias-scaled",
        "the bias is added before the scale, and scaled with the scores",
        "scale Q Kᵀ first, then add",
        plant_bias_before_scale,
        why="The bias is added to Q Kᵀ, and then all is divided by √d_k.",
        example="biased_scores = (scores + bias) / np.sqrt(d_k)",
    ),
    of_bias(
        "bias-after-softmax",
        "the bias is added to the weights, after softmax",
        "add it to the scores",
        plant_bias_after_softmax,
        why="The bias is added where the weights are shown.",
        example="biased_scores = scaled_scores\nattention_weights = softmax(scaled_scores) + bias",
    ),
    of_alibi(
        "alibi-slopes",
        "ALiBi's slopes are not those of its paper: {}",
        "{slopes}; subtract slope · distance",
        SLOPE.instead(all_slopes),
        SLOPE.fitted(slopes_times, (-1.0, 0.3, 0.6, 2.0, 5.0), spoken_after("they are multiplied by ")),
        SLOPE.fitted(one_slope, (0.03, 0.3, 1.0, -0.3), spoken_after("they are all ")),
        why="The slopes are a series of their own for heads that are no power of two, and its start is "
        "easily shifted.",
        example="slopes = 2.0 ** (-8 * np.arange(heads) / heads)\n"
        "biased_scores = scaled_scores - slopes[:, None, None] * distance",
    ),
    of_alibi(
        "alibi-distance",
        "ALiBi's distance is not |query − key| but {}",
        "subtract slope · |query − key|, a cache's keys counted in",
        SLOPE.instead(by_slots),
        SLOPE.instead(all_distances),
        SLOPE.best(from_another_query, moved_queries, say_moved_query),
        why="query − key is positive where causal attention looks; without a mask its sign matters.",
        example="slopes = 2.0 ** (-8 * (np.arange(heads) + 1) / heads)\n"
        "biased_scores = scaled_scores - slopes[:, None, None] * (np.arange(n)[:, None] - np.arange(n))",
    ),
    about("biased_scores", fitted=True, subject="bias", across=True, meant="bias")(
        "score-bias-wrong",
        "{}",
        "add the bias to the scaled scores once, a head's to its own, rows for queries",
        BIAS.by(
            {
                "the bias is transposed": bias_transposed,
                "the first head's bias is added to all": bias_of_first_head,
                "the scores are multiplied by the bias": times_bias,
                "the bias is exponentiated before it is added": exp_of_bias,
            }
        ),
        BIAS.fitted(scaled_bias, (-1.0, 0.3, 2.0, 5.0), spoken_after("the bias is multiplied by ")),
        why="A bias of relative positions is laid out (key, query) in some libraries.",
        example="biased_scores = scaled_scores + bias.swapaxes(-1, -2)",
    ),
)

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
from attnctl.mistakes.mistake import Plant, WrongStep, about, either
from attnctl.mistakes.plants import at, planted_fit, shifts, spoken, spoken_after

FACTORS = (1 / 16, 1 / 4, 1 / 2, 0.8, 1.25, 2.0, 4.0, 16.0, -1.0, -4.0)  # as parts of the right one
SAME_SCALE = 1e-6
"""Two scales are one when they are apart by no more than this part."""

SCALED, CAPPED = "scaled_scores", "softcapped_scores"
SCALE, CAP, SOFTMAX = at(SCALED, Scale), at(CAPPED, Squeeze), at(WEIGHTS, Softmax)


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
        if d_k := case.size("d_k") or (scale.d_k if scale.factor is None else None):
            yield Plant(case.put(SCALED, Scale(factor=1 / d_k)))


def plant_usual_scale(case: WrongStep) -> Iterator[Plant]:
    """1 / √d_k where the factor of the plan is another one, whose part beside it is told."""
    for scale in SCALE.right(case).values():
        d_k = scale.d_k if scale.d_k > 1 else case.size("d_k") or 0
        if d_k > 1 and scale.factor is not None and abs(scale.factor * sqrt(d_k) - 1) > SAME_SCALE:
            usual = Plant(case.put(SCALED, Scale(d_k)), str(d_k))
            yield replace(usual, fix="{scale}")


def plant_by_root_of_d_model(case: WrongStep) -> Iterator[Plant]:
    if d_model := case.size("d_model") or (case.size("head") or 0) * (case.size("d_k") or 0):
        yield from SCALE.instead(Scale(factor=1 / sqrt(d_model)))(case)


def plant_twice(case: WrongStep) -> Iterator[Plant]:
    """Scaled once more: at the scores, in Q Kᵀ, in Q, or after they were written down."""
    scale = case.op(SCALED)
    if isinstance(scale, Scale):
        again = Scale(factor=factor_of(scale))
        steps = (SCALE, at("scores", MatMulT), at("Q", Project))
        scaled = [step.instead(lambda op: wrong.Then(op, again)) for step in steps]
        yield from either(*scaled, SOFTMAX.instead(bend(again.apply)))(case)


def plant_already_scaled(case: WrongStep) -> Iterator[Plant]:
    name = case.first
    op = case.op(case.first)
    if name in ("scores", "Q", "K") and isinstance(op, (MatMulT, Project)):
        for scale in SCALE.right(case).values():
            yield Plant(case.put_all({name: wrong.Then(op, scale), SCALED: Copy()}), name)


def plant_other_factor(case: WrongStep) -> Iterator[Plant]:
    scale = case.op(SCALED)
    if isinstance(scale, Scale):
        right = factor_of(scale)
        starts = [right * part for part in FACTORS]
        say = partial(said_as_divisor, right=right)
        yield from planted_fit(case, lambda factor: case.put(SCALED, Scale(factor=factor)), starts, say)
    if SCALED in case.record or not isinstance(scale, Scale):
        yield from SOFTMAX.fitted(
            lambda _, factor: bend(lambda s: factor * s),
            FACTORS,
            lambda factor: f"softmax is taken of {spoken(factor)} times the scores",
        )(case)


def said_as_divisor(factor: float, right: float) -> str:
    """Divided by √17; multiplied by 2 where that is shorter."""
    divisor = spoken(1 / factor, 1 / right)
    if abs(factor) >= 1 or ("√" not in divisor and f"{abs(factor):.15g}" == f"{abs(factor):.2g}"):
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
    yield Plant(case.put(MASKED, replace(hide, hidden=-cap.cap)))
    scaled = (*case.derivation[CAPPED].inputs, *mask)
    ops = {CAPPED: wrong.Then(hide, cap), MASKED: hide, WEIGHTS: case.derivation[WEIGHTS].op}
    yield Plant(case.put_all({**ops, MASKED: Copy()}, {CAPPED: scaled}))
    yield Plant(case.put_all(ops, {CAPPED: scaled, MASKED: scaled, WEIGHTS: (CAPPED,)}))


def plant_before_scale(case: WrongStep) -> Iterator[Plant]:
    cap = case.op(CAPPED)
    scale = case.op(SCALED)
    if isinstance(cap, Squeeze) and isinstance(scale, Scale):
        yield Plant(case.put_all({SCALED: Copy(), CAPPED: wrong.Then(cap, scale)}))


def uncapped(case: WrongStep) -> bool:
    return CAPPED not in case.derivation


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
        CAP.instead(
            lambda op: wrong.By(lambda s: np.tanh(s / op.cap)),
            lambda op: wrong.By(lambda s: op.cap * np.tanh(s)),
            wrong.By(np.tanh),
        ),
        why="c · tanh(s) or tanh(s / c): one of the two factors is left out.",
        example="softcapped_scores = np.tanh(scaled_scores / 3)",
    ),
    of_softcap(
        "softcap-clipped",
        "the scores are cut off at the cap rather than squeezed",
        "take {cap}, not np.clip",
        CAP.instead(lambda op: wrong.By(lambda s: np.clip(s, -op.cap, op.cap))),
        why="A cap sounds like np.clip.",
        example="softcapped_scores = np.clip(scaled_scores, -3, 3)",
    ),
    of_softcap(
        "softcap-other",
        "the cap is {}",
        "take {cap}; if this cap is meant, say so with --softcap",
        CAP.fitted(
            lambda _, cap: Squeeze(abs(cap)),
            lambda op: [op.cap * part for part in (0.1, 0.3, 0.6, 1.5, 3.0, 10.0)],
            spoken,
        ),
        fitted=True,
        why="Gemma 2 has one cap for attention, 50, and one for its logits, 30.",
        example="softcapped_scores = 5 * np.tanh(scaled_scores / 5)",
    ),
    about("scaled_scores", WEIGHTS, fitted=True, subject="softcap", meant="loud")(
        "softcap-unasked",
        "the scores are squeezed into (−cap, cap), which nothing asks for; the cap is {}",
        "say --softcap {} if it is meant",
        # before the mask; after it, hidden scores left alone; or squeezed
        SCALE.where(uncapped).fitted(lambda op, cap: wrong.Then(op, squeeze_by(cap)), CAPS, spoken),
        SOFTMAX.where(uncapped).fitted(lambda _, cap: bend(squeeze_by(cap).apply), CAPS, spoken),
        SOFTMAX.where(uncapped).fitted(lambda op, cap: wrong.Then(squeeze_by(cap), op), CAPS, spoken),
        why="The code was written for Gemma 2; the model at hand has no cap.",
        example="scaled_scores = 2 * np.tanh(scaled_scores / 2)",
        slight="scaled_scores = 50 * np.tanh(scaled_scores / 50)",
    ),
)


# --- what is added to scores ---

BIASED = ("alibi_scores", "biased_scores")
SLOPE, BIAS = at(*BIASED, Slope), at("biased_scores", Add)


def by_slopes(op: Slope, slopes: Callable[[int], Array]) -> wrong.By:
    """The scores less other slopes, which so many heads have, times the distance."""
    return wrong.By(lambda s: s - slopes(s.shape[-3])[:, None, None] * op.distances(s.shape))


SLOPES: dict[str, Callable[[int], Array]] = {
    "they have the wrong sign": lambda heads: -alibi_slopes(heads),
    "their exponents begin at 0": lambda heads: 2.0 ** (-8.0 * np.arange(heads) / heads),
    "they are in reverse order": lambda heads: alibi_slopes(heads)[::-1],
    "they are 2^(−8h/heads), though the number of heads is no power of two": lambda heads: (
        2.0 ** (-8.0 * (np.arange(heads) + 1) / heads)
    ),
    "they are those of eight heads": lambda heads: 2.0 ** -(np.arange(heads) + 1.0),
    "they are those of the first heads of the next power of two": lambda heads: alibi_slopes(
        2 ** int(np.ceil(np.log2(heads)))
    )[:heads],
}

DISTANCES: dict[str, Callable[[Array, Array], Array]] = {
    "query − key with its sign": lambda query, key: query - key,
    "key − query with its sign": lambda query, key: key - query,
    "its square": lambda query, key: (query - key) ** 2,
    "its root": lambda query, key: np.sqrt(np.abs(query - key)),
    "the key's position alone": lambda query, key: -key + 0 * query,
}


def by_distance(op: Slope, distance: Callable[[Array, Array], Array]) -> wrong.By:
    return wrong.By(lambda s: s - op.slopes(s.shape) * distance(*op.positions(s.shape)))


def by_slots(op: Slope) -> dict[str, Op]:
    """Slots in place of the positions that are given."""
    if not op.places:
        return {}
    return {"that of their slots: the positions that are given are not read": replace(op, places=())}


def plant_bias_before_scale(case: WrongStep) -> Iterator[Plant]:
    scale = case.op(SCALED)
    if isinstance(case.op("scores"), MatMulT) and isinstance(scale, Scale):
        for name, op in at(*BIASED, Add, Slope).right(case).items():

            def both(s: Array, *bias: Array, op: Op = op) -> Array:
                return s + scale.apply(op.apply(np.zeros_like(s), *bias))

            yield Plant(case.put(name, wrong.By(both)))


def plant_bias_after_softmax(case: WrongStep) -> Iterator[Plant]:
    if BIAS.right(case) and SOFTMAX.right(case) and at(HEAD_OUTPUTS, MatMul).right(case):
        scores, bias = case.derivation["biased_scores"].inputs
        late = case.derivation[WEIGHTS].inputs[0]
        ops = {"biased_scores": wrong.By(np.copy), WEIGHTS: wrong.By(lambda s, b: wrong.softmax(s) + b)}
        yield Plant(case.put_all(ops, {"biased_scores": (scores,), WEIGHTS: (late, bias)}))


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
        SLOPE.instead(lambda op: {said: by_slopes(op, slopes) for said, slopes in SLOPES.items()}),
        SLOPE.fitted(
            lambda op, by: by_slopes(op, lambda heads: by * alibi_slopes(heads)),
            (-1.0, 0.3, 0.6, 2.0, 5.0),
            spoken_after("they are multiplied by "),
        ),
        SLOPE.fitted(
            lambda op, by: by_slopes(op, lambda heads: by * np.ones(heads)),
            (0.03, 0.3, 1.0, -0.3),
            spoken_after("they are all "),
        ),
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
        SLOPE.instead(lambda op: {said: by_distance(op, distance) for said, distance in DISTANCES.items()}),
        SLOPE.best(
            lambda op, by: by_distance(op, lambda query, key: np.abs(query + by - key)),
            # from one place farther every key is on the same side: to softmax, the distance with its sign
            lambda case: shifts(max(case.size("query") or 0, case.size("key") or 0) - 2),
            lambda by: f"that from a query {abs(by)} keys {'later' if by > 0 else 'earlier'}",
        ),
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
                "the bias is transposed": lambda s, b: s + b.swapaxes(-1, -2),
                "the first head's bias is added to all": lambda s, b: s + b[..., :1, :, :],
                "the scores are multiplied by the bias": lambda s, b: s * b,
                "the bias is exponentiated before it is added": lambda s, b: s + np.exp(b),
            }
        ),
        BIAS.fitted(
            lambda _, by: wrong.By(lambda s, b: s + by * b),
            (-1.0, 0.3, 2.0, 5.0),
            spoken_after("the bias is multiplied by "),
        ),
        why="A bias of relative positions is laid out (key, query) in some libraries.",
        example="biased_scores = scaled_scores + bias.swapaxes(-1, -2)",
    ),
)

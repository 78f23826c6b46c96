"""Mistakes in what is added to the scores: ALiBi's slopes, a given bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, WEIGHTS
from attnctl.math.ops import Add, MatMul, MatMulT, Op, Scale, Slope, Softmax
from attnctl.math.rules import alibi_slopes
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, about
from attnctl.mistakes.plants import at, either, spoken_after

BIASED = ("alibi_scores", "biased_scores")
SLOPE, BIAS = at(*BIASED, Slope), at("biased_scores", Add)


def by_slopes(op: Slope, slopes: Array) -> wrong.By:
    """The scores less other slopes, (head,), times the distance."""
    return wrong.By(lambda s: s - slopes[:, None, None] * op.distances(s.shape))


def plant_other_slopes(case: WrongStep) -> Iterator[Plant]:
    heads = case.size("head") or 1
    right, head = alibi_slopes(heads), np.arange(heads)
    power = 2 ** int(np.ceil(np.log2(heads)))
    ways = {
        "they have the wrong sign": -right,
        "their exponents begin at 0": 2.0 ** (-8.0 * head / heads),
        "they are in reverse order": right[::-1],
        "they are 2^(−8h/heads), though the number of heads is no power of two": 2.0
        ** (-8.0 * (head + 1) / heads),
        "they are those of eight heads": 2.0 ** -(head + 1.0),
        "they are those of the first heads of the next power of two": alibi_slopes(power)[:heads],
    }
    yield from either(
        SLOPE.instead(lambda op: {said: by_slopes(op, slopes) for said, slopes in ways.items()}),
        SLOPE.fitted(
            lambda op, by: by_slopes(op, by * right),
            (-1.0, 0.3, 0.6, 2.0, 5.0),
            spoken_after("they are multiplied by "),
        ),
        SLOPE.fitted(
            lambda op, by: by_slopes(op, by * np.ones(heads)),
            (0.03, 0.3, 1.0, -0.3),
            spoken_after("they are all "),
        ),
    )(case)


DISTANCES: tuple[tuple[str, Callable[[Array, Array], Array]], ...] = (
    ("query − key with its sign", lambda query, key: query - key),
    ("key − query with its sign", lambda query, key: key - query),
    ("its square", lambda query, key: (query - key) ** 2),
    ("its root", lambda query, key: np.sqrt(np.abs(query - key))),
    ("the key's position alone", lambda query, key: -key + 0 * query),
)


def by_distance(op: Slope, distance: Callable[[Array, Array], Array]) -> wrong.By:
    return wrong.By(lambda s: s - op.slopes(s.shape) * distance(*op.positions(s.shape)))


def shifts(case: WrongStep) -> list[int]:
    # From one place farther every key is on the same side: it is the distance with its sign, to softmax.
    most = min(max(case.size("query") or 0, case.size("key") or 0) - 2, 64)
    return [by for by in range(-most, most + 1) if by]


OTHER_BIAS = either(
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
)
"""A given bias transposed, of one head, multiplied with the scores, or some other number of times."""


def plant_before_scale(case: WrongStep) -> Iterator[Plant]:
    scale = case.op("scaled_scores")
    if isinstance(case.op("scores"), MatMulT) and isinstance(scale, Scale):
        for name, op in at(*BIASED, Add, Slope).right(case).items():

            def both(s: Array, *bias: Array, op: Op = op) -> Array:
                return s + scale.apply(op.apply(np.zeros_like(s), *bias))

            yield Plant(case.put(name, wrong.By(both)))


def plant_after_softmax(case: WrongStep) -> Iterator[Plant]:
    if BIAS.right(case) and at(WEIGHTS, Softmax).right(case) and at(HEAD_OUTPUTS, MatMul).right(case):
        scores, bias = case.derivation["biased_scores"].inputs
        late = case.derivation[WEIGHTS].inputs[0]
        ops = {"biased_scores": wrong.By(np.copy), WEIGHTS: wrong.By(lambda s, b: wrong.softmax(s) + b)}
        yield Plant(case.put_all(ops, {"biased_scores": (scores,), WEIGHTS: (late, bias)}))


of_bias = about(*BIASED, subject="bias", meant="bias")

BIASES = (
    of_bias(
        "bias-scaled",
        "the bias is added before the scale, and scaled with the scores",
        "scale Q Kᵀ first, then add",
        plant_before_scale,
        why="The bias is added to Q Kᵀ, and then all is divided by √d_k.",
        example="biased_scores = (scores + bias) / np.sqrt(d_k)",
    ),
    of_bias(
        "bias-after-softmax",
        "the bias is added to the weights, after softmax",
        "add it to the scores",
        plant_after_softmax,
        why="The bias is added where the weights are shown.",
        example="biased_scores = scaled_scores\nattention_weights = softmax(scaled_scores) + bias",
    ),
    of_bias(
        "alibi-slopes",
        "ALiBi's slopes are not those of its paper: {}",
        "take 2^(−8/n), 2^(−16/n), … for n a power of two, and subtract slope · distance",
        plant_other_slopes,
        fitted=True,
        why="The slopes are a series of their own for heads that are no power of two, and its start is "
        "easily shifted.",
        meant="alibi",
        example="slopes = 2.0 ** (-8 * np.arange(heads) / heads)\n"
        "biased_scores = scaled_scores - slopes[:, None, None] * distance",
    ),
    of_bias(
        "alibi-distance",
        "ALiBi's distance is not |query − key| but {}",
        "subtract slope · |query − key|, a cache's keys counted in",
        SLOPE.instead(lambda op: {said: by_distance(op, distance) for said, distance in DISTANCES}),
        SLOPE.best(
            lambda op, by: by_distance(op, lambda query, key: np.abs(query + by - key)),
            shifts,
            lambda by: f"that from a query {abs(by)} keys {'later' if by > 0 else 'earlier'}",
        ),
        fitted=True,
        why="query − key is positive where causal attention looks; without a mask its sign matters.",
        meant="alibi",
        example="slopes = 2.0 ** (-8 * (np.arange(heads) + 1) / heads)\n"
        "biased_scores = scaled_scores - slopes[:, None, None] * (np.arange(n)[:, None] - np.arange(n))",
    ),
    Mistake(
        "score-bias-wrong",
        ("biased_scores",),
        "{}",
        "add the bias to the scaled scores once, a head's to its own, rows for queries",
        OTHER_BIAS,
        fitted=True,
        subject="bias",
        across=True,
        why="A bias of relative positions is laid out (key, query) in some libraries.",
        meant="bias",
        example="biased_scores = scaled_scores + bias.swapaxes(-1, -2)",
    ),
)

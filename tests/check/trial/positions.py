"""Planted in rotations, ALiBi, biases and sinusoids."""

import numpy as np

from trial.mistake import WITH_WEIGHTS, cast, m
from trial.programs import Kernel, angles, sinusoids, slopes, turned, turned_neighbours


def turn(change):
    return {"turn": lambda p, x, start: change(x, start, p.k)}


def rotated(change):
    return {"rotated": change}


def at(x, k, start, **options):
    return angles(x.shape[-2], k.rotary_dims or k.d, start, **options)


def before_split(p, y, letter):
    if letter == "V":
        return Kernel.split(p, y, letter)
    return Kernel.split(p, turned(y, angles(y.shape[-2], y.shape[-1])), letter)


def alibi(f):
    return {"slopes": f}


def later(change):
    """The bias, made another way."""
    return {"score_bias": change}


POSITION = {
    "rotation forgotten": m("rope, cache", "rotary-missing", **turn(lambda x, start, k: x)),
    "only Q rotated": m("rope", "rotary-one-sided", **rotated(lambda p, q, k, v: (p.turn(q, 0), k, v))),
    "only K rotated": m(
        "rope whole", "rotary-one-sided", **rotated(lambda p, q, k, v: (q, p.turn(k, 0), v))
    ),
    "neighbours rotated": m(
        "rope, rope part",
        "rotary-pairs-wrong",
        **turn(lambda x, start, k: turned_neighbours(x, at(x, k, start))),
    ),
    "θ 500000": m(
        "rope, rope whole",
        "rotary-theta",
        **turn(lambda x, start, k: turned(x, at(x, k, start, theta=5e5))),
    ),
    "θ 1000": m("cache", "rotary-theta", **turn(lambda x, start, k: turned(x, at(x, k, start, theta=1e3)))),
    "half the columns": m(
        "rope", "rotary-dims", **turn(lambda x, start, k: turned(x, angles(x.shape[-2], k.d // 2, start)))
    ),
    "all the columns": m(
        "rope part", "rotary-dims", **turn(lambda x, start, k: turned(x, angles(x.shape[-2], k.d, start)))
    ),
    "exponent i/d": m(
        "rope", "rotary-theta", **turn(lambda x, start, k: turned(x, at(x, k, start, theta=100.0)))
    ),
    "exponent of d_model": m(
        "rope",
        "rotary-theta",
        **turn(lambda x, start, k: turned(x, at(x, k, start, theta=10000.0 ** (k.d / k.d_model)))),
    ),
    "twice": m(
        "rope, rope whole",
        "rotary-twice",
        **turn(lambda x, start, k: turned(turned(x, at(x, k, start)), at(x, k, start))),
    ),
    "backwards": m("rope", "rotary-backwards", **turn(lambda x, start, k: turned(x, -at(x, k, start)))),
    "on V too": m(
        "rope, rope whole",
        "rotary-on-values",
        **rotated(lambda p, q, k, v: (p.turn(q, 0), p.turn(k, 0), p.turn(v, 0))),
    ),
    "before the split": m(
        "rope", "rotary-before-split", split=before_split, **rotated(lambda p, q, k, v: (q, k, v))
    ),
    "Q one late": m(
        "rope, rope whole", "rotary-start", **rotated(lambda p, q, k, v: (p.turn(q, 1), p.turn(k, 0), v))
    ),
    "cache not counted in Q": m(
        "cache", "rotary-start", **rotated(lambda p, q, k, v: (p.turn(q, 0), p.turn(k, p.k.past), v))
    ),
    "cache not counted": m(
        "cache, decode", "rotary-start", **turn(lambda x, start, k: turned(x, at(x, k, 0)))
    ),
    "cache counted one too many": m(
        "cache", "rotary-start", **turn(lambda x, start, k: turned(x, at(x, k, start + 1)))
    ),
    "positions halved": m(
        "rope", "rotary-stretched", **turn(lambda x, start, k: turned(x, at(x, k, start, step=0.5)))
    ),
    "sine and cosine exchanged": m(
        "rope",
        "rotary-sine-cosine rotary-backwards",
        **turn(lambda x, start, k: turned(x, np.pi / 2 - at(x, k, start))),
    ),
    "by the head's number": m(
        "rope whole",
        "rotary-over-heads rotary-missing",
        **turn(
            lambda x, start, k: turned(
                x,
                np.broadcast_to(
                    (np.arange(x.shape[-3])[:, None, None] * angles(2, k.d)[1]),
                    (x.shape[-3], x.shape[-2], k.d // 2),
                ),
            )
        ),
    ),
    "rotation unasked": m(
        "plain, causal",
        "rotary-unasked",
        attend=lambda p, q, k, v: (
            type(p).__mro__[1].attend(p, turned(q, at(q, p.k, 0)), turned(k, at(k, p.k, 0)), v)
        ),
    ),
    "ALiBi's sign": m("alibi, alibi whole", "alibi-slopes", **alibi(lambda p: -slopes(p.k.heads))),
    "ALiBi forgotten": m(
        "alibi", "bias-missing", **later(lambda p: np.zeros((p.k.heads, p.k.n, p.k.keys)))
    ),
    "slopes from 2⁰": m(
        "alibi",
        "alibi-slopes",
        **alibi(lambda p: 2.0 ** (-8.0 * np.arange(p.k.heads) / p.k.heads)[:, None, None]),
    ),
    "slopes of eight heads": m(
        "alibi whole",
        "alibi-slopes",
        **alibi(lambda p: 2.0 ** -(1.0 + np.arange(p.k.heads))[:, None, None]),
    ),
    "slopes backwards": m("alibi", "alibi-slopes", **alibi(lambda p: slopes(p.k.heads)[::-1])),
    "slopes of any number of heads": m(
        "alibi 6",
        "alibi-slopes",
        **alibi(lambda p: 2.0 ** (-8.0 * (np.arange(p.k.heads) + 1) / p.k.heads)[:, None, None]),
    ),
    "one slope for all": m("alibi", "alibi-slopes", **alibi(lambda p: np.full((p.k.heads, 1, 1), 0.5))),
    "distance with its sign": m(
        "alibi whole",
        "alibi-distance",
        **later(lambda p: -slopes(p.k.heads) * (p.places()[0] - p.places()[1])),
    ),
    "distance squared": m(
        "alibi", "alibi-distance", **later(lambda p: -slopes(p.k.heads) * p.distance() ** 2)
    ),
    "bias scaled": m(
        "alibi, score bias",
        "bias-scaled score-bias-wrong alibi-slopes",
        **later(lambda p: type(p).__mro__[1].score_bias(p) / np.sqrt(p.k.d)),
    ),
    "bias subtracted": m("score bias", "score-bias-wrong", **later(lambda p: -p.g["bias"])),
    "bias transposed": m(
        "score bias, score bias causal", "score-bias-wrong", **later(lambda p: p.g["bias"].swapaxes(-1, -2))
    ),
    "bias forgotten": m("score bias causal", "bias-missing", **later(lambda p: 0 * p.g["bias"])),
    "bias of the first head": m("score bias", "score-bias-wrong", **later(lambda p: p.g["bias"][:1])),
    "bias twice": m("score bias", "score-bias-wrong", **later(lambda p: 2 * p.g["bias"])),
    "bias multiplied": m(
        "score bias", "score-bias-wrong", biased=lambda p, s: s * p.g["bias"], families=WITH_WEIGHTS
    ),
    "positions forgotten": m("sinusoidal", "positions-missing", add_positions=lambda p, x, table: x),
    "positions twice": m(
        "sinusoidal", "positions-wrong", add_positions=lambda p, x, table: x + (2 * table).astype(x.dtype)
    ),
    "positions from 1": m(
        "sinusoidal", "sinusoids-wrong", table=lambda p: sinusoids(p.k.n, p.k.d_model, 1)
    ),
    "cosine first": m(
        "sinusoidal",
        "sinusoids-wrong",
        table=lambda p: sinusoids(p.k.n, p.k.d_model)[:, np.arange(p.k.d_model) ^ 1],
    ),
    "all sines, then all cosines": m(
        "sinusoidal",
        "sinusoids-wrong",
        table=lambda p: np.concatenate(
            [sinusoids(p.k.n, p.k.d_model)[:, 0::2], sinusoids(p.k.n, p.k.d_model)[:, 1::2]], axis=1
        ),
    ),
    "embeddings times √d_model": m(
        "sinusoidal",
        "positions-wrong",
        add_positions=lambda p, x, table: x * cast(np.sqrt(p.k.d_model), x) + table.astype(x.dtype),
    ),
}

"""Planted in what X is multiplied with, and in what is added."""

import numpy as np

from trial.mistake import WITH_WEIGHTS, cast, m, side_by_side
from trial.programs import Kernel


def swap_letters(**letters):
    return {"weight": lambda p, letter: p.g[f"W_{letters.get(letter, letter)}"]}


def transposed(letters):
    return {"weight": lambda p, letter: p.g[f"W_{letter}"].T if letter in letters else p.g[f"W_{letter}"]}


def no_bias(letters):
    return {"offset": lambda p, letter: None if letter in letters else p.g.get(f"b_{letter}")}


def normal(x):
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def rms(x):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True))


def finished(change):
    return {"finish": lambda p, c: change(p, Kernel.finish(p, c))}


PROJECTION = {
    "W_Qᵀ": m("causal, plain", "weight-transposed", **transposed("Q")),
    "W_Kᵀ": m("plain", "weight-transposed", **transposed("K")),
    "W_Vᵀ": m("causal", "weight-transposed", **transposed("V")),
    "W_Oᵀ": m("plain, grouped", "weight-transposed", **transposed("O")),
    "W_Qᵀ and W_Kᵀ": m("plain, causal", "weight-transposed", **transposed("QK")),
    "W_Q and W_K exchanged": m("causal, plain", "query-key-swapped", **swap_letters(Q="K", K="Q")),
    "K Qᵀ": m(
        "plain, causal",
        "query-key-swapped",
        families=WITH_WEIGHTS,
        scores=lambda p, q, k: k @ q.swapaxes(-1, -2),
    ),
    "V by W_K": m("plain, grouped", "projection-mixed-up", **swap_letters(V="K")),
    "K by W_V": m("plain", "projection-mixed-up", **swap_letters(K="V")),
    "Q by W_K": m("causal", "projection-mixed-up", **swap_letters(Q="K")),
    "packed as K, Q, V": m("plain", "query-key-swapped projection-mixed-up", **swap_letters(Q="K", K="Q")),
    "packed as V, K, Q": m("plain", "projection-mixed-up", **swap_letters(Q="V", V="Q")),
    "packed as Q, V, K": m("causal, grouped", "projection-mixed-up", **swap_letters(K="V", V="K")),
    "packed as K, V, Q": m("plain", "projection-mixed-up", **swap_letters(Q="K", K="V", V="Q")),
    "V not projected": m(
        "plain",
        "projection-missing",
        families=("textbook", "llama", "kernel"),
        project=lambda p, x, letter: x if letter == "V" else Kernel.project(p, x, letter),
    ),
    "b_Q forgotten": m("biases", "bias-missing", **no_bias("Q")),
    "b_K and b_V forgotten": m("biases", "bias-missing", **no_bias("KV")),
    "b_O forgotten": m("biases", "bias-missing", **no_bias("O")),
    "all biases forgotten": m("biases", "bias-missing", **no_bias("QKVO")),
    "biases twice": m(
        "biases",
        "bias-wrong",
        offset=lambda p, letter: 2 * p.g[f"b_{letter}"] if letter == "O" else p.g[f"b_{letter}"],
    ),
    "biases subtracted": m(
        "biases",
        "bias-wrong",
        offset=lambda p, letter: -p.g[f"b_{letter}"] if letter == "Q" else p.g[f"b_{letter}"],
    ),
    "b_Q for b_V": m(
        "biases", "bias-wrong", offset=lambda p, letter: p.g["b_Q" if letter == "V" else f"b_{letter}"]
    ),
    "b_O for every head": m(
        "biases",
        "bias-wrong",
        offset=lambda p, letter: p.k.heads * p.g["b_O"] if letter == "O" else p.g[f"b_{letter}"],
    ),
    "no W_O": m("plain, causal, grouped", "output-projection-missing", finish=lambda p, c: c),
    "residual added": m("plain, causal", "residual-added", **finished(lambda p, y: y + p.x)),
    "residual added to concat": m("plain", "residual-added", merge=lambda p, z: side_by_side(z) + p.x),
    "K and V from X": m("cross same", "memory-exchanged", sources=lambda p, x, memory: (x, x, x)),
    "X and memory exchanged": m(
        "cross same", "memory-exchanged", sources=lambda p, x, memory: (memory, x, x)
    ),
    "V from X": m("cross same", "memory-exchanged", sources=lambda p, x, memory: (x, memory, x)),
    "all from memory": m(
        "cross same", "memory-exchanged", sources=lambda p, x, memory: (memory, memory, memory)
    ),
    "X normalized": m(
        "plain",
        "normalized",
        projected=lambda p, x, y: Kernel.projected(p, z := cast(normal(x), x), z),
        families=("textbook", "llama", "kernel"),
    ),
    "Q and K normalized": m(
        "plain, causal",
        "normalized norm-unasked",
        split=lambda p, y, letter: (
            cast(rms(Kernel.split(p, y, letter)), y) if letter in "QK" else Kernel.split(p, y, letter)
        ),
    ),
    "Q and K of length 1": m(
        "plain",
        "normalized norm-unasked",
        split=lambda p, y, letter: (
            cast(rms(s := Kernel.split(p, y, letter)) / np.sqrt(s.shape[-1]), y)
            if letter in "QK"
            else Kernel.split(p, y, letter)
        ),
    ),
    "output normalized": m("plain", "normalized", **finished(lambda p, y: cast(normal(y), y))),
    "output times 2": m("plain, causal", "constant-factor", **finished(lambda p, y: 2 * y)),
    "V times 1.01": m(
        "plain, grouped",
        "constant-factor",
        ("textbook", "llama", "kernel"),
        "float64 float32",
        project=lambda p, x, letter: (
            Kernel.project(p, x, letter) * x.dtype.type(1.01 if letter == "V" else 1)
        ),
    ),
    "weights on K": m(
        "plain, causal",
        "weights-applied-to-wrong projection-mixed-up",
        mix=lambda p, a, v: a @ p.keys,
        families=WITH_WEIGHTS,
    ),
    "weights on Q": m(
        "plain",
        "weights-applied-to-wrong projection-mixed-up",
        mix=lambda p, a, v: a @ p.q,
        families=WITH_WEIGHTS,
    ),
    "weights transposed": m(
        "plain, causal",
        "weights-transposed",
        mix=lambda p, a, v: a.swapaxes(-1, -2) @ v,
        families=WITH_WEIGHTS,
    ),
}

"""Traces to draw: numbers that are the same on every machine, carried out by the steps' own ops."""

import numpy as np

from attnctl.math.derivation import Derivation, Step, Variant, derive
from attnctl.math.ops import Given, Sinusoid, Unstated
from attnctl.math.rules import Causal, Window
from attnctl.record import Trace

LOVE = ("I", "love", "AI")
FOX = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "today")
HOSTILE = (
    *("日本語", "👩\u200d👧", "e\u0301te\u0301", "\x1b[31m", "[red]", "[/INST]", ":smile:", "", " ", "a b"),
    *("the", "the", "\u202eevil", "\udc80", "\t", "\u200b", "supercalifragilisticexpialidocious"),
)


def numbers(name, *shape):
    """Fixed numbers in (−1, 1), others for each name."""
    start = sum(map(ord, name)) * 7919
    count = int(np.prod(shape, dtype=int))
    return ((np.arange(start, start + count) * 7919 % 10007) / 5003.5 - 1).reshape(shape)


def carried(derivation: Derivation, given):
    """Every step, one after the other."""
    values = {}
    for step in derivation:
        inputs = [values[name] for name in step.inputs]
        values[step.name] = given[step.name] if isinstance(step.op, Given) else step.op.apply(*inputs)
    return values


def trace_of(tokens=LOVE, d_model=4, heads=2, *, kv_heads=None, rules=(), mask=None, context=(), **more):
    """A sentence with weights; `more` goes into the config of the header."""
    kv_heads, d_k = kv_heads or heads, d_model // heads
    given = {
        "embeddings": numbers("E", len(tokens), d_model),
        "W_Q": numbers("W_Q", heads, d_model, d_k),
        "W_K": numbers("W_K", kv_heads, d_model, d_k),
        "W_V": numbers("W_V", kv_heads, d_model, d_k),
        "W_O": numbers("W_O", d_model, d_model),
    }
    how = dict.fromkeys(given, "drawn") | {"embeddings": "E[ids]"}
    if mask is not None:
        given["mask"] = np.array(mask, dtype=bool)
        how["mask"] = "given"
    if context:
        given["memory"] = numbers("M", len(context), d_model)
        how["memory"] = "X of the context"
    sinusoid = Sinusoid(len(tokens), d_model) if more.get("positions") == "sinusoidal" else None
    axes = {"mask": ("head", "query", "key")[-given["mask"].ndim :]} if mask is not None else {}
    derivation = derive(Variant(how, d_k, heads // kv_heads, rules=rules, sinusoid=sinusoid, axes=axes))
    header = {"sentence": " ".join(tokens), "tokens": list(tokens), "ids": list(range(len(tokens)))}
    if context:
        ids = list(range(len(tokens), len(tokens) + len(context)))
        header |= {"context": " ".join(context), "key_tokens": list(context), "key_ids": ids}
    header["config"] = {
        "d_model": d_model,
        "heads": heads,
        "kv_heads": kv_heads,
        "d_k": d_k,
        "seed": 0,
        **more,
    }
    return Trace({step.name: step for step in derivation}, carried(derivation, given), header)


def foreign(name, array, *axes, symbol="A", **header):
    """One array of anyone's, under this name."""
    step = Step(name, Unstated(), (), axes, "given", symbol)
    return Trace({name: step}, {name: np.asarray(array)}, header)


def small():
    return trace_of()


def causal():
    return trace_of(rules=(Causal(),))


def masked():
    """Every reason to be hidden at once: the future, the far past, a mask."""
    mask = np.ones((6, 6), dtype=bool)
    mask[:, 1] = False
    return trace_of(FOX[:6], 8, 2, rules=(Causal(), Window(2, None)), mask=mask)


def hostile():
    return trace_of(HOSTILE, 4, 2, rules=(Causal(),))


def base():
    """The size of the base transformer."""
    return trace_of(FOX, 512, 8, positions="sinusoidal")


def long():
    return trace_of([f"w{i}" for i in range(512)], 16, 8, rules=(Causal(),))


def grouped():
    return trace_of(d_model=8, heads=4, kv_heads=2)


def crossed():
    return trace_of(context=("cats", "chase", "the", "mice"))

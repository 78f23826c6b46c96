"""Traces to write and read: typed in, carried out, and drawn by Hypothesis."""

import string

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from attnctl.math.derivation import Rotary, Step, Variant, derive
from attnctl.math.engine import carry_out
from attnctl.math.names import TABLE
from attnctl.math.ops import Given, Hide, MatMulT, Scale, Sinusoid, Unstated
from attnctl.math.rules import Alibi, Causal, Padding, Softcap, Window
from attnctl.record import Trace
from attnctl.store.header import FIELDS

TINY = np.array([[1.0, -np.inf], [-0.0, 5e-324], [1e16, 0.1]])
MASK = np.array([[True, False], [True, True]])
HALF = np.array([0.1, 65504], dtype=np.float16)


def typed():
    """Every kind of value that a dump treats in its own way, in three small steps."""
    steps = {
        "scores": Step("scores", Given(), (), ("query", "key"), "Q Kᵀ", "S"),
        "mask": Step("mask", Given(), (), ("query", "key"), "", "mask"),
        "b_O": Step("b_O", Unstated(), (), ("d_model",), "", "b"),
        "masked_scores": Step(
            "masked_scores",
            Hide(2, rules=(Causal(), Window(3, None), Padding((1, 2)))),
            ("scores", "mask"),
            ("query", "key"),
            "S where allowed",
            "S",
        ),
    }
    arrays = {"scores": TINY, "mask": MASK, "b_O": HALF, "masked_scores": np.array([[np.nan], [np.inf]])}
    header = {
        "attnctl": "0.1.0",
        "sentence": "=a, 猫",
        "tokens": ["=a,", "猫"],
        "ids": [0, 1],
        "config": {"rules": [{"window": [3, float("inf")]}]},
    }
    return Trace(steps, arrays, header)


RULES = (Causal(), Window(2, 0), Softcap(30.0), Alibi())


def carried_out(*, heads=2, batch=False, dtype="float64"):
    """A whole attention over three tokens, with every kind of rule and rotary positions."""
    draw = np.random.RandomState(0)
    size = 4 // heads
    given = dict.fromkeys(("embeddings", "W_Q", "W_K", "W_V", "W_O", "b_Q"), "drawn")
    positions = Sinusoid(3, 4)
    variant = Variant(given, d_k=size, rules=RULES, rotary=Rotary(), sinusoid=positions, batch=batch)
    arrays = {
        "embeddings": draw.normal(size=(2, 3, 4) if batch else (3, 4)),
        "W_O": draw.normal(size=(4, 4)),
        "b_Q": draw.normal(size=(heads, size)),
        **{f"W_{name}": draw.normal(size=(heads, 4, size)) for name in "QKV"},
    }
    derivation = derive(variant)
    words = {"sentence": "I love AI", "tokens": ["I", "love", "AI"], "ids": [0, 1, 2]}
    values = carry_out(derivation, arrays, dtype).values
    return Trace({step.name: step for step in derivation}, values, words | {"config": {"seed": 0}})


def of_arrays(**arrays):
    """A trace of arrays that say nothing of themselves."""
    steps = {
        name: Step(name, Unstated(), (), tuple(f"axis {i}" for i in range(array.ndim)), "", "")
        for name, array in arrays.items()
    }
    return Trace(steps, arrays)


def same(one, other):
    """Whether two traces have the same steps and headers, and their arrays the same bits."""
    return (
        list(one) == list(other)
        and one.steps == other.steps
        and all(bits(one[name]) == bits(other[name]) for name in one)
    )


def bits(array):
    return array.dtype, array.shape, np.ascontiguousarray(array).tobytes()


# --- drawn ---

NAMES = st.text(string.ascii_letters + "_ ./·", min_size=1, max_size=12) | st.sampled_from(
    ["scores", "attention_weights", "Q"]
)
WORDS = st.text(st.characters(exclude_categories=()), max_size=8)
DTYPES = st.sampled_from(
    ["float64", "float32", "float16", "bool", "int8", "int64", "uint8", "uint64", ">f8", ">i4"]
)
SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(WORDS, inside, max_size=3),
    max_leaves=8,
)
OPS = st.one_of(
    st.just(Given()),
    st.just(Unstated()),
    st.just(MatMulT()),
    st.builds(Scale, st.integers(1, 99), st.none() | st.floats()),
    st.builds(Sinusoid, st.integers(), st.integers(), st.integers()),
    st.builds(
        Hide,
        st.integers() | st.lists(st.integers()).map(tuple),
        rules=st.lists(
            st.just(Causal())
            | st.builds(Window, st.none() | st.integers(0), st.none() | st.integers(0))
            | st.builds(Padding, st.integers() | st.lists(st.integers()).map(tuple))
        ).map(tuple),
    ),
)


@st.composite
def headers(draw):
    header = draw(st.dictionaries(WORDS.filter(lambda key: key not in RESERVED), JSON, max_size=3))
    told = {
        "sentence": WORDS,
        "tokens": st.lists(WORDS, max_size=4),
        "ids": st.lists(st.integers(), max_size=4),
        "config": st.dictionaries(WORDS, JSON, max_size=3),
    }
    return header | {key: draw(told[key]) for key in draw(st.sets(st.sampled_from(sorted(told))))}


RESERVED = {"schema", "steps", *FIELDS}


@st.composite
def traces(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    steps, arrays = {}, {}
    for name in names:
        shapes = SHAPES.filter(all) if name in TABLE else SHAPES  # a step of attention has numbers
        array = draw(arrays_of.arrays(draw(DTYPES), draw(shapes)))
        axes = tuple(draw(st.lists(WORDS, min_size=array.ndim, max_size=array.ndim)))
        inputs = tuple(draw(st.lists(st.sampled_from(sorted(steps)), max_size=2))) if steps else ()
        steps[name] = Step(name, draw(OPS), inputs, axes, draw(WORDS), draw(WORDS))
        arrays[name] = array
    return Trace(steps, arrays, draw(headers()))

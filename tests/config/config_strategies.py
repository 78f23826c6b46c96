"""Settings of every kind, for Hypothesis."""

from hypothesis import strategies as st
from registry_strategies import instances

from attnctl.inputs.config.settings import FromFile, Random, Settings, Tokenizer, Weights
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Alibi, AllOf, AnyOf, Causal, Softcap, Window

MOST = 2**31 - 1

numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(min_size=1) | st.sampled_from(
    ["no", "on", "1.0", "null", "~", "12:30", "a: b", "-", "# x", "random", "file", "<<", "x" * 2000]
)
sizes = st.integers(1, MOST)
seeds = st.integers(0, 2**32 - 1)


def optional(strategy):
    return st.none() | strategy


def matrices(cells=numbers):
    return st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=3)
    )


random = st.builds(
    Random,
    seed=optional(seeds),
    distribution=st.sampled_from(["normal", "standard_normal", "uniform"]),
    layout=st.sampled_from(["fused", "per_head"]),
    stream=st.sampled_from(["named", "numpy_legacy"]),
)
paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
files = st.builds(FromFile, path=paths, name=optional(words))
tensors = matrices() | random | files | st.just("identity")
biases = st.lists(numbers, min_size=1, max_size=3) | random | files
of_a_head = {"W_Q": tensors, "W_K": tensors, "W_V": tensors, "b_Q": biases, "b_K": biases, "b_V": biases}
of_all = {"W": tensors, **of_a_head, "W_O": tensors | st.just("none"), "b_O": biases}

weights = st.builds(
    Weights,
    tensors=st.fixed_dictionaries({}, optional=of_all),
    heads=st.lists(st.fixed_dictionaries({}, optional=of_a_head), max_size=2).map(tuple),
    random=random,
)


def by_token(width):
    return st.dictionaries(words, st.lists(numbers, min_size=width, max_size=width), max_size=3)


embeddings = st.integers(1, 3).flatmap(by_token) | matrices() | random | files | st.just("identity")
sides = optional(st.integers(0, MOST))
rules = st.tuples(
    st.just(Causal()),
    st.just(Alibi()),
    st.builds(Window, sides, sides),
    st.builds(Softcap, st.floats(0, exclude_min=True, allow_infinity=False)),
    instances(AnyOf),
    instances(AllOf),
).flatmap(lambda each: st.lists(st.sampled_from(each), unique=True).map(tuple))
rotary = st.builds(
    Rotary,
    theta=st.floats(0, exclude_min=True, allow_infinity=False),
    dims=optional(st.integers(1, MOST // 2).map(lambda n: 2 * n)),
    interleaved=st.booleans(),
)

settings = st.builds(
    Settings,
    sentence=optional(st.text()),
    context=optional(st.text()),
    vocab=optional(st.lists(words, min_size=1, unique=True).map(tuple)),
    tokenizer=st.builds(Tokenizer, st.sampled_from(["whitespace", "words", "characters"]), st.booleans()),
    d_model=optional(sizes),
    heads=optional(sizes),
    kv_heads=optional(sizes),
    d_k=optional(sizes),
    d_v=optional(sizes),
    seed=seeds,
    embeddings=embeddings,
    positions=st.sampled_from(["none", "sinusoidal"]) | rotary | matrices(),
    weights=weights,
    scale=optional(numbers),
    rules=rules,
    mask=optional(matrices(st.integers(0, 1))),
    bias=optional(matrices(numbers | st.just(float("-inf")))),
    causal_offset=optional(st.integers(-MOST, MOST)),
    dtype=st.sampled_from(["float64", "float32", "float16"]),
    edits=st.lists(words, max_size=2).map(tuple),
    renormalize=st.booleans(),
)

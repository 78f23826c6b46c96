"""Attention as a list of lines: name = op(inputs).

`derive` writes the list for any variant; everything else in attnctl is a walk over it. Names,
symbols, axes and formulas are said here once, beside the math, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from attnctl.errors import AttnError
from attnctl.ops import (
    Add,
    Append,
    Copy,
    Given,
    Hide,
    MatMul,
    MatMulT,
    Merge,
    Op,
    Project,
    Repeat,
    Rotate,
    Scale,
    Sinusoid,
    Slope,
    Softmax,
    Squeeze,
)
from attnctl.rules import Alibi, PerBatch, Rule, Softcap, VisibilityRule

Axes = tuple[str, ...]

TOKEN_MODEL: Axes = ("token", "d_model")
HEAD_QUERY_KEY: Axes = ("head", "query", "key")
MERGED = "heads·d_v"


@dataclass(frozen=True)
class Step:
    """One line of the derivation: name = op(inputs)."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    axes: Axes
    formula: str
    symbol: str


@dataclass(frozen=True)
class Derivation:
    """The lines in order; each reads only names that stand above it."""

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def __contains__(self, name: object) -> bool:
        return any(step.name == name for step in self.steps)

    @property
    def given(self) -> tuple[str, ...]:
        """The names that must be handed in."""
        return tuple(step.name for step in self.steps if isinstance(step.op, Given))


@dataclass(frozen=True)
class Rotary:
    """Rotary positions for Q and K; `dims` None rotates the whole head."""

    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.theta < inf:
            raise AttnError(f"theta: {self.theta} is not a positive finite number; most models use 10000")
        if self.dims is not None and (self.dims < 2 or self.dims % 2):
            raise AttnError(f"rotary dims: {self.dims} columns do not make pairs; use 2, 4, 6, …")


@dataclass(frozen=True)
class Variant:
    """What kind of attention to derive.

    `given` names the arrays that will be handed in (with how each came about, as its formula);
    what is not given is derived. `offset` is the number of keys that precede query 0.
    """

    given: dict[str, str]
    d_k: int
    kv_share: int = 1
    scale: float | None = None
    rules: tuple[Rule, ...] = ()
    sinusoid: Sinusoid | None = None
    rotary: Rotary | None = None
    offset: PerBatch = 0
    past: int = 0
    batch: bool = False
    axes: dict[str, Axes] = field(default_factory=dict)


class Names(dict[str, str]):
    """The latest name of each symbol as lines are written: K is `K`, then `K_rotated`, …"""

    def __missing__(self, symbol: str) -> str:
        return symbol


Lines = Iterator[Step]


def given(v: Variant, name: str, axes: Axes, symbol: str) -> Lines:
    """The line of an array that is handed in, if it is."""
    if name in v.given:
        yield Step(name, Given(), (), v.axes.get(name, axes), v.given[name], symbol)


def sentence(v: Variant, at: Names) -> Lines:
    """Tokens to X, and the other sentence as M."""
    yield from given(v, "embeddings", TOKEN_MODEL, "E")
    yield from given(v, "positions", TOKEN_MODEL, "P")
    if v.sinusoid:
        formula = "sin, cos(pos / 10000^(2i/d_model))"
        yield Step("positions", v.sinusoid, (), TOKEN_MODEL, formula, "P")
    if "embeddings" not in v.given:
        yield from given(v, "X", TOKEN_MODEL, "X")
    elif v.sinusoid or "positions" in v.given:
        inputs = ("embeddings", "positions")
        yield Step("X", Add(), inputs, TOKEN_MODEL, "embeddings + positions", "X")
    else:
        yield Step("X", Copy(), ("embeddings",), TOKEN_MODEL, "embeddings", "X")
    yield from given(v, "memory", ("key", "d_model"), "M")
    if "memory" in v.given:
        at["M"] = "memory"


def projections(v: Variant, at: Names) -> Lines:
    """X to Q, K, V: a matrix (and a bias) for each head."""
    sizes = {"Q": "d_k", "K": "d_k", "V": "d_v"}
    for symbol, size in sizes.items():
        yield from given(v, f"W_{symbol}", ("head", "d_model", size), "W")
    for symbol, size in sizes.items():
        yield from given(v, f"b_{symbol}", ("head", size), "b")
    for symbol, size in sizes.items():
        axes = ("head", "query" if symbol == "Q" else "key", size)
        if f"W_{symbol}" not in v.given:
            yield from given(v, symbol, axes, symbol)
            continue
        source = "X" if symbol == "Q" else at.get("M", "X")
        bias = (f"b_{symbol}",) if f"b_{symbol}" in v.given else ()
        formula = f"{'M' if source == 'memory' else 'X'} W_{symbol}{f' + b_{symbol}' if bias else ''}"
        yield Step(symbol, Project(), (source, f"W_{symbol}", *bias), axes, formula, symbol)


def rotations(v: Variant, at: Names) -> Lines:
    """Rotary positions on Q and K: queries stand after `offset` keys, new keys after the past ones."""
    if v.rotary is None:
        return
    r = v.rotary
    for symbol, axis, start in (("Q", "query", v.offset), ("K", "key", v.past)):
        name = f"{symbol}_rotated"
        op = Rotate(r.theta, r.dims, r.interleaved, start)
        formula = f"{symbol} turned by pos · θ^(−2i/d)"
        yield Step(name, op, (symbol,), ("head", axis, "d_k"), formula, symbol)
        at[symbol] = name


def cache(v: Variant, at: Names) -> Lines:
    """Past keys and values before the new ones."""
    for symbol, word, size in (("K", "key", "d_k"), ("V", "value", "d_v")):
        past, present, axes = f"past_{word}", f"present_{word}", ("head", "key", size)
        if past in v.given:
            yield from given(v, past, axes, symbol)
            formula = f"{past}, then {at[symbol]}"
            yield Step(present, Append(), (past, at[symbol]), axes, formula, symbol)
            at[symbol] = present


def sharing(v: Variant, at: Names) -> Lines:
    """Grouped heads: each kv head repeated for the query heads it serves."""
    if v.kv_share == 1:
        return
    for symbol, size in (("K", "d_k"), ("V", "d_v")):
        name, op = f"{symbol}_shared", Repeat(v.kv_share)
        formula = f"each head of {at[symbol]} {v.kv_share} times"
        yield Step(name, op, (at[symbol],), ("head", "key", size), formula, symbol)
        at[symbol] = name


def attention(v: Variant, at: Names) -> Lines:
    """Softmax(rules(Q Kᵀ / √d_k)) V, a line at a time."""

    def line(name: str, op: Op, inputs: tuple[str, ...], formula: str, symbol: str = "S") -> Step:
        at["S"] = name
        return Step(name, op, inputs, HEAD_QUERY_KEY, formula, symbol)

    factor = "scores / √d_k" if v.scale is None else f"scores · {v.scale:g}"
    yield line("scores", MatMulT(), (at["Q"], at["K"]), f"{at['Q']} {at['K']}ᵀ")
    yield line("scaled_scores", Scale(v.d_k, v.scale), ("scores",), factor)
    for cap in (rule for rule in v.rules if isinstance(rule, Softcap)):
        formula = f"{cap.cap:g} · tanh(S / {cap.cap:g})"
        yield line("softcapped_scores", Squeeze(cap.cap), (at["S"],), formula)
    yield from biases(v, at, line)
    yield from masking(v, at, line)
    yield line("attention_weights", Softmax(), (at["S"],), "softmax over keys", "A")
    axes = ("head", "query", "d_v")
    yield Step("head_outputs", MatMul(), ("attention_weights", at["V"]), axes, "A V", "Z")


Line = Callable[..., Step]


def biases(v: Variant, at: Names, line: Line) -> Lines:
    """What is added to the scores: ALiBi's slopes, a given bias."""
    if any(isinstance(rule, Alibi) for rule in v.rules):
        name = "alibi_scores" if "bias" in v.given else "biased_scores"
        yield line(name, Slope(v.offset), (at["S"],), "S − slope · |query − key|")
    if "bias" in v.given:
        yield from given(v, "bias", HEAD_QUERY_KEY, "B")
        yield line("biased_scores", Add(), (at["S"], "bias"), "S + bias")


def masking(v: Variant, at: Names, line: Line) -> Lines:
    """What is hidden: every visibility rule and the given mask at once."""
    rules = tuple(rule for rule in v.rules if isinstance(rule, VisibilityRule))
    mask = ("mask",) if "mask" in v.given else ()
    yield from given(v, "mask", HEAD_QUERY_KEY, "mask")
    if rules or mask:
        op = Hide(v.offset, rules=rules)
        yield line("masked_scores", op, (at["S"], *mask), "S where allowed, else −∞")


def merging(v: Variant, at: Names) -> Lines:
    """Heads side by side, and through W_O."""
    yield Step("concat", Merge(), ("head_outputs",), ("query", MERGED), "heads side by side", "Z")
    yield from given(v, "W_O", (MERGED, "d_model"), "W")
    yield from given(v, "b_O", ("d_model",), "b")
    if "W_O" in v.given:
        bias = ("b_O",) if "b_O" in v.given else ()
        formula = "concat W_O + b_O" if bias else "concat W_O"
        yield Step("output", MatMul(), ("concat", "W_O", *bias), ("query", "d_model"), formula, "Y")


SHARED = {"W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "positions", "mask", "bias"}
"""What a batch has once, not once a member (a mask may have a batch axis of its own)."""

PARTS: tuple[Callable[[Variant, Names], Lines], ...] = (
    sentence,
    projections,
    rotations,
    cache,
    sharing,
    attention,
    merging,
)


def derive(v: Variant) -> Derivation:
    """Every line of this variant, from embeddings to output."""
    at = Names()
    lines: Iterable[Step] = (step for part in PARTS for step in part(v, at))
    if v.batch:
        lines = (batched(step) for step in lines)
    return Derivation(tuple(lines))


def batched(step: Step) -> Step:
    """The same line with a leading batch axis, where the batch has one of it for each member."""
    if step.name in SHARED or step.axes[0] == "batch":
        return step
    return Step(step.name, step.op, step.inputs, ("batch", *step.axes), step.formula, step.symbol)

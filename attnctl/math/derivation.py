"""Attention as a list of lines: name = op(inputs).

`derive` writes the list for any variant; everything else in attnctl is a walk over it. Formulas
are said here, beside the ops; symbols and axes are those of the table in `attnctl.math.names`.

A line reads what it needs by symbol: `at["K"]` is the latest line whose symbol is K, so a step
put between two others is read by what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import cached_property, partial
from math import inf
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import names, ops
from attnctl.math.kind import HEADS, LAYER, Chunks, Kind, documents_in
from attnctl.math.rules import Alibi, PerBatch, Softcap, VisibilityRule
from attnctl.math.steps import Axes, Derivation, Lines, Step, backward

__all__ = ["Axes", "Derivation", "LayerParts", "Lines", "Rotary", "Step", "Variant", "derive"]


@dataclass(frozen=True)
class Rotary:
    """Rotary positions for Q and K; `dims` None rotates the whole head.

    Where `frequencies` are given they replace those of θ; `factor` multiplies what is turned, and
    columns before `first` are not turned (see `attnctl.math.ops.Rotate`). `other` are those that the
    model has for texts of another length. Of positions of time, height and width, `sections` are the
    pairs of columns that go by each, one behind the other, or `sections_in_turn`.
    """

    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False
    frequencies: tuple[float, ...] = ()
    factor: float = 1.0
    first: int = 0
    other: tuple[float, ...] = ()
    sections: tuple[int, ...] = ()
    sections_in_turn: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.theta < inf:
            raise AttnError(f"theta: {self.theta} is not a positive finite number; most models use 10000")
        if self.dims is not None and (self.dims < 2 or self.dims % 2):
            raise AttnError(f"rotary dims: {self.dims} columns do not make pairs; use 2, 4, 6, …")

    def rotate(self, start: PerBatch, documents: tuple[int, ...] = (), **how: Any) -> ops.Rotate:
        """The op that turns rows which come after `start` others, positions from 0 in each document."""
        return ops.Rotate(start=start, documents=documents, **{**vars(self), **how})

    @property
    def formula(self) -> str:
        """The words of a formula for the angle of a row."""
        angle = "pos · frequency" if self.frequencies else "pos · θ^(−2i/d)"
        return f"turned by {angle}" + (f", times {self.factor:g}" if self.factor != 1 else "")


@dataclass(frozen=True)
class LayerParts:
    """The parts that the attention of a trained model's layer has besides: its norms and what surrounds it.

    `norm` makes X of `hidden`, `latent_norm` brings the latent rows to one scale, `head_norm` what heads
    give in a layer of a gated delta rule, which has no softmax, `output_norm` the output before it is added
    to `hidden` (to X where `from_norm`), times `residual`. `v_norm` has no weight; K and V that are
    `shared` are those of an earlier layer, normed and rotated there.
    """

    norm: ops.RMSNorm | ops.LayerNorm | None = None
    latent_norm: ops.RMSNorm | ops.LayerNorm | None = None
    head_norm: ops.RMSNorm | None = None
    buckets: ops.Buckets | None = None
    output_norm: ops.RMSNorm | ops.LayerNorm | None = None
    residual: float = 1.0
    from_norm: bool = False
    v_norm: ops.RMSNorm | ops.LayerNorm | None = None
    shared: bool = False


@dataclass(frozen=True)
class Variant(Kind):
    """The kind of attention to derive.

    `given` names the arrays that will be handed in (with how each came about, as its formula);
    what is not given is derived. `offset` is the number of keys that precede query 0.
    """

    given: dict[str, str]
    d_k: int
    kv_share: int = 1
    sinusoid: ops.Sinusoid | None = None
    rotary: Rotary | None = None
    pages: ops.Gather | None = None
    lookup: ops.LookUp | None = None
    """How a relative bias is read from its table, where there is one."""
    offset: PerBatch = 0
    past: int = 0
    places: ops.vectors.GivenPlaces = ()
    """The positions of the tokens, where they are given."""
    rules_by_positions: bool = False
    batch: bool = False
    axes: dict[str, Axes] = field(default_factory=dict)
    layer: LayerParts = LayerParts()

    @property
    def documents(self) -> tuple[int, ...]:
        """Where positions start again; nowhere if they run on."""
        return documents_in(self)

    @cached_property
    def derivation(self) -> Derivation:
        """Every line of this variant."""
        return derive(self)


class Latest(dict[str, str]):
    """The latest name of each symbol as lines are written: K is `K`, then `K_rotated`, …"""

    def __missing__(self, symbol: str) -> str:
        return symbol


def line(name: str, op: ops.Op, inputs: tuple[str, ...], formula: str) -> Step:
    """The line of a step that is computed."""
    row = names.TABLE[name]
    return Step(name, op, inputs, row.axes, formula, row.symbol)


def given(v: Variant, *leaves: str) -> Lines:
    """The lines of arrays that are handed in, of those that are."""
    for name in [name for name in leaves if name in v.given]:
        row = names.TABLE[name]
        yield Step(name, ops.Given(), (), v.axes.get(name, row.axes), v.given[name], row.symbol)


def sentence(v: Variant, at: Latest) -> Lines:
    """Tokens to X, and the other sentence as M."""
    yield from given(v, "embeddings", "positions")
    if v.sinusoid:
        yield line("positions", v.sinusoid, (), "sin, cos(pos / 10000^(2i/d_model))")
    yield from given(v, "hidden")
    if "hidden" in v.given and "X" not in v.given:
        yield from norm_line(v, at, v.layer.norm, "X", "H", "norm")
        if v.layer.norm is None:
            yield line("X", ops.Copy(), (at["H"],), at["H"])
    elif "embeddings" not in v.given:
        yield from given(v, "X")
    elif v.sinusoid or "positions" in v.given:
        yield line("X", ops.Add(), (at["E"], at["P"]), f"{at['E']} + {at['P']}")
    else:
        yield line("X", ops.Copy(), (at["E"],), at["E"])
    yield from given(v, "memory")


def norm_line(v: Variant, at: Latest, norm: ops.Op | None, name: str, source: str, by: str) -> Lines:
    """The norm of the latest step of a symbol, with the weight and bias that are given."""
    if norm is None:
        return
    factors = tuple(name for name in (f"{by}_weight", f"{by}_bias") if name in v.given)
    yield from given(v, *factors)
    kind = "LayerNorm" if isinstance(norm, ops.LayerNorm) else "RMSNorm"
    yield line(name, norm, (at[source], *factors), f"{kind}({at[source]})")


def linear(v: Variant, at: Latest, name: str, source: str) -> Lines:
    """A row times one matrix (and a bias) that all heads share."""
    yield from given(v, f"W_{name}", f"b_{name}")
    yield product(v, name, ops.MatMul(), at[source], name, source)


def product(v: Variant, name: str, op: ops.Op, rows: str, by: str, said: str) -> Step:
    """The line of rows times the matrix of a name, plus its bias if it has one; rows are `said` so."""
    bias = (f"b_{by}",) if f"b_{by}" in v.given else ()
    return line(name, op, (rows, f"W_{by}", *bias), " + ".join([f"{said} W_{by}", *bias]))


def latents(v: Variant, at: Latest) -> Lines:
    """Queries, and keys with values, through rows of few columns (DeepSeek-V2 2024, section 2.1)."""
    if "W_latent_Q" in v.given:
        yield from linear(v, at, "latent_Q", "X")
        yield from norm_line(v, at, v.layer.latent_norm, "latent_Q_normed", "C_Q", "latent_Q_norm")
    if "W_latent_KV" in v.given:
        yield from linear(v, at, "latent_KV", "X")
        yield from norm_line(v, at, v.layer.latent_norm, "latent_KV_normed", "C_KV", "latent_KV_norm")
        yield from linear(v, at, "K_rope", "X")
        if v.rotary:
            formula = f"{at['R']} {v.rotary.formula}"
            yield line("K_rope_rotated", v.rotary.rotate(v.past, v.documents, first=0), (at["R"],), formula)


def source_of(v: Variant, symbol: str) -> str:
    """The symbol of what Q, K or V is made of."""
    if symbol == "Q":
        return "C_Q" if "W_latent_Q" in v.given else "X"
    if "W_latent_KV" in v.given:
        return "C_KV"
    return "M" if "memory" in v.given else "X"


def projections(v: Variant, at: Latest) -> Lines:
    """X to Q, K, V: a matrix (and a bias) for each head."""
    yield from given(v, "W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")
    paged = dict(zip("KV", names.PAGES, strict=True))
    for symbol in "QKV":
        if v.pages is not None and symbol in paged:
            yield from given(v, paged[symbol])
            yield line(symbol, v.pages, (paged[symbol],), f"rows of {paged[symbol]} by the page table")
            continue
        if f"W_{symbol}" not in v.given:
            yield from given(v, symbol)
            continue
        source = source_of(v, symbol)
        shared = symbol == "K" and "W_K_rope" in v.given
        yield product(v, "K_latent" if shared else symbol, ops.Project(), at[source], symbol, source)
        if shared:
            yield line("K", ops.Beside(), (at["K_C"], at["R"]), f"{at['K_C']} beside {at['R']}")


def convolutions(v: Variant, at: Latest) -> Lines:
    """Q, K and V mixed with those of the tokens before, in layers of a gated delta rule."""
    for symbol in "QKV":
        name = f"conv_{symbol}"
        yield from given(v, name)
        if name in v.given:
            formula = f"silu of {at[symbol]} over the last tokens, times {name}"
            yield line(f"{symbol}_convolved", ops.Convolve(), (at[symbol], name), formula)


def norms(v: Variant, at: Latest) -> Lines:
    """Q and K brought to one scale before they are rotated."""
    yield from head_norms(v, at, after_rotation=False)
    yield from norm_line(v, at, v.layer.v_norm, "V_normed", "V", "V_norm")


def rotations(v: Variant, at: Latest) -> Lines:
    """Rotary positions on Q and K: queries stand after `offset` keys, new keys after the past ones.

    A cache of keys that are yet to be rotated comes before, norms of what is rotated behind.
    """
    if v.cache_unrotated:
        yield from present(v, at)
    if v.rotary is not None:
        starts = {"Q": v.offset, "K": 0 if v.cache_unrotated else v.past}
        for symbol in "Q" if "W_K_rope" in v.given or v.layer.shared else "QK":
            op = v.rotary.rotate(starts[symbol], v.documents, places=v.places)
            formula = f"{at[symbol]} {v.rotary.formula}"
            yield line(f"{symbol}_rotated", op, (at[symbol],), formula)
    yield from head_norms(v, at, after_rotation=True)


def head_norms(v: Variant, at: Latest, *, after_rotation: bool) -> Lines:
    """A norm of Q and one of K, where they are asked for in this place."""
    how = v.qk_norm
    if how is None or how.after_rotation != after_rotation:
        return
    make, usual = (ops.LayerNorm, 1e-5) if how.kind == LAYER else (ops.RMSNorm, 1e-6)
    op = make(usual if how.eps is None else how.eps, how.over == HEADS, how.plus_one)
    for symbol in "Q" if v.layer.shared else "QK":
        yield from norm_line(v, at, op, f"{symbol}_normed", symbol, f"{symbol}_norm")


def temperature(v: Variant, at: Latest) -> Lines:
    """Q times a number that grows with its position, so that weights stay sharp over many keys."""
    if v.temperature is not None:
        op = replace(ops.Temper(*v.temperature), start=v.offset)
        yield line("Q_tempered", op, (at["Q"],), f"{at['Q']} · ({op.factor})")


def cache(v: Variant, at: Latest) -> Lines:
    """Past keys and values before the new ones."""
    if not v.cache_unrotated:
        yield from present(v, at)


def present(v: Variant, at: Latest) -> Lines:
    """All keys and values: the past ones, then the new ones."""
    for symbol, word in (("K", "key"), ("V", "value")):
        past, new = f"past_{word}", at[symbol]
        if past in v.given:
            yield from given(v, past)
            yield line(f"present_{word}", ops.Append(), (past, new), f"{past}, then {new}")


def dequantised(v: Variant, at: Latest) -> Lines:
    """Keys and values that are stored in few bits, times their scale, of which each head has its own."""
    for symbol, scale in zip("KV", names.STORED_SCALES, strict=True):
        if scale in v.given:
            yield from given(v, scale)
            formula = f"{at[symbol]} · {scale}"
            yield line(f"{symbol}_dequantised", ops.ScaleHeads(), (at[symbol], scale), formula)


def sharing(v: Variant, at: Latest) -> Lines:
    """Grouped heads: each kv head repeated for the query heads it serves."""
    if v.kv_share == 1:
        return
    for symbol in "KV":
        formula = f"each head of {at[symbol]} {v.kv_share} times"
        yield line(f"{symbol}_shared", ops.Repeat(v.kv_share), (at[symbol],), formula)


def delta_rule(v: Variant, at: Latest) -> Lines:
    """What each token decays and writes, in layers of a gated delta rule (see `attnctl.math.ops.delta`)."""
    if v.layer.head_norm is None:
        return
    for name in ("beta", names.DECAY):
        yield from given(v, f"W_{name}")
        yield line(f"{name}_logits", ops.Project(), (at["X"], f"W_{name}"), f"{at['X']} W_{name}")
    yield line("beta", ops.Sigmoid(), ("beta_logits",), "σ(beta_logits)")
    yield from given(v, "decay_rate", "decay_step")
    formula = "−exp(decay_rate) · Σ up to the token of ln(1 + exp(decay_logits + decay_step))"
    yield line(names.DECAY, ops.LogDecay(), ("decay_logits", "decay_rate", "decay_step"), formula)
    k, u = at["K"], names.WRITTEN
    formula = f"beta · ({at['V']} − Σ over earlier tokens of exp(decay − theirs) · {k} {k}ᵀ · {u})"
    yield line(u, ops.Write(), (k, at["V"], "beta", names.DECAY), formula)


def attention(v: Variant, at: Latest) -> Lines:
    """Softmax(rules(Q Kᵀ / √d_k)) V, a line at a time."""
    yield line("scores", ops.MatMulT(), (at["Q"], at["K"]), f"{at['Q']} {at['K']}ᵀ")
    factor = "/ √d_k" if v.scale is None else f"· {v.scale:g}"
    yield line("scaled_scores", ops.Scale(v.d_k, v.scale), (at["S"],), f"{at['S']} {factor}")
    if v.layer.head_norm is not None:
        formula = f"{at['S']} · exp(decay of the query − decay of the key), 0 for later keys"
        yield line(names.FADED, ops.Fade(), (at["S"], names.DECAY), formula)
        yield line("head_outputs", ops.MatMul(), (at["S"], at["U"]), f"{at['S']} {at['U']}")
        yield from norm_line(v, at, v.layer.head_norm, "head_outputs_normed", "Z", "head_norm")
        return
    for cap in (rule for rule in v.rules if isinstance(rule, Softcap)):
        formula = f"{cap.cap:g} · tanh(S / {cap.cap:g})"
        yield line("softcapped_scores", ops.Squeeze(cap.cap), (at["S"],), formula)
    yield from biases(v, at)
    yield from masking(v, at)
    yield from given(v, "sink")
    if v.chunks is not None:
        formula = f"max + ln Σ exp({at['S']} − max) over the keys of each chunk"
        yield line("chunk_logsumexp", ops.ChunkLogSumExp(v.chunks), (at["S"],), formula)
        yield line("logsumexp", ops.MergeLogSumExp(), (at["L_c"],), "max + ln Σ exp(L_c − max) over chunks")
    elif v.logsumexp or v.backward:
        formula = f"max + ln Σ exp({at['S']} − max) over keys"
        yield line("logsumexp", ops.LogSumExp(), (at["S"],), formula)
    if "sink" in v.given:
        formula = "softmax over keys and sink, the keys' share"
        yield line("attention_weights", ops.SinkSoftmax(), (at["S"], "sink"), formula)
        yield line("sink_weights", ops.Remainder(), (at["A"],), "1 − Σ over keys of A")
    else:
        yield line("attention_weights", ops.Softmax(), (at["S"],), "softmax over keys")
    if v.chunks is None:
        yield line("head_outputs", ops.MatMul(), (at["A"], at["V"]), "A V")
    else:
        yield from chunks(v, v.chunks, at)


def chunks(v: Variant, cut: Chunks, at: Latest) -> Lines:
    """A V of each chunk of keys, and their sum, each times its share: online softmax, split-KV, rings."""
    formula = f"softmax over the keys of each chunk of {at['S']}, times {at['V']}"
    yield line("chunk_outputs", ops.ChunkOutputs(cut), (at["S"], at["V"]), formula)
    sink = ("sink",) if "sink" in v.given else ()
    formula = "exp(L_c) / (exp(L) + exp(sink))" if sink else "exp(L_c − L)"
    yield line("chunk_shares", ops.Shares(), (at["L_c"], at["L"], *sink), formula)
    yield line("head_outputs", ops.MergeChunks(), (at["w_c"], at["Z_c"]), "Σ over chunks of w_c · Z_c")


def looked_up(v: Variant, at: Latest) -> Lines:
    """A relative bias, whose numbers stand in a table."""
    if v.lookup is not None:
        yield from given(v, names.BIAS_TABLE)
        formula = f"{names.BIAS_TABLE}[head, index of query and key]"
        yield line(names.BIAS, v.lookup, (names.BIAS_TABLE,), formula)


def biases(v: Variant, at: Latest) -> Lines:
    """Terms added to the scores: ALiBi's slopes, a given bias."""
    if any(isinstance(rule, Alibi) for rule in v.rules):
        is_last = "bias" not in v.given and v.lookup is None
        name = "biased_scores" if is_last else "alibi_scores"
        places = v.places[0] if v.places else ()
        slope = ops.Slope(v.offset, places=places)
        yield line(name, slope, (at["S"],), "S − slope · |query − key|")
    if v.layer.buckets is not None:
        yield from given(v, "bias_table")
        formula = "S + a number for each head and bucket of key − query"
        yield line("biased_scores", v.layer.buckets, (at["S"], "bias_table"), formula)
    if "bias" in v.given or v.lookup is not None:
        yield from given(v, "bias") if v.lookup is None else ()
        yield line("biased_scores", ops.Add(), (at["S"], at["B"]), "S + bias")


def masking(v: Variant, at: Latest) -> Lines:
    """Scores hidden by every visibility rule and the given mask at once."""
    rules = tuple(rule for rule in v.rules if isinstance(rule, VisibilityRule))
    mask = ("mask",) if "mask" in v.given else ()
    yield from given(v, "mask")
    if rules or mask:
        places = v.places[0] if v.rules_by_positions and v.places else ()
        op = ops.Hide(v.offset, places=places, rules=rules)
        yield line("masked_scores", op, (at["S"], *mask), "S where allowed, else −∞")


def merging(v: Variant, at: Latest) -> Lines:
    """Heads side by side, and through W_O."""
    yield line("concat", ops.Merge(), (at["Z"],), "heads side by side")
    if v.gate:
        made = "W_gate" in v.given or "gate" not in v.given
        yield from linear(v, at, "gate", "X") if made else given(v, "gate")
        op, word = (ops.Gate(), "σ") if v.layer.head_norm is None else (ops.SwishGate(), "silu")
        yield line("gated", op, (at["Z"], at["G"]), f"{at['Z']} · {word}({at['G']})")
    yield from given(v, "W_O", "b_O")
    if "W_O" in v.given:
        yield product(v, "output", ops.MatMul(), at["Z"], "O", at["Z"])
    elif "W_Q" in v.given or v.gate:
        yield without_projection(at["Z"])


def without_projection(concat: str) -> Step:
    """The output where there is no output projection: the heads side by side."""
    row = names.TABLE["output"]
    return Step("output", ops.Copy(), (concat,), names.TABLE["concat"].axes, concat, row.symbol)


def residual(v: Variant, at: Latest) -> Lines:
    """The output, normed or scaled where a model does that, added to what came into the layer."""
    if "hidden" not in v.given or "W_O" not in v.given:
        return
    yield from norm_line(v, at, v.layer.output_norm, "output_normed", "Y", "output_norm")
    if "output_scale" in v.given:
        yield from given(v, "output_scale")
        formula = f"{at['Y']} ∘ output_scale"
        yield line("output_scaled", ops.ScaleColumns(), (at["Y"], "output_scale"), formula)
    start, factor = "X" if v.layer.from_norm else "H", v.layer.residual
    op = ops.Add() if factor == 1 else ops.AddScaled(factor)
    added = at["Y"] if factor == 1 else f"{factor:g} · {at['Y']}"
    yield line("residual", op, (at[start], at["Y"]), f"{at[start]} + {added}")


PARTS: tuple[Callable[[Variant, Latest], Lines], ...] = (
    sentence,
    latents,
    projections,
    convolutions,
    norms,
    delta_rule,
    rotations,
    temperature,
    cache,
    dequantised,
    sharing,
    looked_up,
    attention,
    merging,
    residual,
)


def derive(v: Variant) -> Derivation:
    """Every line of this variant, from embeddings to output, and where it is asked for, back again."""
    steps = collect(v, PARTS)
    if not v.backward:
        return Derivation(tuple(steps))
    # Chunks come to the whole, and so do gradients: kernels too make the weights again from the whole's L.
    whole = steps if v.chunks is None else derive(replace(v, chunks=None, logsumexp=True, backward=False))
    return Derivation((*steps, *backward(tuple(whole), v.given)))


def derive_head(
    made: dict[str, str], norm: ops.Op | None, scale: float | None, cap: float | None
) -> Derivation:
    """The lines after the last layer: the final norm, and the logits of the tokens that W_U is of."""
    lines = partial(head, norm=norm, scale=scale, cap=cap)
    return Derivation(tuple(collect(Variant(made, d_k=0), [lines])))


def head(v: Variant, at: Latest, *, norm: ops.Op | None, scale: float | None, cap: float | None) -> Lines:
    """F and F W_U, scaled and capped where a model does that."""
    yield from given(v, "hidden", names.FINAL)
    if "hidden" in v.given:
        yield from norm_line(v, at, norm, names.FINAL, "H", "norm")
        if norm is None:
            yield line(names.FINAL, ops.Copy(), (at["H"],), at["H"])
    yield from given(v, "W_U", "b_U")
    later = [name for name, there in (("scaled_logits", scale), (names.LOGITS, cap)) if there is not None]
    first, *others = ["raw_logits", *later[:-1], names.LOGITS] if later else [names.LOGITS]
    yield product(v, first, ops.MatMul(), at["F"], "U", at["F"])
    if scale is not None:
        yield line(others.pop(0), ops.Scale(factor=scale), (at["ℓ"],), f"{at['ℓ']} · {scale:g}")
    if cap is not None:
        formula = f"{cap:g} · tanh({at['ℓ']} / {cap:g})"
        yield line(others.pop(0), ops.Squeeze(cap), (at["ℓ"],), formula)


def collect(v: Variant, parts: Iterable[Callable[[Variant, Latest], Lines]]) -> list[Step]:
    """The lines of these parts, each of which reads the latest before it."""
    at = Latest()
    steps: list[Step] = []
    for part in parts:
        for step in part(v, at):
            at[step.symbol] = step.name
            steps.append(with_batch(step) if v.batch else step)
    return steps


def with_batch(step: Step) -> Step:
    """Return the line with a leading batch axis, where the batch has one of it for each member."""
    if names.TABLE[step.name].once or step.axes[0] == "batch":
        return step
    return Step(step.name, step.op, step.inputs, ("batch", *step.axes), step.formula, step.symbol)

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
        if self.factor == 1:
            return f"turned by {angle}"
        return f"turned by {angle}, times {self.factor:g}"


@dataclass(frozen=True)
class LayerParts:
    """The parts that the attention of a trained model's layer has besides: its norms and what surrounds it.

    `norm` makes X of `hidden`, `latent_norm` brings the latent rows to one scale, `head_norm` what heads
    give in a layer of a gated delta rule, which has no softmax, `output_norm` the output before it is added
    to `hidden` (to X where `from_norm`), times `residual`. `v_norm` has no weight; K and V that are
    `shared` are those of an earlier layer, normed and rotated there. `mixer` is what mixes tokens in a
    layer that does not attend, `STATE_SPACE` or `CONVOLUTION`, or that there is a `NETWORK` alone;
    `gate_norm` is for its gated heads, and `concat_norm` brings heads that attend to one scale before W_O.
    `distances` adds what queries and keys have for each distance, whose rows `distances_norm` norms.
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
    distances: ops.AddByDistance | None = None
    distances_norm: ops.LayerNorm | None = None
    mixer: str = ""
    gate_norm: ops.NormInGroups | None = None
    concat_norm: ops.RMSNorm | ops.LayerNorm | None = None


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
    return Step(name, op, inputs, axes=row.axes, formula=formula, symbol=row.symbol)


def given(v: Variant, *leaves: str) -> Lines:
    """The lines of arrays that are handed in, of those that are."""
    for name in leaves:
        if name not in v.given:
            continue
        row = names.TABLE[name]
        axes = v.axes.get(name, row.axes)
        yield Step(name, ops.Given(), (), axes=axes, formula=v.given[name], symbol=row.symbol)


def sentence(v: Variant, at: Latest) -> Lines:
    """Tokens to X, and the other sentence as M."""
    yield from given(v, "embeddings", "positions")
    if v.sinusoid:
        yield line("positions", v.sinusoid, (), "sin, cos(pos / 10000^(2i/d_model))")
    yield from given(v, "hidden")
    if "hidden" in v.given and "X" not in v.given:
        yield from norm_line(v, at, v.layer.norm, "X", of="H", by="norm")
        if v.layer.norm is None:
            yield line("X", ops.Copy(), (at["H"],), at["H"])
    elif "embeddings" not in v.given:
        yield from given(v, "X")
    elif v.sinusoid or "positions" in v.given:
        yield line("X", ops.Add(), (at["E"], at["P"]), f"{at['E']} + {at['P']}")
    else:
        yield line("X", ops.Copy(), (at["E"],), at["E"])
    yield from given(v, "memory")


def norm_line(v: Variant, at: Latest, norm: ops.Op | None, name: str, *, of: str, by: str) -> Lines:
    """The norm of the latest step of a symbol, with the weight and bias that are given."""
    if norm is None:
        return

    rows = at[of]
    factors = tuple(factor for factor in (f"{by}_weight", f"{by}_bias") if factor in v.given)
    yield from given(v, *factors)
    kind = "LayerNorm" if isinstance(norm, ops.LayerNorm) else "RMSNorm"
    yield line(name, norm, (rows, *factors), f"{kind}({rows})")


def linear(v: Variant, at: Latest, name: str, source: str) -> Lines:
    """A row times one matrix (and a bias) that all heads share."""
    yield from given(v, f"W_{name}", f"b_{name}")
    yield product(v, name, ops.MatMul(), rows=at[source], by=name, shown_rows=source)


def product(v: Variant, name: str, op: ops.Op, *, rows: str, by: str, shown_rows: str) -> Step:
    """The line of rows times the matrix of a name, plus its bias if it has one."""
    formula = f"{shown_rows} W_{by}"
    bias = f"b_{by}"
    if bias not in v.given:
        return line(name, op, (rows, f"W_{by}"), formula)
    return line(name, op, (rows, f"W_{by}", bias), f"{formula} + {bias}")


def latents(v: Variant, at: Latest) -> Lines:
    """Queries, and keys with values, through rows of few columns (DeepSeek-V2 2024, section 2.1)."""
    if "W_latent_Q" in v.given:
        yield from linear(v, at, "latent_Q", "X")
        norm = v.layer.latent_norm
        yield from norm_line(v, at, norm, "latent_Q_normed", of="C_Q", by="latent_Q_norm")
    if "W_latent_KV" in v.given:
        yield from linear(v, at, "latent_KV", "X")
        norm = v.layer.latent_norm
        yield from norm_line(v, at, norm, "latent_KV_normed", of="C_KV", by="latent_KV_norm")
        yield from linear(v, at, "K_rope", "X")
        if v.rotary:
            rows = at["R"]
            op = v.rotary.rotate(v.past, v.documents, first=0)  # all of its columns: it has no others
            yield line("K_rope_rotated", op, (rows,), f"{rows} {v.rotary.formula}")


def source_of(v: Variant, symbol: str) -> str:
    """The symbol of what Q, K or V is made of."""
    if symbol == "Q":
        return "C_Q" if "W_latent_Q" in v.given else "X"
    if "W_latent_KV" in v.given:
        return "C_KV"
    return "M" if "memory" in v.given else "X"


def projections(v: Variant, at: Latest) -> Lines:
    """X to Q, K, V: a matrix (and a bias) for each head."""
    yield from given(v, *(names.matrix_of(symbol) for symbol in names.PROJECTED))
    yield from given(v, *(names.bias_of(symbol) for symbol in names.PROJECTED))

    for symbol in names.PROJECTED:
        pages = names.PAGES_OF.get(symbol)
        if v.pages is not None and pages:
            yield from given(v, pages)
            yield line(symbol, v.pages, (pages,), f"rows of {pages} by the page table")
        elif names.matrix_of(symbol) not in v.given:
            yield from given(v, symbol)
        else:
            yield from projected(v, at, symbol)


def projected(v: Variant, at: Latest, symbol: str) -> Lines:
    """Q, K or V through its matrix; K may have columns besides that all heads share (DeepSeek-V2)."""
    source = source_of(v, symbol)
    has_shared_columns = symbol == "K" and "W_K_rope" in v.given
    name = "K_latent" if has_shared_columns else symbol
    yield product(v, name, ops.Project(), rows=at[source], by=symbol, shown_rows=source)

    if has_shared_columns:
        own = at["K_C"]
        shared = at["R"]
        yield line("K", ops.Beside(), (own, shared), f"{own} beside {shared}")


def convolutions(v: Variant, at: Latest) -> Lines:
    """Q, K and V mixed with those of the tokens before, in layers that carry a state."""
    if v.layer.mixer == names.CONVOLUTION:
        return
    for symbol in names.PROJECTED:
        kernel = f"conv_{symbol}"
        bias = f"conv_bias_{symbol}"
        if kernel not in v.given:
            continue

        yield from given(v, kernel, bias)
        rows = at[symbol]
        formula = f"silu of {rows} over the last tokens, times {kernel}"
        if v.layer.mixer != names.STATE_SPACE:
            yield line(f"{symbol}_convolved", ops.Convolve(), (rows, kernel), formula)
        elif bias in v.given:
            op = ops.MixTokens(swish=True)
            yield line(f"{symbol}_convolved", op, (rows, kernel, bias), f"{formula}, plus {bias}")
        else:
            yield line(f"{symbol}_convolved", ops.MixTokens(swish=True), (rows, kernel), formula)


def norms(v: Variant, at: Latest) -> Lines:
    """Q and K brought to one scale before they are rotated."""
    yield from head_norms(v, at, after_rotation=False)
    yield from norm_line(v, at, v.layer.v_norm, "V_normed", of="V", by="V_norm")


def rotations(v: Variant, at: Latest) -> Lines:
    """Rotary positions on Q and K: queries stand after `offset` keys, new keys after the past ones.

    A cache of keys that are yet to be rotated comes before, norms of what is rotated behind.
    """
    if v.cache_unrotated:
        yield from present(v, at)
    if v.rotary is not None:
        # A key's shared columns are rotated already; shared keys are, in an earlier layer.
        only_queries = "W_K_rope" in v.given or v.layer.shared
        starts = {"Q": v.offset, "K": 0 if v.cache_unrotated else v.past}
        for symbol in "Q" if only_queries else "QK":
            rows = at[symbol]
            op = v.rotary.rotate(starts[symbol], v.documents, places=v.places)
            yield line(f"{symbol}_rotated", op, (rows,), f"{rows} {v.rotary.formula}")
    yield from head_norms(v, at, after_rotation=True)


def head_norms(v: Variant, at: Latest, *, after_rotation: bool) -> Lines:
    """A norm of Q and one of K, where they are asked for in this place."""
    asked = v.qk_norm
    if asked is None or asked.after_rotation != after_rotation:
        return

    # The usual ε of each: that of PyTorch for LayerNorm, that of Llama for RMSNorm.
    kind, usual_eps = (ops.LayerNorm, 1e-5) if asked.kind == LAYER else (ops.RMSNorm, 1e-6)
    eps = usual_eps if asked.eps is None else asked.eps
    op = kind(eps, heads=asked.over == HEADS, plus_one=asked.plus_one)
    for symbol in "Q" if v.layer.shared else "QK":
        yield from norm_line(v, at, op, f"{symbol}_normed", of=symbol, by=f"{symbol}_norm")


def temperature(v: Variant, at: Latest) -> Lines:
    """Q times a number that grows with its position, so that weights stay sharp over many keys."""
    if v.temperature is not None:
        queries = at["Q"]
        op = replace(ops.Temper(*v.temperature), start=v.offset)
        yield line("Q_tempered", op, (queries,), f"{queries} · ({op.factor})")


def cache(v: Variant, at: Latest) -> Lines:
    """Past keys and values before the new ones."""
    if not v.cache_unrotated:
        yield from present(v, at)


def present(v: Variant, at: Latest) -> Lines:
    """All keys and values: the past ones, then the new ones."""
    for symbol, word in (("K", "key"), ("V", "value")):
        past = f"past_{word}"
        new = at[symbol]
        if past in v.given:
            yield from given(v, past)
            yield line(f"present_{word}", ops.Append(), (past, new), f"{past}, then {new}")


def dequantised(v: Variant, at: Latest) -> Lines:
    """Keys and values that are stored in few bits, times their scale, of which each head has its own."""
    for symbol, scale in zip("KV", names.STORED_SCALES, strict=True):
        if scale in v.given:
            yield from given(v, scale)
            rows = at[symbol]
            yield line(f"{symbol}_dequantised", ops.ScaleHeads(), (rows, scale), f"{rows} · {scale}")


def sharing(v: Variant, at: Latest) -> Lines:
    """Grouped heads: each kv head repeated for the query heads it serves."""
    if v.kv_share == 1:
        return
    for symbol in "KV":
        rows = at[symbol]
        formula = f"each head of {rows} {v.kv_share} times"
        yield line(f"{symbol}_shared", ops.Repeat(v.kv_share), (rows,), formula)


def delta_rule(v: Variant, at: Latest) -> Lines:
    """What each token decays and writes, in layers of a gated delta rule (see `attnctl.math.ops.delta`)."""
    if v.layer.head_norm is None:
        return
    x = at["X"]
    for name in ("beta", names.DECAY):
        matrix = f"W_{name}"
        yield from given(v, matrix)
        yield line(f"{name}_logits", ops.Project(), (x, matrix), f"{x} {matrix}")
    yield line("beta", ops.Sigmoid(), ("beta_logits",), "σ(beta_logits)")
    yield from given(v, "decay_rate", "decay_step")
    formula = "−exp(decay_rate) · Σ up to the token of ln(1 + exp(decay_logits + decay_step))"
    yield line(names.DECAY, ops.LogDecay(), ("decay_logits", "decay_rate", "decay_step"), formula)
    k = at["K"]
    v_rows = at["V"]
    u = names.WRITTEN
    formula = f"beta · ({v_rows} − Σ over earlier tokens of exp(decay − theirs) · {k} {k}ᵀ · {u})"
    yield line(u, ops.Write(), (k, v_rows, "beta", names.DECAY), formula)


def state_space(v: Variant, at: Latest) -> Lines:
    """How long each token lasts and what it writes, in Mamba 2 (see `attnctl.math.ops.states`)."""
    if v.layer.mixer != names.STATE_SPACE:
        return
    x = at["X"]
    yield from given(v, "W_decay")
    yield line("decay_logits", ops.Project(), (x, "W_decay"), f"{x} W_decay")
    yield from given(v, "decay_rate", "decay_step")
    formula = "ln(1 + exp(decay_logits + decay_step))"
    yield line(names.STEP_SIZE, ops.StepSize(), ("decay_logits", "decay_step"), formula)
    formula = "−exp(decay_rate) · Σ up to the token of Δ"
    yield line(names.DECAY, ops.LogDecay(), ("decay_logits", "decay_rate", "decay_step"), formula)
    rows = at["V"]
    yield line(names.WRITTEN, ops.ScaleTokens(), (rows, names.STEP_SIZE), f"{rows} · Δ")


def mixed(v: Variant, at: Latest) -> Lines:
    """What stands for attention in a layer of Mamba 2: scores that fade with the distance, times U."""
    queries = at["Q"]
    keys = at["K"]
    yield line("scores", ops.MatMulT(), (queries, keys), f"{queries} {keys}ᵀ")
    yield from faded_scores(at)
    yield from given(v, "skip")
    outputs = at["Z"]
    rows = at["V"]
    formula = f"{outputs} + skip · {rows}"
    yield line("head_outputs_skipped", ops.AddSkipped(), (outputs, rows, "skip"), formula)


def short_convolution(v: Variant, at: Latest) -> Lines:
    """What stands for attention in LFM2: V through a gate, over the last few tokens."""
    x = at["X"]
    yield from given(v, "W_in_gate", "b_in_gate")
    yield product(v, names.IN_GATE, ops.Project(), rows=x, by="in_gate", shown_rows=x)
    rows = at["V"]
    yield line("V_gated", ops.Multiply(), (rows, names.IN_GATE), f"{rows} ∘ in_gate")
    yield from given(v, "conv_V", "conv_bias_V")
    gated_rows = at["V"]
    factors = tuple(name for name in ("conv_V", "conv_bias_V") if name in v.given)
    formula = f"{gated_rows} over the last tokens, times conv_V"
    yield line("head_outputs", ops.MixTokens(), (gated_rows, *factors), formula)


def attention(v: Variant, at: Latest) -> Lines:
    """Softmax(rules(Q Kᵀ / √d_k)) V, a line at a time; or what mixes tokens in its place."""
    if v.layer.mixer == names.STATE_SPACE:
        yield from mixed(v, at)
        return
    if v.layer.mixer == names.CONVOLUTION:
        yield from short_convolution(v, at)
        return
    if v.layer.mixer == names.NETWORK:
        return

    queries = at["Q"]
    keys = at["K"]
    yield line("scores", ops.MatMulT(), (queries, keys), f"{queries} {keys}ᵀ")
    yield from by_distance(v, at)
    factor = "/ √d_k" if v.scale is None else f"· {v.scale:g}"
    raw = at["S"]
    yield line("scaled_scores", ops.Scale(v.d_k, v.scale), (raw,), f"{raw} {factor}")
    if v.layer.head_norm is not None:
        yield from faded(v, at, v.layer.head_norm)
        return

    for rule in v.rules:
        if isinstance(rule, Softcap):
            formula = f"{rule.cap:g} · tanh(S / {rule.cap:g})"
            yield line("softcapped_scores", ops.Squeeze(rule.cap), (at["S"],), formula)
    yield from biases(v, at)
    yield from masking(v, at)

    yield from given(v, "sink")
    yield from logsumexp(v, at)
    yield from weights(v, at)
    if v.chunks is None:
        yield line("head_outputs", ops.MatMul(), (at["A"], at["V"]), "A V")
    else:
        yield from chunks(v, v.chunks, at)


def faded(v: Variant, at: Latest, norm: ops.RMSNorm) -> Lines:
    """What a gated delta rule has in place of softmax: scores that fade with the distance, times U."""
    yield from faded_scores(at)
    yield from norm_line(v, at, norm, "head_outputs_normed", of="Z", by="head_norm")


def faded_scores(at: Latest) -> Lines:
    scores = at["S"]
    formula = f"{scores} · exp(decay of the query − decay of the key), 0 for later keys"
    yield line(names.FADED, ops.Fade(), (scores, names.DECAY), formula)
    shares = at["S"]
    written = at["U"]
    yield line("head_outputs", ops.MatMul(), (shares, written), f"{shares} {written}")


def logsumexp(v: Variant, at: Latest) -> Lines:
    """The logarithm of what softmax divides a row by, where chunks or gradients read it."""
    scores = at["S"]
    if v.chunks is not None:
        formula = f"max + ln Σ exp({scores} − max) over the keys of each chunk"
        yield line("chunk_logsumexp", ops.ChunkLogSumExp(v.chunks), (scores,), formula)
        yield line("logsumexp", ops.MergeLogSumExp(), (at["L_c"],), "max + ln Σ exp(L_c − max) over chunks")
    elif v.logsumexp or v.backward:
        formula = f"max + ln Σ exp({scores} − max) over keys"
        yield line("logsumexp", ops.LogSumExp(), (scores,), formula)


def weights(v: Variant, at: Latest) -> Lines:
    """Softmax over keys, or over keys and a sink, which takes a share and gives no value."""
    scores = at["S"]
    if "sink" not in v.given:
        yield line("attention_weights", ops.Softmax(), (scores,), "softmax over keys")
        return

    formula = "softmax over keys and sink, the keys' share"
    yield line("attention_weights", ops.SinkSoftmax(), (scores, "sink"), formula)
    yield line("sink_weights", ops.Remainder(), (at["A"],), "1 − Σ over keys of A")


def chunks(v: Variant, cut: Chunks, at: Latest) -> Lines:
    """A V of each chunk of keys, and their sum, each times its share: online softmax, split-KV, rings."""
    scores = at["S"]
    values = at["V"]
    formula = f"softmax over the keys of each chunk of {scores}, times {values}"
    yield line("chunk_outputs", ops.ChunkOutputs(cut), (scores, values), formula)

    of_chunks = at["L_c"]
    whole = at["L"]
    if "sink" in v.given:
        formula = "exp(L_c) / (exp(L) + exp(sink))"
        yield line("chunk_shares", ops.Shares(), (of_chunks, whole, "sink"), formula)
    else:
        yield line("chunk_shares", ops.Shares(), (of_chunks, whole), "exp(L_c − L)")
    yield line("head_outputs", ops.MergeChunks(), (at["w_c"], at["Z_c"]), "Σ over chunks of w_c · Z_c")


def looked_up(v: Variant, at: Latest) -> Lines:
    """A relative bias, whose numbers stand in a table."""
    if v.lookup is not None:
        yield from given(v, names.BIAS_TABLE)
        formula = f"{names.BIAS_TABLE}[head, index of query and key]"
        yield line(names.BIAS, v.lookup, (names.BIAS_TABLE,), formula)


def distances(v: Variant, at: Latest) -> Lines:
    """What each query and each key has for every distance (see `attnctl.math.ops.distances`)."""
    if v.layer.distances is None:
        return
    yield from given(v, "distances")
    yield from norm_line(v, at, v.layer.distances_norm, "distances_normed", of="D", by="distances_norm")

    rows = at["D"]
    for name, by, of in (("c2p", "K_distances", "Q"), ("p2c", "Q_distances", "K")):
        if f"W_{by}" not in v.given:
            continue
        yield from given(v, f"W_{by}", f"b_{by}")
        yield product(v, by, ops.Project(), rows=rows, by=by, shown_rows=rows)
        tokens = at[of]
        yield line(name, ops.WithDistances(), (tokens, by), f"{tokens} {by}ᵀ")


def by_distance(v: Variant, at: Latest) -> Lines:
    """Scores with what queries have for distances, and keys."""
    op = v.layer.distances
    if op is None:
        return
    for name in ("c2p", "p2c"):
        if name in at:
            of_keys = name == "p2c"
            row = "key" if of_keys else "query"
            formula = f"S + {name}[{row}, distance of query and key]"
            yield line(f"{name}_scores", replace(op, of_keys=of_keys), (at["S"], name), formula)


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
    if v.layer.mixer == names.NETWORK:
        return
    yield line("concat", ops.Merge(), (at["Z"],), "heads side by side")
    if v.gate:
        yield from gated(v, at)
    yield from norm_line(v, at, v.layer.concat_norm, "concat_normed", of="Z", by="concat_norm")

    yield from given(v, "W_O", "b_O")
    merged = at["Z"]
    if "W_O" in v.given:
        yield product(v, "output", ops.MatMul(), rows=merged, by="O", shown_rows=merged)
    elif "W_Q" in v.given or v.gate:
        yield without_projection(merged)


def gated(v: Variant, at: Latest) -> Lines:
    """The heads' outputs times a gate, which is given or made of X."""
    if "W_gate" in v.given or "gate" not in v.given:
        yield from linear(v, at, "gate", "X")
    else:
        yield from given(v, "gate")

    merged = at["Z"]
    gate = at["G"]
    if v.layer.mixer == names.CONVOLUTION:
        yield line("gated", ops.Multiply(), (merged, gate), f"{merged} ∘ {gate}")
    elif v.layer.mixer == names.STATE_SPACE or v.layer.head_norm is not None:
        yield line("gated", ops.SwishGate(), (merged, gate), f"{merged} · silu({gate})")
    else:
        yield line("gated", ops.Gate(), (merged, gate), f"{merged} · σ({gate})")
    yield from norm_line(v, at, v.layer.gate_norm, "gated_normed", of="Z", by="gate_norm")


def without_projection(concat: str) -> Step:
    """The output where there is no output projection: the heads side by side."""
    axes = names.TABLE["concat"].axes  # its columns are the heads', not those of a projection
    symbol = names.TABLE["output"].symbol
    return Step("output", ops.Copy(), (concat,), axes=axes, formula=concat, symbol=symbol)


def residual(v: Variant, at: Latest) -> Lines:
    """The output, normed or scaled where a model does that, added to what came into the layer."""
    if v.layer.mixer == names.NETWORK:
        start = at["H"]
        yield line("residual", ops.Copy(), (start,), start)
        return
    if "hidden" not in v.given or "W_O" not in v.given:
        return
    yield from norm_line(v, at, v.layer.output_norm, "output_normed", of="Y", by="output_norm")
    if "output_scale" in v.given:
        yield from given(v, "output_scale")
        normed = at["Y"]
        yield line(
            "output_scaled", ops.ScaleColumns(), (normed, "output_scale"), f"{normed} ∘ output_scale"
        )

    start = at["X"] if v.layer.from_norm else at["H"]
    output = at["Y"]
    factor = v.layer.residual
    if factor == 1:
        yield line("residual", ops.Add(), (start, output), f"{start} + {output}")
    else:
        yield line("residual", ops.AddScaled(factor), (start, output), f"{start} + {factor:g} · {output}")


PARTS: tuple[Callable[[Variant, Latest], Lines], ...] = (
    sentence,
    latents,
    projections,
    convolutions,
    norms,
    delta_rule,
    state_space,
    rotations,
    temperature,
    cache,
    dequantised,
    sharing,
    looked_up,
    distances,
    attention,
    merging,
    residual,
)


def derive(v: Variant) -> Derivation:
    """Every line of this variant, from embeddings to output, and where it is asked for, back again."""
    steps = collect(v, PARTS)
    if not v.backward:
        return Derivation(tuple(steps))
    if v.chunks is None:
        return Derivation((*steps, *backward(steps, v.given)))

    # Chunks come to the whole, and so do gradients: kernels too make the weights again from the whole's L.
    whole = derive(replace(v, chunks=None, logsumexp=True, backward=False))
    return Derivation((*steps, *backward(whole.steps, v.given)))


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
        yield from norm_line(v, at, norm, names.FINAL, of="H", by="norm")
        if norm is None:
            hidden = at["H"]
            yield line(names.FINAL, ops.Copy(), (hidden,), hidden)

    # The last of the lines that there are is called logits, whichever that is.
    is_scaled = scale is not None
    is_capped = cap is not None
    product_name = "raw_logits" if is_scaled or is_capped else names.LOGITS
    scaled_name = "scaled_logits" if is_capped else names.LOGITS

    yield from given(v, "W_U", "b_U")
    final = at["F"]
    yield product(v, product_name, ops.MatMul(), rows=final, by="U", shown_rows=final)
    if scale is not None:
        logits = at["ℓ"]
        yield line(scaled_name, ops.Scale(factor=scale), (logits,), f"{logits} · {scale:g}")
    if cap is not None:
        logits = at["ℓ"]
        formula = f"{cap:g} · tanh({logits} / {cap:g})"
        yield line(names.LOGITS, ops.Squeeze(cap), (logits,), formula)


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
    return replace(step, axes=("batch", *step.axes))

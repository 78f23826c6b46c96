"""Mistakes in porting a trained model: rotary frequencies, norms, sinks, gates, temperatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from attnctl.math import Array
from attnctl.math.names import GATE, GATED, HEAD_OUTPUTS, WEIGHTS
from attnctl.math.ops import Copy, Gate, LayerNorm, Op, RMSNorm, Rotate, SinkSoftmax, Softmax, Temper
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import all_or_one, at, spoken
from attnctl.mistakes.projections import list_names
from attnctl.mistakes.wrong import By, side_by_side, side_into_heads

ROTATED = ("Q_rotated", "K_rotated")
OF_BLEND = 1e-3
"""The part by which a frequency is from both that it is blended of."""

EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)

HEAD_NORMED = ("Q_normed", "K_normed")
NORMED = (
    "X",
    *HEAD_NORMED,
    "V_normed",
    "concat_normed",
    "output_normed",
    "latent_Q_normed",
    "latent_KV_normed",
)


def heads_or_once(*names: str) -> list[tuple[str, ...]]:
    """Norms that may be wrong together: those of Q and K, and each alone."""
    alone: list[tuple[str, ...]] = [(name,) for name in names]
    both = tuple(name for name in HEAD_NORMED if name in names)
    return [both, *alone] if len(both) > 1 else alone


def unnormed(names: Sequence[str]) -> str:
    """Q is; Q and K are."""
    return list_names(name.removesuffix("_normed") for name in names)


NORMS = at(*NORMED, RMSNorm, LayerNorm).together(heads_or_once)
HEAD_NORMS = at(*HEAD_NORMED, RMSNorm, LayerNorm).together(heads_or_once)


def not_stretched(op: Rotate) -> dict[str, Op]:
    if not op.frequencies:
        return {}

    ways: dict[str, Op] = {}
    ways["the frequencies are not stretched"] = replace(op, frequencies=(), factor=1.0)
    if op.factor != 1:
        twice = op.factor**2
        ways[f"the factor {op.factor:g} is left out"] = replace(op, factor=1.0)
        ways[f"the factor {op.factor:g} is applied twice ({twice:g})"] = replace(op, factor=twice)
    if op.other:
        ways[said_of_other(op)] = replace(op, frequencies=op.other, other=())

    blended = blend_reversed(op)
    if blended is not None:
        ways["the blend of long and short waves is the wrong way round: 1 − s for s"] = blended
    return ways


def said_of_other(op: Rotate) -> str:
    """Which list of factors is taken: the longer texts have the lower frequencies."""
    is_longer = np.log(op.other).sum() < np.log(op.frequencies).sum()
    taken, meant = ("long", "short") if is_longer else ("short", "long")
    return f"the frequencies are those of {taken}_factor, where {meant}_factor is meant"


def blend_reversed(op: Rotate) -> Rotate | None:
    """Llama 3's frequencies with s and 1 − s exchanged, where they are blended; None where none are."""
    found = np.array(op.frequencies)
    pairs = len(found)
    plain = op.theta ** (-np.arange(pairs) / pairs)

    # The longest wave is stretched in full.
    factor = plain[-1] / found[-1]
    stretched = plain / factor
    low = np.minimum(plain, stretched)
    high = np.maximum(plain, stretched)
    is_blended = (found > low * (1 + OF_BLEND)) & (found < high * (1 - OF_BLEND))
    if factor <= 1 + OF_BLEND or not is_blended.any():
        return None

    # s · plain + (1 − s) · stretched, and the two exchanged, add up to plain + stretched.
    other = np.where(is_blended, plain + stretched - found, found)
    return replace(op, frequencies=tuple(map(float, other)))


def plant_on_values(case: WrongStep) -> Iterator[Plant]:
    """V normed as K is, without a weight or with that of K."""
    if HEAD_OUTPUTS not in case.derivation:
        return
    values = case.derivation[HEAD_OUTPUTS].inputs[1]
    if values not in case.derivation:
        return

    for op in at("K_normed", RMSNorm, LayerNorm).right(case).values():
        yield Plant(case.reading(HEAD_OUTPUTS, values, op))

        weights = case.derivation["K_normed"].inputs[1:]
        if weights:
            normed = case.bare(f"{values} normed", op, (values, *weights), values)
            yield Plant(case.through(HEAD_OUTPUTS, values, normed))


def said_epsilon(eps: float) -> str:
    return f"{abs(eps):.3g}"


def with_epsilon(op: RMSNorm | LayerNorm, eps: float) -> Op:
    return replace(op, eps=abs(eps))


def other_epsilon(*names: str) -> Plants:
    return at(*names, RMSNorm, LayerNorm).fitted(with_epsilon, EPSILONS, said_epsilon)


NORMED_AND_ROTATED = {"Q": ("Q_normed", "Q_rotated"), "K": ("K_normed", "K_rotated")}


def plant_other_order(case: WrongStep) -> Iterator[Plant]:
    """Q, K or both rotated before they are normed, where the norm is meant to be first; or the reverse."""
    have_both: list[str] = []
    for symbol, names in NORMED_AND_ROTATED.items():
        if all(name in case.derivation for name in names):
            have_both.append(symbol)

    for symbols in all_or_one(*have_both):
        ops: dict[str, Op] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        for symbol in symbols:
            normed, rotated = (case.derivation[name] for name in NORMED_AND_ROTATED[symbol])
            norm_is_last = rotated.name in normed.inputs
            last, other = (normed, rotated) if norm_is_last else (rotated, normed)
            ops[last.name] = By(turned(last.op, other.op, norm_first=norm_is_last))
            inputs[last.name] = (other.inputs[0], *normed.inputs[1:])

        # A model has one order for both.
        yield Plant(case.put_all(ops, inputs), "before" if norm_is_last else "after")


def turned(first: Op, then: Op, *, norm_first: bool) -> Callable[..., Array]:
    """A norm, with its factors, of what is rotated, or a rotation of what is normed: the other order."""
    if norm_first:
        return lambda x, *factors: then.apply(first.apply(x, *factors))
    return lambda x, *factors: then.apply(first.apply(x), *factors)


def plant_norms_without_weights(case: WrongStep) -> Iterator[Plant]:
    inputs = {name: case.derivation[name].inputs for name in NORMS.right(case)}
    for group in heads_or_once(*inputs):
        fewest = min(len(inputs[name]) for name in group)
        for count in range(1, fewest):
            kept = {name: inputs[name][:count] for name in group}
            lost = "bias" if count == 2 else "weight"
            yield Plant(case.rewired(kept), f"the {lost} of {' and '.join(group)}")


def of_other_kind(op: RMSNorm | LayerNorm, eps: float) -> Op:
    kind = LayerNorm if isinstance(op, RMSNorm) else RMSNorm
    return kind(eps, op.heads, op.plus_one)


def of_other_kind_alike(op: RMSNorm | LayerNorm) -> Op:
    return of_other_kind(op, op.eps)


def of_other_kind_as_usual(op: RMSNorm | LayerNorm) -> Op:
    """With the epsilon that libraries have for the other kind."""
    eps = 1e-5 if isinstance(op, RMSNorm) else 1e-6
    return of_other_kind(op, eps)


def with_other_weight(op: RMSNorm | LayerNorm) -> Op:
    """1 + weight for the weight, or the other way round."""
    return replace(op, plus_one=not op.plus_one)


def over_other_rows(op: RMSNorm | LayerNorm) -> Op:
    """Each head a row for all heads, or the other way round."""
    return replace(op, heads=not op.heads)


def plant_split_flat(case: WrongStep) -> Iterator[Plant]:
    """One matrix has the columns of Q and of the gate of each head in turn, and is split in halves."""
    if "Q" not in case.derivation or GATE not in case.derivation:
        return
    of_q = case.derivation["Q"].inputs
    of_gate = case.derivation[GATE].inputs
    if len(of_q) != 2 or len(of_gate) != 2:  # one of them has a bias
        return

    def first_half(x: Array, w_q: Array, w_gate: Array) -> Array:
        columns, _ = halves(w_q, w_gate)
        return side_into_heads(x @ columns, len(w_q))

    def second_half(x: Array, w_q: Array, w_gate: Array) -> Array:
        _, columns = halves(w_q, w_gate)
        return np.asarray(x @ columns)

    x, w_q = of_q
    _, w_gate = of_gate
    ops: dict[str, Op] = {"Q": By(first_half), GATE: By(second_half)}
    yield Plant(case.put_all(ops, dict.fromkeys(ops, (x, w_q, w_gate))))


def halves(w_q: Array, w_gate: Array) -> list[Array]:
    """(head, d_model, d), (d_model, head·d) -> the two halves of one matrix that has both, by head."""
    gate_of_heads = side_into_heads(w_gate, len(w_q))
    both = np.concatenate([w_q, gate_of_heads], axis=-1)
    return np.split(side_by_side(both), 2, axis=-1)


def plant_late_gate(case: WrongStep) -> Iterator[Plant]:
    if isinstance(case.op(GATED), Gate) and "output" in case.derivation:
        concat, gate = case.derivation[GATED].inputs
        ungated = case.put(GATED, Copy(), (concat,))
        yield Plant(ungated.then("output", Gate(), gate))


def times_gate(z: Array, gate: Array) -> Array:
    return z * gate


def times_silu(z: Array, gate: Array) -> Array:
    """silu(g) is g · σ(g)."""
    return z * gate / (1 + np.exp(-gate))


def counted_otherwise(op: Temper) -> dict[str, Op]:
    """Positions from 1 where they are counted from 0, or the other way round."""
    first = 1 - op.first
    return {str(first): replace(op, first=first)}


TEMPERED = at("Q_tempered", Temper)
of_temperature = about("Q_tempered", meant="tempered", subject="temperature")
of_gate = about(GATED, meant="gated")
of_norms = about(*NORMED, meant="normed")

MODELS = (
    about(*ROTATED, "K_rope_rotated", meant="stretched")(
        "rotary-scaling-missing",
        "{}",
        "rope_parameters (rope_scaling in older files) of config.json say how frequencies are stretched",
        at(*ROTATED, "K_rope_rotated", Rotate).instead(not_stretched),
        why="rope_scaling is one of the many keys of config.json, and short texts hardly show it.",
        example="Q_rotated, K_rotated = rotate(Q), rotate(K)",
    ),
    about(*ROTATED, *HEAD_NORMED, meant="normed")(
        "norm-order-wrong",
        "Q and K are normed {} the rotation",
        "norm and rotate in the order that the model has",
        plant_other_order,
        why="Hunyuan norms Q and K after the rotation, Qwen3 before.",
        example="Q_rotated, K_rotated = rms(rotate(Q)) * Q_norm_weight, rms(rotate(K)) * K_norm_weight",
    ),
    of_norms(
        "norm-plus-one-wrong",
        "{}: the norm's weight is taken as it is where the model has 1 + weight, or the other way round",
        "{weight}",
        NORMS.instead(with_other_weight, say=" and ".join),
        why="Gemma keeps weight − 1 in its files; Llama the weight.",
        example="Q_normed = rms(Q) * (1 + Q_norm_weight)",
    ),
    of_norms(
        "norm-factor-missing",
        "{} is left out",
        "multiply what is normed by its weight, and add its bias where there is one",
        plant_norms_without_weights,
        why="The norm is written without its weight, which is 1 before training.",
        example="Q_normed = rms(Q)",
    ),
    of_norms(
        "norm-missing",
        "{} not normed",
        "use {norm}",
        NORMS.instead(Copy(), reads=1, say=unnormed),
        why="The model before this one had no norm of Q and K.",
        example="K_normed = K",
    ),
    of_norms(
        "norm-kind-wrong",
        "{}: LayerNorm for RMSNorm, or RMSNorm for LayerNorm",
        "use {norm}: LayerNorm takes off the mean first, RMSNorm does not",
        NORMS.instead(of_other_kind_alike, of_other_kind_as_usual, say=" and ".join),
        why="LayerNorm and RMSNorm stand beside each other, and differ by the mean alone.",
        example="Q_normed = rms(Q - Q.mean(axis=-1, keepdims=True)) * Q_norm_weight",
    ),
    about(HEAD_OUTPUTS, meant="normed")(
        "norm-on-values",
        "V is normed, too, as K is",
        "norm Q and K only",
        plant_on_values,
        seen="kyegomez/MegaVIT#17",
        why="One line norms what the projection of K and V gives, before the two are taken apart.",
        example="head_outputs = attention_weights @ (rms(V) * K_norm_weight)",
    ),
    about(*HEAD_NORMED, meant="normed rows")(
        "norm-over-wrong",
        "{}: each head is normed for itself where all are one row, or the other way round",
        "use {norm}; Qwen3 and Gemma 3 norm each head, OLMo2 all heads as one row",
        HEAD_NORMS.instead(over_other_rows, say=" and ".join),
        why="OLMo2 norms all heads as one row, Qwen3 each head for itself.",
        example="Q_normed = rms(Q) * Q_norm_weight.reshape(heads, 1, d_k)",
    ),
    about(WEIGHTS, meant="sink")(
        "sink-missing",
        "the sink takes no share, so that the keys' weights sum to 1",
        "softmax over the keys and the head's sink, then drop the sink's column",
        at(WEIGHTS, SinkSoftmax).instead(Softmax(), reads=1),
        why="gpt-oss has a learnt logit a head that takes weight from all keys; other models have none.",
        example="attention_weights = softmax(scaled_scores)",
    ),
    of_gate(
        "gate-missing",
        "the heads' outputs are not gated",
        "multiply them by σ(X W_gate) before W_O",
        at(GATED, Gate).without(),
        why="Qwen3-Next and Qwen3.5 gate what the heads give; the models before them do not.",
        example="gated = concat",
    ),
    of_gate(
        "gate-bare",
        "the heads' outputs are multiplied by {}",
        "take the sigmoid of the gate",
        at(GATED, Gate).by({"the gate itself": times_gate, "silu of the gate": times_silu}),
        why="The gate of a network is silu(x), that of attention σ(x).",
        example="gated = concat * gate",
    ),
    about(GATED, "output", meant="gated")(
        "gate-late",
        "the gate is applied after W_O",
        "multiply the heads' outputs by the gate, then by W_O",
        plant_late_gate,
        why="Where d_v · heads = d_model the shapes fit there, too.",
        example="gated = concat\noutput = (concat @ W_O) / (1 + np.exp(-gate))",
    ),
    about("Q", GATE, meant="gated")(
        "gate-split-wrong",
        "the matrix of Q and the gate is split in halves",
        "Qwen3-Next has the columns of Q, then those of the gate, head by head: split each head",
        plant_split_flat,
        why="One matrix makes both, and torch.chunk before the heads are split gives right shapes.",
        example="both = X @ merge(np.concatenate([W_Q, split(W_gate)], axis=-1))\n"
        "Q, gate = split(both[:, :d_model]), both[:, d_model:]",
    ),
    of_temperature(
        "temperature-missing",
        "Q has no temperature",
        "{temperature}",
        TEMPERED.without(),
        why="It is 1 up to L positions, so that short texts show nothing.",
        example="Q_tempered = Q",
    ),
    of_temperature(
        "temperature-wrong",
        "the positions of the temperature are counted from {}",
        "{temperature}; Mistral's models count positions from 0, Llama 4 from 1",
        TEMPERED.instead(counted_otherwise),
        why="Two families that say the same count positions from 0 and from 1.",
        example="Q_tempered = Q * (1 + 0.5 * np.log(1 + (np.arange(n) + 1) // 2))[:, None]",
    ),
)

OF_SINK = at(WEIGHTS, SinkSoftmax)


def by_sink(op: SinkSoftmax, change: Callable[[Array], Array]) -> By:
    return By(lambda s, sink: op.apply(s, change(sink)))


def sink_times(op: SinkSoftmax, factor: float) -> By:
    return by_sink(op, lambda sink: factor * sink)


def sink_twice(op: SinkSoftmax) -> By:
    """exp(sink + ln 2) is 2 exp(sink)."""
    return by_sink(op, lambda sink: sink + np.log(2))


EPSILON = (
    about(WEIGHTS, fitted=True, subject="sink", meant="sink")(
        "sink-factor",
        "the logit of the sink is multiplied by {}",
        "take the sink's logit as it is, beside scores that are scaled already",
        OF_SINK.fitted(sink_times, (0.3, 0.7, 1.44, 3.0, -1.0), spoken),
        seen="ROCm/rocm-libraries#12229",
        why="It is put beside scores before these are scaled, or where they are in base 2.",
        example="e = np.exp(scaled_scores)\n"
        "others = np.exp(sink * np.sqrt(d_k))[:, None, None]\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + others)",
    ),
    about(WEIGHTS, subject="sink", meant="sink")(
        "sink-twice",
        "the sink is counted twice",
        "add exp(sink − max) to the sum of a row once",
        OF_SINK.instead(sink_twice),
        seen="ROCm/rocm-libraries#12229",
        why="Two parts of the keys begin with it, and both sums are added.",
        example="e = np.exp(scaled_scores)\n"
        "attention_weights = e / (e.sum(axis=-1, keepdims=True) + 2 * np.exp(sink)[:, None, None])",
    ),
    about(*NORMED, fitted=True, meant="normed")(
        "norm-epsilon",
        "the epsilon of the norm is {}",
        "{epsilon}",
        other_epsilon(*HEAD_NORMED),
        *(other_epsilon(name) for name in NORMED),
        seen="MinivLLM/MinivLLM#82; PaddlePaddle/FastDeploy#2790",
        why="Each library has a default of its own, and only rows of small numbers show it.",
        example="Q_normed, K_normed = (x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 0.1) * w "
        "for x, w in ((Q, Q_norm_weight), (K, K_norm_weight)))",
    ),
)

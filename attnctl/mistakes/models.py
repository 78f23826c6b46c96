"""Mistakes in porting a trained model: rotary frequencies, norms, sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.ops import Copy, LayerNorm, Op, RMSNorm, Rotate, SinkSoftmax, Softmax
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, everywhere_or_once

ROTATED = ("Q_rotated", "K_rotated")
HEAD_NORMED = ("Q_normed", "K_normed")
NORMED = ("X", *HEAD_NORMED, "output_normed", "latent_Q_normed", "latent_KV_normed")


def find_rotations(case: WrongStep) -> dict[str, Rotate]:
    found = {name: case.op(name) for name in (*ROTATED, "K_rope_rotated")}
    return {name: op for name, op in found.items() if isinstance(op, Rotate)}


def plant_plain_frequencies(case: WrongStep) -> Iterator[Plant]:
    """The model's own base without what stretches its frequencies; or without the factor alone."""
    right = {name: op for name, op in find_rotations(case).items() if op.frequencies}
    for names in everywhere_or_once(*right):
        plain = {name: replace(right[name], frequencies=(), factor=1.0) for name in names}
        yield Plant(case.put_all(plain), "the frequencies are not stretched")
        if any(right[name].factor != 1 for name in names):
            ops = {name: replace(right[name], factor=1.0) for name in names}
            yield Plant(case.put_all(ops), f"the factor {right[names[0]].factor:g} is left out")


@dataclass(frozen=True)
class Turned(Op):
    """A norm of what is rotated, or a rotation of what is normed: the other order."""

    first: Op
    then: Op
    norm_first: bool

    def apply(self, *inputs: Array) -> Array:
        """(x, factors of the norm …)."""
        x, *factors = inputs
        if self.norm_first:
            return self.then.apply(self.first.apply(x, *factors))
        return self.then.apply(self.first.apply(x), *factors)


def plant_other_order(case: WrongStep) -> Iterator[Plant]:
    """The norm after the rotation for before it, or before for after."""
    pairs = {"Q": ("Q_normed", "Q_rotated"), "K": ("K_normed", "K_rotated")}
    able = [symbol for symbol, names in pairs.items() if all(name in case.derivation for name in names)]
    for symbols in everywhere_or_once(*able):
        ops: dict[str, Op] = {}
        inputs: dict[str, tuple[str, ...]] = {}
        for symbol in symbols:
            normed, rotated = (case.derivation[name] for name in pairs[symbol])
            norm_is_last = rotated.name in normed.inputs
            last, other = (normed, rotated) if norm_is_last else (rotated, normed)
            first, then = (normed.op, rotated.op) if norm_is_last else (rotated.op, normed.op)
            ops[last.name] = Turned(first, then, norm_is_last)
            inputs[last.name] = (other.inputs[0], *normed.inputs[1:])
        yield Plant(case.put_all(ops, inputs), "before" if norm_is_last else "after")


def norms(case: WrongStep, names: tuple[str, ...] = NORMED) -> dict[str, RMSNorm | LayerNorm]:
    found = {name: case.op(name) for name in names}
    return {name: op for name, op in found.items() if isinstance(op, (RMSNorm, LayerNorm))}


def other_norm(
    make: Callable[[RMSNorm | LayerNorm], Op], names: tuple[str, ...] = NORMED
) -> Callable[[WrongStep], Iterator[Plant]]:
    """Plants another op for the norms, each alone or Q and K together."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        right = norms(case, names)
        for group in groups(right):
            yield Plant(case.put_all({name: make(right[name]) for name in group}), " and ".join(group))

    return plants


def groups(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Norms that may be wrong together: those of Q and K, and each alone."""
    alone: list[tuple[str, ...]] = [(name,) for name in names]
    both = tuple(name for name in HEAD_NORMED if (name,) in alone)
    return [both, *alone] if len(both) > 1 else alone


def plant_without_factors(case: WrongStep) -> Iterator[Plant]:
    """A norm without its weight, or without its bias."""
    right = norms(case)
    inputs = {name: case.derivation[name].inputs for name in right}
    for group in groups(right):
        for count in range(1, min(len(inputs[name]) for name in group)):
            kept = {name: inputs[name][:count] for name in group}
            lost = "bias" if count == 2 else "weight"
            ops = {name: right[name] for name in group}
            yield Plant(case.put_all(ops, kept), f"the {lost} of {' and '.join(group)}")


def plant_norm_missing(case: WrongStep) -> Iterator[Plant]:
    """No norm at all."""
    for group in groups(norms(case)):
        inputs = {name: case.derivation[name].inputs[:1] for name in group}
        yield Plant(case.put_all(dict.fromkeys(group, Copy()), inputs), " and ".join(group))


def plant_other_kind(case: WrongStep) -> Iterator[Plant]:
    """LayerNorm for RMSNorm, and RMSNorm for LayerNorm, with the same ε and with the usual one."""
    yield from other_norm(lambda op: of_other_kind(op, op.eps))(case)
    yield from other_norm(lambda op: of_other_kind(op, 1e-5 if isinstance(op, RMSNorm) else 1e-6))(case)


def of_other_kind(op: RMSNorm | LayerNorm, eps: float) -> Op:
    kind = LayerNorm if isinstance(op, RMSNorm) else RMSNorm
    return kind(eps, op.heads, op.plus_one)


def plant_sink_missing(case: WrongStep) -> Iterator[Plant]:
    """Softmax over the keys alone."""
    step = case.derivation["attention_weights"]
    if isinstance(step.op, SinkSoftmax):
        yield Plant(case.put("attention_weights", Softmax(), step.inputs[:1]))


MODELS = (
    Mistake(
        "rotary-scaling-missing",
        (*ROTATED, "K_rope_rotated"),
        "{}",
        "rope_parameters (rope_scaling in older files) of config.json say how frequencies are stretched",
        plant_plain_frequencies,
        why="rope_scaling is one of the many keys of config.json, and short texts hardly show it.",
        meant="stretched",
        example="Q_rotated, K_rotated = rotate(Q), rotate(K)",
    ),
    Mistake(
        "norm-order-wrong",
        (*ROTATED, *HEAD_NORMED),
        "Q and K are normed {} the rotation",
        "norm and rotate in the order that the model has",
        plant_other_order,
        why="Hunyuan norms Q and K after the rotation, Qwen3 before.",
        meant="normed",
        example="Q_rotated, K_rotated = rms(rotate(Q)) * Q_norm_weight, rms(rotate(K)) * K_norm_weight",
    ),
    Mistake(
        "norm-plus-one-wrong",
        NORMED,
        "{}: the norm's weight is taken as it is where the model has 1 + weight, or the other way round",
        "Gemma's norms multiply by 1 + weight, others by the weight",
        other_norm(lambda op: replace(op, plus_one=not op.plus_one)),
        why="Gemma keeps weight − 1 in its files; Llama the weight.",
        meant="normed",
        example="Q_normed = rms(Q) * (1 + Q_norm_weight)",
    ),
    Mistake(
        "norm-factor-missing",
        NORMED,
        "{} is left out",
        "multiply what is normed by its weight, and add its bias where there is one",
        plant_without_factors,
        why="The norm is written without its weight, which is 1 before training.",
        meant="normed",
        example="Q_normed = rms(Q)",
    ),
    Mistake(
        "norm-missing",
        NORMED,
        "{} is not normed",
        "norm it as config.json and the layer's weights say",
        plant_norm_missing,
        why="The model before this one had no norm of Q and K.",
        meant="normed",
        example="K_normed = K",
    ),
    Mistake(
        "norm-kind-wrong",
        NORMED,
        "{}: LayerNorm for RMSNorm, or RMSNorm for LayerNorm",
        "LayerNorm takes off the mean first, RMSNorm does not",
        plant_other_kind,
        why="LayerNorm and RMSNorm stand beside each other, and differ by the mean alone.",
        meant="normed",
        example="Q_normed = rms(Q - Q.mean(axis=-1, keepdims=True)) * Q_norm_weight",
    ),
    Mistake(
        "norm-over-wrong",
        HEAD_NORMED,
        "{}: each head is normed for itself where all are one row, or the other way round",
        "Qwen3 and Gemma 3 norm each head, OLMo2 norms all heads as one row",
        other_norm(lambda op: replace(op, heads=not op.heads), HEAD_NORMED),
        why="OLMo2 norms all heads as one row, Qwen3 each head for itself.",
        meant="normed rows",
        example="Q_normed = rms(Q) * Q_norm_weight.reshape(heads, 1, d_k)",
    ),
    Mistake(
        "sink-missing",
        ("attention_weights",),
        "the sink takes no share, so that the keys' weights sum to 1",
        "softmax over the keys and the head's sink, then drop the sink's column",
        plant_sink_missing,
        why="gpt-oss has a learnt logit a head that takes weight from all keys; other models have none.",
        meant="sink",
        example="attention_weights = softmax(scaled_scores)",
    ),
)

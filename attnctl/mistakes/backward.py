"""Mistakes in the backward pass: delta, weights made again, sums, transposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attnctl.evidence.precision import BFLOAT16, FLOAT16, round_to
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.names import BIAS, DELTA, HEAD_OUTPUTS, WEIGHTS, WEIGHTS_AGAIN, gradient_of, where
from attnctl.math.ops import Copy, Hide, LogSumExp, MatMul, Op, Rotate, Scale, Softmax
from attnctl.math.ops.base import SumLike
from attnctl.math.ops.products import TMatMul
from attnctl.math.ops.scores import SoftmaxBack, SqueezeBack
from attnctl.math.ops.vectors import SumGroups
from attnctl.mistakes import wrong
from attnctl.mistakes.chunks import LN2
from attnctl.mistakes.masks import other_corners
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import at, find_mask, planted_fit, spoken
from attnctl.mistakes.scores import factor_of

SCORES = "d_scores"
OF_SCORES = tuple(where(lambda row: bool(row.gradient) and row.of_scores))
OF_QUERIES = tuple(where(lambda row: row.symbol == "dQ"))
OF_KEYS = tuple(where(lambda row: row.symbol == "dK"))
OF_VALUES = tuple(where(lambda row: row.symbol == "dV"))

SOFTMAX_BACK = at(*OF_SCORES, SoftmaxBack)
OWN_DELTA = SOFTMAX_BACK.by(lambda a, d, _: a * (d - (a * d).sum(axis=-1, keepdims=True)))
"""Plants a delta of the weights that were made again, not of the output."""

PARTS = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)
"""Parts of the right scale from which another one is sought."""

SQUEEZE_BACK = at(*OF_SCORES, SqueezeBack)


def backward_lines(case: WrongStep, kind: type[Op], *read: str) -> list[Step]:
    """The lines of the backward pass with such an op that read these."""
    back = (step for step in case.derivation if step.name.startswith("d_") and isinstance(step.op, kind))
    return [step for step in back if set(read) <= set(step.inputs)]


def rounded_output(case: WrongStep) -> Iterator[Plant]:
    if DELTA in case.derivation and HEAD_OUTPUTS in case.derivation[DELTA].inputs:
        for precision in (FLOAT16, BFLOAT16):
            rounded = wrong.By(partial(round_to, precision=precision))
            yield Plant(case.reading(DELTA, HEAD_OUTPUTS, rounded), precision.name)


def weights_again(make: Callable[[Array, Array], Array], detail: str = "") -> Plants:
    """Plants weights that the backward pass makes again of scores and the logarithm of their sums."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        if isinstance(case.op(WEIGHTS), Softmax) and SOFTMAX_BACK.right(case):
            read = case.derivation[WEIGHTS].inputs[0]
            yield Plant(made_again(case, make, read, read), detail)

    return plants


def made_again(case: WrongStep, make: Callable[..., Array], *read: str) -> WrongStep:
    """The program whose backward pass reads other weights, made of these steps."""
    again = case.bare(WEIGHTS_AGAIN, wrong.By(make), read, WEIGHTS)
    steps: list[Step] = []
    for step in case.derivation:
        back = step.name.startswith("d_")
        if back and again not in steps:
            steps.append(again)
        inputs = tuple(again.name if back and name == WEIGHTS else name for name in step.inputs)
        steps.append(step if inputs == step.inputs else replace(step, inputs=inputs))
    return replace(case, derivation=Derivation(tuple(steps)))


Weights = Callable[[Array, Array], Array]
"""Weights made again, of the scores before the mask and after it."""


def masked_otherwise(case: WrongStep, make: Weights) -> Iterator[WrongStep]:
    """Weights made again under another mask, delta of the output or of the same weights."""
    masked = case.derivation[WEIGHTS].inputs[0] if isinstance(case.op(WEIGHTS), Softmax) else ""
    if not isinstance(case.op(masked), Hide) or not SOFTMAX_BACK.right(case):
        return
    bare = case.derivation[masked].inputs[0]
    of_output = made_again(case, make, bare, masked)
    yield from (of_output, next(iter(OWN_DELTA(of_output))).case)


def plant_other_corner(case: WrongStep) -> Iterator[Plant]:
    for corner, hide in other_corners(case):

        def make(s: Array, m: Array, hide: Hide = hide) -> Array:
            return np.where(hide.allowed(s.shape), np.exp(s - sums(m)), 0.0)

        yield from (Plant(program, corner) for program in masked_otherwise(case, make))


def plant_unasked_mask(case: WrongStep) -> Iterator[Plant]:
    """Weights made again up to the diagonal alone, where no rule goes by it."""
    hide = find_mask(case)
    if not any(rule.relative for rule in (hide.rules if hide else ())):
        yield from weights_again(lambda s, _: np.tril(np.exp(s - sums(s))))(case)


def sums(s: Array) -> Array:
    """ln Σ exp(s) of each row, 0 of one that sees nothing."""
    total = LogSumExp().apply(s)[..., None]
    return np.where(np.isneginf(total), 0.0, total)


def other_scale(make: Callable[[Op], Op]) -> Plants:
    """Plants another op for the scale, on the gradient of scores, or on what is made of it alone."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        right = case.op(SCORES)
        if isinstance(right, Scale):
            yield Plant(case.put(SCORES, make(right)))
            for reader in [step for step in case.derivation if SCORES in step.inputs]:
                read = case.derivation[SCORES].inputs
                bare = case.bare("scaled otherwise", make(right), read, SCORES)
                yield Plant(case.through(reader.name, SCORES, bare))

    return plants


def plant_other_scale(case: WrongStep) -> Iterator[Plant]:
    """Weights made again, and d_scores, with another scale than the forward pass has."""
    scale = case.op(SCORES)
    softmax = case.op(WEIGHTS)
    if not isinstance(scale, Scale) or not isinstance(softmax, Softmax):
        return
    if not SOFTMAX_BACK.right(case):
        return

    right = factor_of(scale)
    read = case.derivation[WEIGHTS].inputs[0]
    forms: tuple[Callable[[Array, float], Array], ...] = (
        lambda s, ratio: softmax.apply(ratio * s),
        lambda s, ratio: np.exp(ratio * s - sums(s)),
    )
    for form in forms:

        def make(factor: float, form: Callable[..., Array] = form) -> WrongStep:
            again = made_again(case, lambda s: form(s, factor / right), read)
            return again.put(SCORES, Scale(factor=factor))

        factors = [right * part for part in PARTS]
        for plant in planted_fit(case, make, factors, spoken):
            yield plant
            for own in OWN_DELTA(plant.case):
                yield replace(plant, case=own.case)


def not_summed(op: SumGroups) -> dict[str, Op]:
    """Heads of a group that are not added up, or those of another group."""
    times = op.times

    def summed_over_groups(x: Array) -> Array:
        *lead, heads, keys, columns = x.shape
        groups = x.reshape(*lead, times, heads // times, keys, columns)
        return np.asarray(groups.sum(axis=-4))

    return {
        "the first head of a group is taken": wrong.By(lambda x: x[..., ::times, :, :]),
        "the last head of a group is taken": wrong.By(lambda x: x[..., times - 1 :: times, :, :]),
        "their mean is taken": wrong.By(lambda x: op.apply(x) / times),
        "those of head h, h + kv_heads, … are added up": wrong.By(summed_over_groups),
    }


def slope_before_cap(case: WrongStep) -> Iterator[Plant]:
    for name, op in SQUEEZE_BACK.right(case).items():
        d, capped = case.derivation[name].inputs
        if capped in case.derivation:
            before = case.derivation[capped].inputs[0]
            yield Plant(case.put(name, op, (d, before)), "taken of the score before the cap")


BLOCKS = (256, 128, 64, 32, 16, 8, 4)
"""Sizes of blocks that kernels have."""


def last_block(case: WrongStep) -> Iterator[Plant]:
    of_keys = backward_lines(case, MatMul, SCORES)
    of_queries = backward_lines(case, TMatMul)
    for steps, axis in ((of_queries, "query"), (of_keys, "key")):
        if not steps:
            continue

        size = case.size(axis) or 0
        blocks = [block for block in BLOCKS if block < size or case.like]
        ends = {f"{block}, where it is not whole,": size // block * block for block in blocks}
        ends |= {str(block): (size - 1) // block * block for block in blocks}

        every = tuple(steps)
        one_each = [(step,) for step in steps]
        for several in dict.fromkeys([every, *one_each]):
            for block, stop in ends.items():
                ops = {step.name: wrong.By(up_to(step.op, stop)) for step in several}
                yield Plant(case.put_all(ops), block)


def up_to(op: Op, stop: int) -> Callable[[Array, Array], Array]:
    if isinstance(op, MatMul):
        return lambda a, b: a[..., :stop] @ b[..., :stop, :]
    return lambda a, b: op.apply(a[..., :stop, :], b[..., :stop, :])


ONE_MEMBER: dict[str, Callable[[Array, Array], Array]] = {
    "only its first member's is kept": lambda d, b: SumLike().apply(d[0], b),
    "only its last member's is kept": lambda d, b: SumLike().apply(d[-1], b),
    "their mean is taken": lambda d, b: SumLike().apply(d, b) / len(d),
}
"""What may become of the gradient by a bias that a batch shares."""

OF_AGAIN = """d_V = np.swapaxes(again, -1, -2) @ d_head_outputs
d_scaled_scores = again * (d_attention_weights - delta[..., None])"""
"""Lines that go on from weights that were made again."""

of_delta = about(*OF_SCORES, subject="delta", meant="backward")
of_made_again = about(*OF_SCORES, *OF_VALUES, meant="backward")
of_factor = about(SCORES, *OF_QUERIES, *OF_KEYS, subject="backward scale", meant="backward")

BACKWARD = (
    of_delta(
        "backward-no-delta",
        "delta is left out of the gradient of softmax: A ∘ d_A, not A ∘ (d_A − delta)",
        "take delta, Σ d_head_outputs ∘ head_outputs of the row, off d_attention_weights first",
        SOFTMAX_BACK.by(lambda a, d, _: a * d),
        why="The derivative of exp is exp, and that the sum below it moves as well is forgotten.",
        example="d_scaled_scores = attention_weights * d_attention_weights",
    ),
    of_delta(
        "backward-delta-over-keys",
        "delta is one number for each key, summed down the columns, not one for each query",
        "sum over the last axis: (A * d_A).sum(axis=-1, keepdims=True)",
        SOFTMAX_BACK.by(lambda a, d, _: a * (d - (a * d).sum(axis=-2, keepdims=True))),
        why="Both axes of the scores are tokens, so that nothing complains of the wrong one.",
        example="each_key = (attention_weights * d_attention_weights).sum(axis=-2, keepdims=True)\n"
        "d_scaled_scores = attention_weights * (d_attention_weights - each_key)",
    ),
    about(DELTA, subject="delta", meant="backward")(
        "backward-delta-of-rounded-output",
        "delta is made of head_outputs rounded to {}, which A and V do not give",
        "make delta of the output before it is stored in {}, or keep it from the forward pass",
        rounded_output,
        why="A kernel reads the output back that the forward pass stored in fewer digits.",
        example="delta = (d_head_outputs * head_outputs.astype(np.float16)).sum(axis=-1)",
    ),
    of_made_again(
        "backward-not-masked",
        "weights are made again without the mask in the backward pass",
        "hide the same scores again before exp, forward and backward",
        lambda case: map(Plant, masked_otherwise(case, lambda s, m: np.exp(s - sums(m)))),
        lambda case: map(Plant, masked_otherwise(case, lambda s, _: np.exp(s - sums(s)))),
        why="The backward kernel makes the scores again, and its mask is a branch of its own.",
        example="again = softmax(scaled_scores)\n" + OF_AGAIN.replace("scaled", "masked"),
        meant="backward causal",
    ),
    of_made_again(
        "backward-mask-unasked",
        "the backward pass hides the future, and the forward pass does not",
        "pass causal on to the backward pass, too",
        plant_unasked_mask,
        why="The backward kernel was written for causal attention, and its flag is not read.",
        seen="triton-lang/triton#4541, #5660",
        example="again = np.tril(attention_weights)\n" + OF_AGAIN,
    ),
    of_made_again(
        "backward-aligned-wrong",
        "the mask of the backward pass is aligned {}, that of the forward pass is not",
        "use one offset in both passes: {offset}",
        plant_other_corner,
        why="With as many queries as keys both corners are the same, and no test has others.",
        seen="xlite-dev/ffpa-attn#300",
        example="again = np.tril(attention_weights)\n" + OF_AGAIN.replace("scaled", "masked"),
        meant="backward cached",
    ),
    of_made_again(
        "backward-no-logsumexp",
        "weights are made again as exp(scores), without the log-sum-exp that divides them",
        "take exp(scores − logsumexp)",
        weights_again(lambda s, _: np.exp(s)),
        why="The forward pass kept the log-sum-exp, and the backward one does not read it.",
        example="again = np.exp(scaled_scores)\n" + OF_AGAIN,
        subject="logsumexp",
    ),
    of_made_again(
        "backward-logsumexp-base-2",
        "weights are made again with a log-sum-exp in the other base, {}",
        "use one base in both passes: log₂ L = L / ln 2",
        weights_again(lambda s, m: np.exp(s - sums(m) / LN2), "base 2 read as e"),
        weights_again(lambda s, m: np.exp(s - sums(m) * LN2), "base e read as 2"),
        why="Kernels count in base 2, where exp is quicker, and others read what they wrote as base e.",
        example="top = scaled_scores.max(axis=-1, keepdims=True)\n"
        "base_e = top + np.log(np.exp(scaled_scores - top).sum(axis=-1, keepdims=True))\n"
        "again = np.exp(scaled_scores - base_e / np.log(2))\n" + OF_AGAIN,
        subject="logsumexp",
    ),
    of_factor(
        "backward-not-scaled",
        "the scale is left out of the backward pass",
        "scale d_scores as the scores were scaled: {scale}",
        other_scale(lambda _: Copy()),
        why="The scale was folded into Q, or into exp, and on the way back nobody meets it.",
        example="d_scores = d_scaled_scores.copy()",
    ),
    of_factor(
        "backward-scaled-twice",
        "the scale is applied twice in the backward pass",
        "scale d_scores once",
        other_scale(lambda op: wrong.Then(op, op)),
        why="The scale is in the gradient of the scores, and again in Q that was scaled before.",
        example="d_scores = d_scaled_scores / d_k",
    ),
    of_made_again(
        "backward-scale-other",
        "the backward pass multiplies by {}, the forward pass by another scale",
        "use one scale in both passes: {scale}",
        plant_other_scale,
        fitted=True,
        seen="tile-ai/tilelang-ascend#1669",
        why="The head size is padded for the backward kernel, and its root is taken after that.",
        example="again = softmax(scaled_scores * np.sqrt(d_k) / 3)\n"
        + OF_AGAIN
        + "\nd_scores = d_scaled_scores / 3",
        subject="backward scale",
    ),
    about(*OF_KEYS, *OF_VALUES, meant="backward grouped")(
        "backward-groups-not-summed",
        "the gradients of the query heads that share a head of K or V are not added up: {}",
        "add them up: d.reshape(…, kv_heads, group, n, d).sum(axis=-3)",
        at(*OF_KEYS, *OF_VALUES, SumGroups).instead(not_summed),
        why="Each query head writes its own gradient, and the last one to write stays.",
        example="group = heads // len(K)\nd_K, d_V = d_K_shared[::group], d_V_shared[::group]",
    ),
    about(*OF_KEYS, meant="backward")(
        "backward-scores-not-transposed",
        "d_scores is not transposed for the gradient by K",
        "d_K = d_scoresᵀ Q",
        at(*OF_KEYS, TMatMul).instead(MatMul()),
        why="The gradients by Q and by K look alike, and of self-attention the scores are square.",
        example="d_K = d_scores @ Q",
    ),
    about(*OF_VALUES, meant="backward")(
        "backward-weights-not-transposed",
        "the weights are not transposed for the gradient by V",
        "d_V = Aᵀ d_head_outputs",
        at(*OF_VALUES, TMatMul).instead(MatMul()),
        why="The forward pass multiplies by A, and so does this line.",
        example="d_V = attention_weights @ d_head_outputs",
    ),
    about(*OF_QUERIES, *OF_KEYS, meant="backward rotary")(
        "backward-not-turned-back",
        "the gradients by rotated rows are not turned back by the same angle: they are {}",
        "turn them by minus the angle: cos as it is, sin with the other sign",
        at(*OF_QUERIES, *OF_KEYS, Rotate).instead(
            {"left as they are": Copy()}, lambda op: {"turned once more, forward": replace(op, back=False)}
        ),
        why="The rotation is its own file, and a kernel gives gradients by what it was handed.",
        example="d_Q, d_K = d_Q_rotated.copy(), d_K_rotated.copy()",
    ),
    about(*OF_SCORES, meant="backward capped")(
        "backward-softcap-slope",
        "the slope of the soft cap, 1 − (softcapped_scores / cap)², is {}",
        "multiply by {cap_slope}, of the score after the cap",
        SQUEEZE_BACK.without("left out"),
        slope_before_cap,
        why="The cap hardly bends small scores, and on those a test sees nothing.",
        example="d_scaled_scores = d_softcapped_scores.copy()",
    ),
    about(*OF_QUERIES, *OF_KEYS, *OF_VALUES, meant="backward long")(
        "backward-last-block-dropped",
        "the last block of {} is left out of the sum",
        "go over all blocks: (n + block − 1) // block of them",
        last_block,
        why="Where n is no multiple of the block n // block leaves out the rest.",
        example="last = (n - 1) // 8 * 8\nd_K = np.swapaxes(d_scores[:, :last], -1, -2) @ Q[:, :last]",
    ),
    about(gradient_of(BIAS), meant="backward bias")(
        "backward-bias-not-summed",
        "the gradient by a bias that the batch shares is not added up over it: {}",
        "sum over every axis along which the bias was broadcast",
        at(gradient_of(BIAS), SumLike).where(lambda case: (case.size("batch") or 1) > 1).by(ONE_MEMBER),
        why="Broadcasting goes by itself on the way forward; on the way back it is a sum.",
        example="d_bias = d_biased_scores[0].sum(axis=0)",
    ),
)

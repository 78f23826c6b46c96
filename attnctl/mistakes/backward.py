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


def delta_of_weights(a: Array, d: Array, _: Array) -> Array:
    """A ∘ (d_A − Σ A ∘ d_A), with no delta from elsewhere."""
    delta = (a * d).sum(axis=-1, keepdims=True)
    return a * (d - delta)


def without_delta(a: Array, d: Array, _: Array) -> Array:
    return a * d


def delta_over_keys(a: Array, d: Array, _: Array) -> Array:
    each_key = (a * d).sum(axis=-2, keepdims=True)
    return a * (d - each_key)


SOFTMAX_BACK = at(*OF_SCORES, SoftmaxBack)
OWN_DELTA = SOFTMAX_BACK.by(delta_of_weights)
"""Plants a delta of the weights that were made again, not of the output."""

PARTS = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)
"""Parts of the right scale from which another one is sought."""

SQUEEZE_BACK = at(*OF_SCORES, SqueezeBack)


def backward_lines(case: WrongStep, kind: type[Op], *read: str) -> list[Step]:
    """The lines of the backward pass with such an op that read these."""
    lines: list[Step] = []
    for step in case.derivation:
        is_backward = step.name.startswith("d_")
        if is_backward and isinstance(step.op, kind) and set(read) <= set(step.inputs):
            lines.append(step)
    return lines


def rounded_output(case: WrongStep) -> Iterator[Plant]:
    if DELTA not in case.derivation or HEAD_OUTPUTS not in case.derivation[DELTA].inputs:
        return
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
    has_begun = False
    for step in case.derivation:
        if not step.name.startswith("d_"):
            steps.append(step)
            continue

        # The weights are made again before the first line that goes back.
        if not has_begun:
            steps.append(again)
            has_begun = True
        inputs = tuple(again.name if name == WEIGHTS else name for name in step.inputs)
        steps.append(step if inputs == step.inputs else replace(step, inputs=inputs))
    return replace(case, derivation=Derivation(tuple(steps)))


Weights = Callable[[Array, Array], Array]
"""Weights made again, of the scores before the mask and after it."""


def masked_otherwise(case: WrongStep, make: Weights) -> Iterator[WrongStep]:
    """Weights made again under another mask, delta of the output or of the same weights."""
    if not isinstance(case.op(WEIGHTS), Softmax) or not SOFTMAX_BACK.right(case):
        return
    masked = case.derivation[WEIGHTS].inputs[0]
    if not isinstance(case.op(masked), Hide):
        return

    bare = case.derivation[masked].inputs[0]
    delta_of_output = made_again(case, make, bare, masked)
    yield delta_of_output
    for own in OWN_DELTA(delta_of_output):
        yield own.case


def plant_not_masked(case: WrongStep) -> Iterator[Plant]:
    """Weights of all scores, by the log-sum-exp of those that are seen, or of all."""

    def sums_of_seen(s: Array, masked: Array) -> Array:
        return np.exp(s - sums(masked))

    def sums_of_all(s: Array, _: Array) -> Array:
        return np.exp(s - sums(s))

    for make in (sums_of_seen, sums_of_all):
        for program in masked_otherwise(case, make):
            yield Plant(program)


def plant_other_corner(case: WrongStep) -> Iterator[Plant]:
    for corner, hide in other_corners(case):

        def make(s: Array, masked: Array, hide: Hide = hide) -> Array:
            return np.where(hide.allowed(s.shape), np.exp(s - sums(masked)), 0.0)

        for program in masked_otherwise(case, make):
            yield Plant(program, corner)


def plant_unasked_mask(case: WrongStep) -> Iterator[Plant]:
    """Weights made again up to the diagonal alone, where no rule goes by it."""
    hide = find_mask(case)
    rules = hide.rules if hide else ()
    if any(rule.relative for rule in rules):
        return

    def up_to_diagonal(s: Array, _: Array) -> Array:
        return np.tril(np.exp(s - sums(s)))

    yield from weights_again(up_to_diagonal)(case)


def sums(s: Array) -> Array:
    """ln Σ exp(s) of each row, 0 of one that sees nothing."""
    total = LogSumExp().apply(s)[..., None]
    return np.where(np.isneginf(total), 0.0, total)


def exp_of_scores(s: Array, _: Array) -> Array:
    return np.exp(s)


def base_2_as_e(s: Array, masked: Array) -> Array:
    return np.exp(s - sums(masked) / LN2)


def base_e_as_2(s: Array, masked: Array) -> Array:
    return np.exp(s - sums(masked) * LN2)


def other_scale(make: Callable[[Op], Op]) -> Plants:
    """Plants another op for the scale, on the gradient of scores, or on what is made of it alone."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        right = case.op(SCORES)
        if not isinstance(right, Scale):
            return
        yield Plant(case.put(SCORES, make(right)))

        read = case.derivation[SCORES].inputs
        readers = [step for step in case.derivation if SCORES in step.inputs]
        for reader in readers:
            otherwise = case.bare("scaled otherwise", make(right), read, SCORES)
            yield Plant(case.through(reader.name, SCORES, otherwise))

    return plants


def not_scaled(_: Op) -> Op:
    return Copy()


def scaled_twice(op: Op) -> Op:
    return wrong.Then(op, op)


def plant_other_scale(case: WrongStep) -> Iterator[Plant]:
    """Weights made again, and d_scores, with another scale than the forward pass has."""
    scale = case.op(SCORES)
    softmax = case.op(WEIGHTS)
    if not isinstance(scale, Scale) or not isinstance(softmax, Softmax):
        return
    if not SOFTMAX_BACK.right(case):
        return

    def all_again(s: Array, ratio: float) -> Array:
        return softmax.apply(ratio * s)

    def by_kept_sums(s: Array, ratio: float) -> Array:
        return np.exp(ratio * s - sums(s))

    right = factor_of(scale)
    read = case.derivation[WEIGHTS].inputs[0]
    factors = [right * part for part in PARTS]
    for form in (all_again, by_kept_sums):

        def make(factor: float, form: Callable[..., Array] = form) -> WrongStep:
            again = made_again(case, lambda s: form(s, factor / right), read)
            return again.put(SCORES, Scale(factor=factor))

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


def turned_forward(op: Rotate) -> dict[str, Op]:
    return {"turned once more, forward": replace(op, back=False)}


def last_block(case: WrongStep) -> Iterator[Plant]:
    """Sums over queries, and over keys, that end with the last whole block, or before the last one."""
    of_keys = backward_lines(case, MatMul, SCORES)
    of_queries = backward_lines(case, TMatMul)
    for steps, axis in ((of_queries, "query"), (of_keys, "key")):
        if not steps:
            continue

        every = tuple(steps)
        one_each = [(step,) for step in steps]
        for several in dict.fromkeys([every, *one_each]):
            for block, stop in ends_of_blocks(case, axis).items():
                ops = {step.name: wrong.By(up_to(step.op, stop)) for step in several}
                yield Plant(case.put_all(ops), block)


def ends_of_blocks(case: WrongStep, axis: str) -> dict[str, int]:
    """Where the sum ends without the last block, by what is said of that."""
    size = case.size(axis) or 0
    blocks = [block for block in BLOCKS if block < size or case.like]
    ends: dict[str, int] = {}
    for block in blocks:
        ends[f"{block}, where it is not whole,"] = size // block * block
    for block in blocks:
        ends[str(block)] = (size - 1) // block * block
    return ends


def up_to(op: Op, stop: int) -> Callable[[Array, Array], Array]:
    """The product of the first rows or columns alone, as many as these."""
    if isinstance(op, MatMul):
        return lambda a, b: a[..., :stop] @ b[..., :stop, :]
    return lambda a, b: op.apply(a[..., :stop, :], b[..., :stop, :])


def has_members(case: WrongStep) -> bool:
    return (case.size("batch") or 1) > 1


def of_first_member(d: Array, bias: Array) -> Array:
    return SumLike().apply(d[0], bias)


def of_last_member(d: Array, bias: Array) -> Array:
    return SumLike().apply(d[-1], bias)


def mean_of_members(d: Array, bias: Array) -> Array:
    return SumLike().apply(d, bias) / len(d)


ONE_MEMBER: dict[str, Callable[[Array, Array], Array]] = {
    "only its first member's is kept": of_first_member,
    "only its last member's is kept": of_last_member,
    "their mean is taken": mean_of_members,
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
        SOFTMAX_BACK.by(without_delta),
        why="The derivative of exp is exp, and that the sum below it moves as well is forgotten.",
        example="d_scaled_scores = attention_weights * d_attention_weights",
    ),
    of_delta(
        "backward-delta-over-keys",
        "delta is one number for each key, summed down the columns, not one for each query",
        "sum over the last axis: (A * d_A).sum(axis=-1, keepdims=True)",
        SOFTMAX_BACK.by(delta_over_keys),
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
        plant_not_masked,
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
        weights_again(exp_of_scores),
        why="The forward pass kept the log-sum-exp, and the backward one does not read it.",
        example="again = np.exp(scaled_scores)\n" + OF_AGAIN,
        subject="logsumexp",
    ),
    of_made_again(
        "backward-logsumexp-base-2",
        "weights are made again with a log-sum-exp in the other base, {}",
        "use one base in both passes: log₂ L = L / ln 2",
        weights_again(base_2_as_e, "base 2 read as e"),
        weights_again(base_e_as_2, "base e read as 2"),
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
        other_scale(not_scaled),
        why="The scale was folded into Q, or into exp, and on the way back nobody meets it.",
        example="d_scores = d_scaled_scores.copy()",
    ),
    of_factor(
        "backward-scaled-twice",
        "the scale is applied twice in the backward pass",
        "scale d_scores once",
        other_scale(scaled_twice),
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
        at(*OF_QUERIES, *OF_KEYS, Rotate).instead({"left as they are": Copy()}, turned_forward),
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
        at(gradient_of(BIAS), SumLike).where(has_members).by(ONE_MEMBER),
        why="Broadcasting goes by itself on the way forward; on the way back it is a sum.",
        example="d_bias = d_biased_scores[0].sum(axis=0)",
    ),
)

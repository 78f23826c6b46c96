"""Mistakes in splitting heads, sharing them and bringing them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, TABLE
from attnctl.math.ops import Given, MatMul, MatMulT, Merge, Op, Project, Repeat
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import at
from attnctl.mistakes.wrong import side_by_side, side_into_heads


def several(case: WrongStep) -> bool:
    return (case.size("head") or 1) > 1 or (case.size("kv_head") or 1) > 1


MADE = at("Q", "K", "V", Project).where(several)
GIVEN = at("Q", "K", "V", Given).where(several)
SHARED = at("K_shared", "V_shared", Repeat)
MERGED = at("concat", Merge).where(several)


def split_without_transpose(z: Array) -> Array:
    """reshape(heads, n, d) of what stands side by side."""
    return side_by_side(z).reshape(z.shape)


def split_in_turn(z: Array) -> Array:
    """Head h of column h, h + heads, …, where each should have a block of columns."""
    d = z.shape[-1]
    blocks = side_into_heads(side_by_side(z), d)
    return np.swapaxes(blocks, -3, -1)


def merge_in_turn(z: Array) -> Array:
    """h0 h1 h0 h1, where h0 h0 h1 h1 is meant."""
    return side_by_side(z.swapaxes(-3, -1))


def merge_without_transpose(z: Array) -> Array:
    return z.reshape(side_by_side(z).shape)


MIXES_TOKENS = "without a transpose, which mixes tokens"
SPLITS: dict[str, wrong.Move] = {
    f"heads are split by reshape(heads, n, d) {MIXES_TOKENS}": split_without_transpose,
    "heads take their columns in turn, not in blocks": split_in_turn,
}
MERGES: dict[str, wrong.Move] = {
    "the columns of the heads are interleaved": merge_in_turn,
    f"heads are merged by reshape(n, heads·d) {MIXES_TOKENS}": merge_without_transpose,
}


def split_wrong(op: Project) -> dict[str, Op]:
    return {said: wrong.Arranged(op, after=move) for said, move in SPLITS.items()}


def plant_split_late(case: WrongStep) -> Iterator[Plant]:
    """Given Q, K and V split into heads the wrong way, after they were written down."""
    given = GIVEN.right(case)
    if not given:
        return

    for detail, move in SPLITS.items():
        ops: dict[str, Op] = {}
        for step in case.derivation:
            if set(step.inputs) & set(given):
                before = tuple(move if name in given else wrong.keep_positions for name in step.inputs)
                ops[step.name] = wrong.Arranged(step.op, before)
        yield Plant(case.put_all(ops), detail)


MOST_SHIFTED = 16
"""How far off kv heads are tried to be read: farther is no slip."""


def tiled(op: Repeat) -> wrong.By:
    """h0 h1 h0 h1, where h0 h0 h1 h1 is meant."""
    return wrong.By(lambda x: np.concatenate([x] * op.times, axis=-3))


def plant_other_sharing(case: WrongStep) -> Iterator[Plant]:
    heads = case.size("head") or 1
    kv_heads = case.size("kv_head") or 1
    right = [head * kv_heads // heads for head in range(heads)]

    read: dict[str, list[int]] = {}
    for one in range(kv_heads):
        read[f"all query heads read kv head {one}"] = [one] * heads
    read["kv heads are read in reverse order"] = [kv_heads - 1 - head for head in right]
    for by in range(1, min(kv_heads, MOST_SHIFTED)):
        read[f"kv heads are read {by} off"] = [(head + by) % kv_heads for head in right]

    ways = {said: partial(np.take, indices=index, axis=-3) for said, index in read.items()}
    yield from SHARED.by(ways)(case)


def merged_after(move: wrong.Move) -> wrong.By:
    """Heads side by side after a move of them; one that it leaves stands in the place of all."""

    def merged(z: Array) -> Array:
        moved = np.broadcast_to(move(z), z.shape)
        return side_by_side(moved)

    return wrong.By(merged)


def merged_later(_: Merge, by: int) -> wrong.By:
    """Each head so many places behind its own."""
    return merged_after(lambda z: np.roll(z, by, axis=-3))


def merged_of_one(_: Merge, head: int) -> wrong.By:
    return merged_after(lambda z: z[..., head : head + 1, :, :])


def reverse_heads(z: Array) -> Array:
    return z[..., ::-1, :, :]


def mean_of_heads(z: Array) -> Array:
    return z.mean(axis=-3, keepdims=True)


def sum_of_heads(z: Array) -> Array:
    return z.sum(axis=-3, keepdims=True)


MOST_HEADS = 64
"""Heads that are tried in the place of others, at most."""


def up_to_heads(first: int) -> Callable[[WrongStep], range]:
    """From this number on, as many as there are heads."""

    def numbers(case: WrongStep) -> range:
        heads = case.size("head") or 1
        return range(first, min(heads, MOST_HEADS))

    return numbers


def plant_packing(case: WrongStep) -> Iterator[Plant]:
    """Columns by head (q k v, q k v) read as by letter (q q, k k, v v), or the other way about."""
    names = tuple(MADE.right(case))
    if len(names) < 3 or case.size("head") != case.size("kv_head"):
        return

    weights = tuple(case.derivation[name].inputs[1] for name in names)
    for by_letter in (True, False):
        program = case
        for place, name in enumerate(names):
            own = weights[place]
            op = wrong.By(partial(unpack, place, by_letter))
            unpacked = case.bare(f"{own} unpacked", op, weights, own)
            program = program.through(name, own, unpacked)
        yield Plant(program)


def unpack(place: int, by_letter: bool, *weights: Array) -> Array:
    """W_Q, W_K or W_V (0, 1, 2) of one packed matrix that is taken apart the wrong way."""
    packed = np.stack(weights)  # (letter, head, d_model, d)
    letters, heads, *rest = packed.shape
    if by_letter:  # packed by letter, read by head
        return packed.reshape(heads, letters, *rest)[:, place]
    return packed.swapaxes(0, 1).reshape(packed.shape)[place]


def plant_over_batch(case: WrongStep) -> Iterator[Plant]:
    projected: dict[str, Op] = {}
    for name in ("Q", "K", "V"):
        op = case.op(name)
        if op:
            projected[name] = op

    concat = case.op("concat")
    if not case.size("batch") or not concat:
        return
    if not all(isinstance(op, Project) for op in projected.values()):
        return

    exchanged = partial(np.swapaxes, axis1=0, axis2=1)
    ops: dict[str, Op] = {name: wrong.Arranged(op, (exchanged,)) for name, op in projected.items()}
    ops["concat"] = wrong.Arranged(concat, after=exchanged)
    yield Plant(case.put_all(ops))


def plant_over(others: tuple[str, ...], of_matrix: wrong.Move, of_row: wrong.Move) -> Plants:
    """Attention over another axis than that of tokens: the two are exchanged before it and after it."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        if not at("scores", MatMulT).right(case) or not at(HEAD_OUTPUTS, MatMul).right(case):
            return
        size = case.size(others[0]) or 1
        if size == 1:
            return

        axes_of = {step.name: step.axes for step in case.derivation}
        squares = {name for name, axes in axes_of.items() if is_square(axes)}
        if case.first in squares and size != case.size("query"):  # scores of another shape
            return

        def turn(name: str) -> wrong.Move:
            """What is of scores stays turned."""
            axes = axes_of.get(name) or TABLE[name].axes
            has_axis = bool({*others} & {*axes})
            if name in squares or not has_axis:
                return wrong.keep_positions
            return of_matrix if axes[-1].startswith("d") else of_row

        ops: dict[str, Op] = {}
        for step in case.derivation:
            if step.inputs and squares & {step.name, *step.inputs}:
                before = tuple(map(turn, step.inputs))
                ops[step.name] = wrong.Arranged(step.op, before, after=turn(step.name))
        yield Plant(case.put_all(ops))

    return plants


def is_square(axes: tuple[str, ...]) -> bool:
    """True for the axes of scores: a number for each query and key of each head."""
    return axes[-2:] == ("query", "key") and "head" in axes


OVER_HEADS = plant_over(("head", "kv_head"), of_matrix=wrong.swap_heads, of_row=wrong.transpose)

OVER_BATCH = plant_over(
    ("batch",),
    of_matrix=partial(np.swapaxes, axis1=0, axis2=-2),
    of_row=partial(np.swapaxes, axis1=0, axis2=-1),
)

of_sharing = about("K_shared", "V_shared", meant="grouped")
of_concat = about("concat", meant="heads")

HEADS = (
    about("Q", "K", "V", "scores", "head_outputs")(
        "heads-split-wrong",
        "{}",
        "take x.reshape(n, heads, d).swapaxes(0, 1)",
        MADE.instead(split_wrong),
        plant_split_late,
        why="reshape(heads, n, d) has the right shape at once; it is no transpose, and mixes tokens.",
        example="Q, K, V = ((X @ np.concatenate(W, axis=-1)).reshape(heads, n, d_k) for W in (W_Q, W_K, "
        "W_V))",
    ),
    about("concat", across=True)(
        "heads-merged-wrong",
        "{}",
        "take z.swapaxes(0, 1).reshape(n, heads * d)",
        MERGED.by(MERGES),
        why="reshape(n, heads · d) without the transpose back has the right shape, too.",
        example="concat = head_outputs.reshape(n, heads * d_k)",
    ),
    of_sharing(
        "kv-heads-tiled",
        "kv heads are repeated h0 h1 h0 h1",
        "repeat each for its own group, h0 h0 h1 h1: np.repeat(x, groups, axis=head), not np.tile",
        SHARED.instead(tiled),
        seen="onnx/onnx#7274; ekzhang/jax-js#180; apple/axlearn#842",
        why="np.tile and torch.repeat give h0 h1 h0 h1; repeat_interleave is meant.",
        example="K_shared, V_shared = (np.tile(x, (heads // len(x), 1, 1)) for x in (K, V))",
    ),
    of_sharing(
        "kv-heads-order",
        "{}",
        "{sharing}",
        plant_other_sharing,
        why="The index of the kv head is computed as h % kv_heads, or not at all.",
        example="K_shared, V_shared = K[[0] * heads], V[[0] * heads]",
    ),
    of_concat(
        "heads-in-other-order",
        "the heads stand side by side {}",
        "bring them together in the order in which they were split",
        MERGED.instead({"in reverse order": merged_after(reverse_heads)}),
        MERGED.best(merged_later, up_to_heads(1), "{} off".format),
        fitted=True,
        why="A list of heads is filled from the other end, or by workers that end in any order.",
        example="concat = np.concatenate(head_outputs[::-1], axis=-1)",
    ),
    of_concat(
        "one-head-for-all",
        "head {} stands in the place of every head",
        "write each head's output to its own columns",
        MERGED.best(merged_of_one, up_to_heads(0)),
        fitted=True,
        seen="BobMcDear/attorch#14",
        why="A loop over heads that keeps writing, or reading, the same one.",
        example="concat = np.concatenate([head_outputs[0]] * heads, axis=-1)",
    ),
    of_concat(
        "heads-averaged",
        "the {} of the heads stands in the place of each",
        "put the heads side by side: z.swapaxes(0, 1).reshape(n, heads * d)",
        MERGED.instead({"mean": merged_after(mean_of_heads), "sum": merged_after(sum_of_heads)}),
        why="Graph attention averages heads in its last layer; here they stand side by side.",
        example="concat = np.concatenate([head_outputs.mean(axis=0)] * heads, axis=-1)",
    ),
    about("Q", "K", "V")(
        "qkv-packing",
        "the columns of a packed projection are taken apart the wrong way: by head, or by Q, K and V",
        "GPT-NeoX packs (head, 3, d), others (3, head, d): reshape to that before the parts are taken",
        plant_packing,
        why="GPT-NeoX packs (head, 3, d), GPT-2 (3, head, d): the same shape, other columns.",
        example="packed = np.concatenate([*W_Q, *W_K, *W_V], axis=-1)\n"
        "Q, K, V = (X @ packed).reshape(n, heads, 3, d_k).transpose(2, 1, 0, 3)",
    ),
    about("scores", HEAD_OUTPUTS, across=True, meant="heads")(
        "attention-over-heads",
        "heads and tokens are exchanged, so that attention runs over the heads of each token",
        "hand over (batch, head, n, d): x.swapaxes(1, 2) of (batch, n, head, d)",
        OVER_HEADS,
        why="The function takes (batch, head, n, d), and is handed (batch, n, head, d).",
        seen="pytorch/pytorch#152257",
        example="q, k, v = (x.swapaxes(0, 1) for x in (Q, K, V))\n"
        "head_outputs = (softmax(q @ k.swapaxes(1, 2) / np.sqrt(d_k)) @ v).swapaxes(0, 1)\n"
        "del scores, scaled_scores, attention_weights",
    ),
    about("Q", "scores", HEAD_OUTPUTS, "concat", across=True, meant="batch")(
        "batch-first",
        "batch and tokens are exchanged, so that attention runs over the batch",
        "say batch_first=True, or swap the first two axes",
        plant_over_batch,
        OVER_BATCH,
        why="torch's MultiheadAttention takes (n, batch, d) unless batch_first=True.",
        example="Q, K, V = (project(X.swapaxes(0, 1), W) for W in (W_Q, W_K, W_V))\n"
        "concat = merge(head_outputs).swapaxes(0, 1)",
    ),
)

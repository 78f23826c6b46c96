"""Mistakes in splitting heads, sharing them and bringing them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.ops import Copy, Given, Merge, Op, Project, Repeat
from attnctl.mistakes import wrong
from attnctl.mistakes.fit import planted_best
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, everywhere_or_once

SPLITS = (
    (
        wrong.split_by_reshape,
        "heads are split by reshape(heads, n, d) without a transpose, which mixes tokens",
    ),
    (wrong.split_interleaved, "heads take their columns in turn, not in blocks"),
)
MERGES = (
    (wrong.merge_interleaved, "the columns of the heads are interleaved"),
    (
        wrong.merge_by_reshape,
        "heads are merged by reshape(n, heads·d) without a transpose, which mixes tokens",
    ),
)


def several(case: WrongStep) -> bool:
    return (case.size("head") or 1) > 1 or (case.size("kv_head") or 1) > 1


def plant_split(case: WrongStep) -> Iterator[Plant]:
    """Q, K and V split into heads the wrong way; those that are given, after they were written down."""
    if not several(case):
        return
    made = [name for name in ("Q", "K", "V") if isinstance(case.op(name), Project)]
    given = [name for name in ("Q", "K", "V") if isinstance(case.op(name), Given)]
    for move, detail in SPLITS:
        for names in everywhere_or_once(*made):
            ops = {name: wrong.Arranged(case.derivation[name].op, after=move) for name in names}
            yield Plant(case.put_all(ops), detail)
        if given:
            yield Plant(case.put_all(reading(case, given, move)), detail)


def reading(case: WrongStep, names: Sequence[str], move: wrong.Move) -> dict[str, Op]:
    """Let the steps that read these arrays read them moved."""
    return {
        step.name: wrong.Arranged(
            step.op, tuple(move if each in names else wrong.keep_positions for each in step.inputs)
        )
        for step in case.derivation
        if set(step.inputs) & set(names)
    }


def plant_merges(case: WrongStep) -> Iterator[Plant]:
    """The heads of a token not side by side."""
    if isinstance(case.op("concat"), Merge) and several(case):
        for move, detail in MERGES:
            yield Plant(case.put("concat", wrong.Arranged(Copy(), after=move)), detail)


def plant_tilings(case: WrongStep) -> Iterator[Plant]:
    """h0 h1 h0 h1, for keys and values or one of them."""
    shared = {name: case.op(name) for name in ("K_shared", "V_shared")}
    times = {name: op.times for name, op in shared.items() if isinstance(op, Repeat)}
    for names in everywhere_or_once(*times):
        ops = {name: wrong.Arranged(Copy(), after=wrong.tile_heads(times[name])) for name in names}
        yield Plant(case.put_all(ops))


def sources(case: WrongStep, names: Sequence[str], index: Sequence[int]) -> dict[str, Op]:
    """Shared keys or values of which query head h reads kv head index[h]."""
    return {name: wrong.By(lambda x: np.take(x, index, axis=-3)) for name in names}


def plant_other_sharing(case: WrongStep) -> Iterator[Plant]:
    """Each query head with another kv head than its own."""
    able = [name for name in ("K_shared", "V_shared") if isinstance(case.op(name), Repeat)]
    heads, kv = case.size("head") or 1, case.size("kv_head") or 1
    right = [head * kv // heads for head in range(heads)]
    ways = {f"all query heads read kv head {one}": [one] * heads for one in range(kv)}
    ways["kv heads are read in reverse order"] = [kv - 1 - at for at in right]
    ways |= {
        f"kv heads are read {by} off": [(at + by) % kv for at in right] for by in range(1, min(kv, 16))
    }
    for names in everywhere_or_once(*able):
        for said, index in ways.items():
            yield Plant(case.put_all(sources(case, names, index)), said)


def plant_other_order(case: WrongStep) -> Iterator[Plant]:
    """Heads brought together in reverse order, or some places off."""
    if not isinstance(case.op("concat"), Merge) or not several(case):
        return
    yield Plant(case.put("concat", merged_after(lambda z: z[..., ::-1, :, :])), "in reverse order")
    yield from planted_best(
        case,
        lambda by: case.put("concat", merged_after(lambda z: np.roll(z, by, axis=-3))),
        range(1, min(case.size("head") or 1, 64)),
        lambda by: f"{by} off",
    )


def merged_after(move: wrong.Move) -> wrong.By:
    """Heads side by side after a move."""
    return wrong.By(lambda z: wrong.side_by_side(np.broadcast_to(move(z), z.shape)))


def plant_one_for_all(case: WrongStep) -> Iterator[Plant]:
    if isinstance(case.op("concat"), Merge) and several(case):
        yield from planted_best(
            case,
            lambda head: case.put("concat", merged_after(lambda z: z[..., head : head + 1, :, :])),
            range(min(case.size("head") or 1, 64)),
            str,
        )


def plant_means(case: WrongStep) -> Iterator[Plant]:
    if isinstance(case.op("concat"), Merge) and several(case):
        for said, of in (("mean", np.mean), ("sum", np.sum)):
            yield Plant(case.put("concat", merged_after(over_heads(of))), said)


def over_heads(of: Callable[..., Array]) -> wrong.Move:
    return lambda z: of(z, axis=-3, keepdims=True)


def plant_packing(case: WrongStep) -> Iterator[Plant]:
    """Columns by head (q k v, q k v) read as by letter (q q, k k, v v), or the other way about."""
    names = ("Q", "K", "V")
    able = all(isinstance(case.op(name), Project) for name in names)
    if not able or case.size("head") != case.size("kv_head") or not several(case):
        return
    weights = tuple(case.derivation[name].inputs[1] for name in names)
    for by_letter in (True, False):
        planted = case
        for at, (name, own) in enumerate(zip(names, weights, strict=True)):
            op = wrong.By(plant_unpacking(at, by_letter=by_letter))
            new = Step(case.fresh(f"{own} unpacked"), op, weights, case.derivation[own].axes, "", "")
            planted = planted.planted(planted.through(name, own, new))
        yield Plant(planted.derivation)


def plant_unpacking(at: int, *, by_letter: bool) -> Callable[..., Array]:
    """W_Q, W_K or W_V (0, 1, 2) of one packed matrix that is taken apart the wrong way."""

    def part(*weights: Array) -> Array:
        heads, rows, d = weights[0].shape
        packed = np.stack(weights)  # (letter, head, d_model, d)
        if by_letter:  # packed by letter, read by head
            columns = packed.reshape(heads, 3, rows, d).swapaxes(0, 1)
        else:
            columns = packed.swapaxes(0, 1).reshape(3, heads, rows, d)
        return np.asarray(columns[at])

    return part


def plant_over_batch(case: WrongStep) -> Iterator[Plant]:
    """Attention between the members of a batch, the axis of tokens taken for that of the batch."""
    read = [case.derivation[name] for name in ("Q", "K", "V") if name in case.derivation]
    concat = case.op("concat")
    if not case.size("batch") or concat is None or any(not isinstance(step.op, Project) for step in read):
        return
    ops: dict[str, Op] = {step.name: wrong.Arranged(step.op, (tokens_for_batch,)) for step in read}
    ops["concat"] = wrong.Arranged(concat, after=tokens_for_batch)
    yield Plant(case.put_all(ops))


def tokens_for_batch(x: Array) -> Array:
    return x.swapaxes(0, 1)


HEADS = (
    Mistake(
        "heads-split-wrong",
        ("Q", "K", "V", "scores", "head_outputs"),
        "{}",
        "take x.reshape(n, heads, d).swapaxes(0, 1)",
        plant_split,
        why="reshape(heads, n, d) has the right shape at once; it is no transpose, and mixes tokens.",
        example=(
            "Q, K, V = ((X @ np.concatenate(W, axis=-1)).reshape(heads, n, d_k) for W in (W_Q, W_K, W_V))"
        ),
    ),
    Mistake(
        "heads-merged-wrong",
        ("concat",),
        "{}",
        "take z.swapaxes(0, 1).reshape(n, heads * d)",
        plant_merges,
        across=True,
        why="reshape(n, heads · d) without the transpose back has the right shape, too.",
        example="concat = head_outputs.reshape(n, heads * d_k)",
    ),
    Mistake(
        "kv-heads-tiled",
        ("K_shared", "V_shared"),
        "kv heads are repeated h0 h1 h0 h1",
        "repeat each for its own group, h0 h0 h1 h1: np.repeat(x, groups, axis=head), not np.tile",
        plant_tilings,
        why="np.tile and torch.repeat give h0 h1 h0 h1; repeat_interleave is meant.",
        meant="grouped",
        example="K_shared, V_shared = np.tile(K, (2, 1, 1)), np.tile(V, (2, 1, 1))",
    ),
    Mistake(
        "kv-heads-order",
        ("K_shared", "V_shared"),
        "{}",
        "let query head h read kv head h // (heads // kv_heads)",
        plant_other_sharing,
        why="The index of the kv head is computed as h % kv_heads, or not at all.",
        meant="grouped",
        example="K_shared, V_shared = K[[0, 0, 0, 0]], V[[0, 0, 0, 0]]",
    ),
    Mistake(
        "heads-in-other-order",
        ("concat",),
        "the heads stand side by side {}",
        "bring them together in the order in which they were split",
        plant_other_order,
        fitted=True,
        why="A list of heads is filled from the other end, or by workers that end in any order.",
        meant="heads",
        example="concat = np.concatenate(head_outputs[::-1], axis=-1)",
    ),
    Mistake(
        "one-head-for-all",
        ("concat",),
        "head {} stands in the place of every head",
        "write each head's output to its own columns",
        plant_one_for_all,
        fitted=True,
        why="A loop over heads that keeps writing, or reading, the same one.",
        meant="heads",
        example="concat = np.concatenate([head_outputs[0]] * heads, axis=-1)",
    ),
    Mistake(
        "heads-averaged",
        ("concat",),
        "the {} of the heads stands in the place of each",
        "put the heads side by side: z.swapaxes(0, 1).reshape(n, heads * d)",
        plant_means,
        why="Graph attention averages heads in its last layer; here they stand side by side.",
        meant="heads",
        example="concat = np.concatenate([head_outputs.mean(axis=0)] * heads, axis=-1)",
    ),
    Mistake(
        "qkv-packing",
        ("Q", "K", "V"),
        "the columns of a packed projection are taken apart the wrong way: by head, or by Q, K and V",
        "GPT-NeoX packs (head, 3, d), others (3, head, d): reshape to that before the parts are taken",
        plant_packing,
        why="GPT-NeoX packs (head, 3, d), GPT-2 (3, head, d): the same shape, other columns.",
        example=(
            "packed = np.concatenate([*W_Q, *W_K, *W_V], axis=-1)\n"
            "Q, K, V = (X @ packed).reshape(n, heads, 3, d_k).transpose(2, 1, 0, 3)"
        ),
    ),
    Mistake(
        "batch-first",
        ("Q", "concat"),
        "batch and tokens are exchanged, so that attention runs over the batch",
        "say batch_first=True, or swap the first two axes",
        plant_over_batch,
        across=True,
        why="torch's MultiheadAttention takes (n, batch, d) unless batch_first=True.",
        meant="batch",
        example=(
            "Q, K, V = (project(X.swapaxes(0, 1), W) for W in (W_Q, W_K, W_V))\n"
            "concat = merge(head_outputs).swapaxes(0, 1)"
        ),
    ),
)

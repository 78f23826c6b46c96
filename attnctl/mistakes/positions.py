"""Mistakes in turning queries and keys by their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import pi

import numpy as np

from attnctl.evidence.precision import BFLOAT16, FLOAT16, round_to
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS
from attnctl.math.ops import Copy, MatMul, MatMulT, Op, Project, Rotate
from attnctl.mistakes import wrong
from attnctl.mistakes.fixes import base_of, number
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import all_or_one, at, ends, planted_best, planted_fit

TURNED = ("Q_rotated", "K_rotated")

ROTATIONS = at(*TURNED, Rotate)
BOTH = ROTATIONS.together()

THETAS = (3.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 5e5, 1e6, 3e6, 1e7)


def option_number(value: float) -> str:
    """A number as an option takes it: whole ones without a point."""
    is_whole = value == round(value) and abs(value) < 1e15
    return f"{value:.0f}" if is_whole else f"{value:.6g}"


def by_angles(op: Rotate, change: Callable[[Array], Array]) -> Op:
    return wrong.TurnedOtherwise(**vars(op), change=change)


def plant_other_theta(case: WrongStep) -> Iterator[Plant]:
    meant = "other frequencies are meant"
    for op in ROTATIONS.right(case).values():
        base = base_of(op)
        if base:
            meant = f"{number(base)} is meant"
            break

    def say(theta: float) -> str:
        return f"{option_number(theta)}, where {meant}"

    yield from BOTH.fitted(of_base, THETAS, say)(case)


def plant_mixed_bases(case: WrongStep) -> Iterator[Plant]:
    """Another base for queries or for keys alone, unless the other ones are known to be wrong."""
    right = ROTATIONS.right(case)
    if len(right) < 2:
        return

    for name in right:
        (other,) = right.keys() - {name}
        if other in case.walk.wrong:
            continue

        # Where the other one is recorded it is right, and this one is the wrong step itself.
        is_alone = case.first == name if other in case.record else case.first not in right
        if is_alone:
            say = partial(say_base, name[0])
            yield from at(name, Rotate).fitted(of_base, THETAS, say)(case)


def of_base(op: Rotate, theta: float) -> Rotate:
    return replace(op, theta=abs(theta), frequencies=(), factor=1.0)


def say_base(letter: str, theta: float) -> str:
    return f"{option_number(theta)} for {letter} alone"


def without_sine(op: Rotate) -> Op:
    """The mean of the rotation and of the one back."""
    opposite = replace(op, back=not op.back)
    return wrong.By(lambda x: (op.apply(x) + opposite.apply(x)) / 2)


def sine_and_cosine_exchanged(op: Rotate) -> Op:
    """The cosine of π/2 − α is the sine of α."""
    return by_angles(op, lambda angle: pi / 2 - angle)


def backwards(op: Rotate) -> Op:
    return by_angles(op, np.negative)


def stretched(op: Rotate, factor: float) -> Op:
    return by_angles(op, lambda angle: factor * angle)


def other_pairs(op: Rotate) -> Op:
    """Neighbours for halves, or halves for neighbours."""
    return replace(op, interleaved=not op.interleaved)


def from_0(op: Rotate) -> Op | dict[str, Op]:
    return replace(op, start=0) if np.any(op.start) else {}


def say_from_0(names: Sequence[str]) -> str:
    letters = " and ".join(name[0] for name in names)
    return f"{letters} from 0"


def turned_twice(op: Rotate) -> Op:
    return wrong.Then(op, op)


def turned_over_heads(op: Rotate) -> Op:
    return wrong.Arranged(op, (wrong.swap_heads,), wrong.swap_heads)


def has_heads(case: WrongStep) -> bool:
    return (case.size("head") or 1) > 1


def frequencies_of(case: WrongStep, op: Rotate) -> Array:
    """The angle of each pair at position 1."""
    if op.frequencies:
        return np.array(op.frequencies)
    dims = op.dims or (case.size("d_k") or 0) - op.first
    if dims <= 1:
        return np.zeros(0)
    pairs = np.arange(dims // 2)
    return np.array(op.theta ** (-2.0 * pairs / dims))


def plant_in_half(case: WrongStep) -> Iterator[Plant]:
    """Frequencies, angles or positions rounded to half precision before cos and sin are taken."""
    right = ROTATIONS.right(case)
    for names in all_or_one(*right):
        for precision in (BFLOAT16, FLOAT16):
            to_half = partial(round_to, precision=precision)
            frequencies: dict[str, Op] = {}
            angles: dict[str, Op] = {}
            positions: dict[str, Op] = {}
            for name in names:
                op = right[name]
                own = frequencies_of(case, op)
                if not own.size:  # a rotation of no columns
                    return

                rounded = tuple(map(float, to_half(own)))
                frequencies[name] = replace(op, frequencies=rounded)
                angles[name] = by_angles(op, to_half)
                positions[name] = by_angles(op, partial(at_rounded, own, to_half))

            said = f"are rounded to {precision.name}"
            yield Plant(case.put_all(frequencies), f"frequencies {said}")
            yield Plant(case.put_all(angles), f"angles {said}")
            yield Plant(case.put_all(positions), f"positions {said}")


def at_rounded(frequencies: Array, to_half: Callable[[Array], Array], angle: Array) -> Array:
    """The angles of positions that were rounded."""
    positions = np.rint(angle / frequencies)
    return to_half(positions) * frequencies


def in_other_columns(op: Rotate) -> dict[str, Op]:
    """The right numbers in other columns: pairs side by side for halves, or halves for pairs."""

    def moved(x: Array) -> Array:
        turned = op.apply(x)
        dims = op.dims or x.shape[-1] - op.first
        pairs = len(op.frequencies) or dims // 2

        shape = (pairs, 2) if op.interleaved else (2, pairs)
        columns = np.arange(2 * pairs)
        order = columns.reshape(shape).T.ravel()

        out = turned.copy()
        out[..., op.first : op.first + 2 * pairs] = turned[..., op.first + order]
        return out

    said = "all firsts of the pairs, then all seconds" if op.interleaved else "pair by pair"
    return {said: wrong.By(moved)}


def other_dims(case: WrongStep) -> list[int]:
    d = case.size("d_k") or 0
    right = {op.dims or d for op in ROTATIONS.right(case).values()}
    return [dims for dims in range(2, d + 1, 2) if right != {dims}]


def with_dims(op: Rotate, dims: int) -> Rotate:
    return replace(op, dims=dims)


Moves = dict[str, int]
"""By how many positions each rotation is off, by step."""


def plant_other_starts(case: WrongStep) -> Iterator[Plant]:
    right = ROTATIONS.right(case)

    def make(moves: Moves) -> WrongStep:
        ops: dict[str, Op] = {}
        for name, by in moves.items():
            start = move_position(right[name].start, by)
            ops[name] = replace(right[name], start=start)
        return case.put_all(ops)

    # Where the wrong step is a rotation, it looks the same whether the other one is moved, too, or not.
    groups = list(all_or_one(*right))
    is_tied = case.first in right
    tried_together = [[names] for names in groups] if is_tied else [groups]
    for together in tried_together:
        ways = list_moves(case, right, together)
        yield from planted_best(case, ((say_moves(moves), make(moves)) for moves in ways))


def list_moves(
    case: WrongStep, right: Mapping[str, Rotate], groups: Sequence[Sequence[str]]
) -> list[Moves]:
    """Each group of rotations moved by as much, both ways; and all of them back by what a cache holds."""
    size = max(case.size("query") or 0, case.size("key") or 0)
    moves: list[Moves] = []
    for end in filter(None, ends(size + 1)):
        for by in (end, -end):
            moves += [dict.fromkeys(names, by) for names in groups]

    for op in right.values():
        if isinstance(op.start, int) and op.start:
            moves.append(dict.fromkeys(right, -op.start))
    return moves


def say_moves(moves: Moves) -> str:
    """Q 2 too late and K 2 too late."""
    words: list[str] = []
    for name, by in moves.items():
        late = "late" if by > 0 else "early"
        words.append(f"{name[0]} {abs(by)} too {late}")
    return " and ".join(words)


def two_turned(case: WrongStep) -> bool:
    return len(ROTATIONS.right(case)) > 1


def move_position(start: int | tuple[int, ...], by: int) -> int | tuple[int, ...]:
    if isinstance(start, int):
        return start + by
    return tuple(position + by for position in start)


def plant_on_values(case: WrongStep) -> Iterator[Plant]:
    turn = case.op("K_rotated")
    if not isinstance(turn, Rotate):
        return

    def then_turned(op: Op) -> Op:
        return wrong.Then(op, turn)

    if case.first == "V" or "V" not in case.record:
        yield from at("V", Project).instead(then_turned)(case)

    if isinstance(case.op(HEAD_OUTPUTS), MatMul):
        _, values = case.derivation[HEAD_OUTPUTS].inputs
        if values in case.derivation:
            yield Plant(case.reading(HEAD_OUTPUTS, values, turn))


def plant_before_split(case: WrongStep) -> Iterator[Plant]:
    """All columns of a token turned together, as if it were one head; the projections show it, too."""
    yield from BOTH.instead(turned_side_by_side)(case)

    ops: dict[str, Op] = {}
    for name, op in ROTATIONS.right(case).items():
        letter = name[0]
        project = case.op(letter)
        if isinstance(project, Project):
            ops[letter] = wrong.Then(project, turned_side_by_side(op))
            ops[name] = Copy()
    if ops:
        yield Plant(case.put_all(ops))


def turned_side_by_side(op: Rotate) -> wrong.By:
    """The rotation of heads side by side, as if they were the columns of one."""
    wide = replace(op, dims=None)

    def turned(x: Array) -> Array:
        heads = x.shape[-3]
        one_head = wrong.side_by_side(x)[..., None, :, :]
        rows = wide.apply(one_head)[..., 0, :, :]
        return wrong.side_into_heads(rows, heads)

    return wrong.By(turned)


def plant_unasked_rotation(case: WrongStep) -> Iterator[Plant]:
    has_pairs = (case.size("d_k") or 1) % 2 == 0
    if not isinstance(case.op("scores"), MatMulT) or ROTATIONS.right(case) or not has_pairs:
        return

    q, k = case.derivation["scores"].inputs
    for interleaved, option in ((False, ""), (True, " --interleaved")):

        def make(theta: float, interleaved: bool = interleaved) -> WrongStep:
            turn = Rotate(theta=abs(theta), interleaved=interleaved)
            return case.reading("scores", q, turn).reading("scores", k, turn)

        def say(theta: float, option: str = option) -> str:
            return f"--positions rope --theta {option_number(theta)}{option}"

        yield from planted_fit(case, make, THETAS, say)


ELSEWHERE = "positions are counted from elsewhere: {}"
COUNT_FROM = "{starts}"

of_rotation = about(*TURNED, subject="rotary", meant="rotary")
of_angles = about(*TURNED, subject="rotary", meant="rotary", fitted=True)

POSITIONS = (
    of_rotation(
        "rotary-pairs-wrong",
        "the wrong columns are turned together: neighbours for halves, or halves for neighbours",
        "{pairs} (--interleaved says neighbours)",
        ROTATIONS.instead(other_pairs),
        why="GPT-J turns neighbours, Llama halves: weights of one need the pairs of the other.",
        example="Q_rotated, K_rotated = (rotate(x, neighbours=True) for x in (Q, K))",
    ),
    of_rotation(
        "rotary-start",
        ELSEWHERE,
        COUNT_FROM,
        ROTATIONS.instead(from_0, say=say_from_0),
        seen="lucidrains/rotary-embedding-torch#11; skyzh/tiny-llm#46",
        why="Positions counted from 1, or from the padding on the left.",
        example="Q_rotated, K_rotated = (rotate(x, positions=np.arange(n) + 1) for x in (Q, K))",
        equivalent="queries and keys are turned alike: the output is right",
    ),
    of_rotation(
        "rotary-missing",
        "queries and keys are not rotated",
        "turn Q and K by their positions before Q Kᵀ",
        BOTH.without(),
        why="The rotation stands in another function, which a port forgets.",
        example="Q_rotated, K_rotated = Q, K",
    ),
    of_rotation(
        "rotary-one-sided",
        "only the {} are rotated",
        "turn both Q and K by their positions before Q Kᵀ",
        at("K_rotated", Rotate).where(two_turned).without("queries"),
        at("Q_rotated", Rotate).where(two_turned).without("keys"),
        why="Keys come from a cache that is taken to be turned already.",
        example="K_rotated = K",
    ),
    of_rotation(
        "rotary-twice",
        "queries and keys are rotated twice",
        "turn each once: what comes from a cache is turned already",
        ROTATIONS.instead(turned_twice),
        why="Keys from a cache are turned already, and turned again with the rest.",
        example="Q_rotated, K_rotated = rotate(rotate(Q)), rotate(rotate(K))",
    ),
    of_rotation(
        "rotary-backwards",
        "the rotation goes the other way, its sine with the wrong sign",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        ROTATIONS.instead(backwards),
        why="The minus stands at the other sine: products of Q and K cannot tell, caches can.",
        example="Q_rotated, K_rotated = (rotate(x, positions=-np.arange(n)) for x in (Q, K))",
    ),
    of_rotation(
        "rotary-sine-cosine",
        "sine and cosine are exchanged in the rotation",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        ROTATIONS.instead(sine_and_cosine_exchanged),
        why="(sin, cos) is returned where (cos, sin) is unpacked.",
        example="Q_rotated, K_rotated = (rotate(x, exchanged=True) for x in (Q, K))",
    ),
    of_rotation(
        "rotary-without-sine",
        "only the cosine part of the rotation is there: x · cos, without the other column · sin",
        "add the other column of the pair times sin, −b·sin for the first and a·sin for the second",
        ROTATIONS.instead(without_sine),
        why="The table of sines is read from the wrong place, and holds next to nothing there.",
        seen="vllm-project/vllm-ascend#12723",
        example="back = -np.arange(n)\nQ_rotated = (rotate(Q) + rotate(Q, positions=back)) / 2\n"
        "K_rotated = (rotate(K) + rotate(K, positions=back)) / 2",
    ),
    of_rotation(
        "rotary-over-heads",
        "positions are counted along the axis of heads, so that every token is turned alike",
        "turn (head, token, d): x.swapaxes(0, 1) of (token, head, d), before and after",
        ROTATIONS.where(has_heads).instead(turned_over_heads),
        why="(n, head, d) is handed to a function that takes (head, n, d), or the other way about.",
        seen="mlfoundations/open_lm#4",
        example="Q_rotated, K_rotated = (rotate(x.swapaxes(0, 1)).swapaxes(0, 1) for x in (Q, K))",
    ),
    about("V", "head_outputs", meant="rotary")(
        "rotary-on-values",
        "values are rotated too",
        "turn Q and K only",
        plant_on_values,
        why="One call turns the packed Q, K and V.",
        example="head_outputs = attention_weights @ rotate(V)",
    ),
    of_rotation(
        "rotary-before-split",
        "all columns of a token are rotated together, before heads are split",
        "split first, and turn the columns of each head",
        plant_before_split,
        why="The rotation is applied to (n, heads · d), before the heads are split.",
        example="Q_rotated, K_rotated = (split(rotate(merge(x))) for x in (Q, K))",
    ),
)

IN_CHUNKS = "rows of time, height and width go by chunks of columns (T T H H W W), not in turn (T H W)"
IN_TURN = "rows of time, height and width go in turn (T H W), not by chunks of columns (T T H H W W)"


def at_other_places(op: Rotate) -> dict[str, Op]:
    """Slots in place of the positions that are given, or positions begun again at 0."""
    if not op.places:
        return {}

    places = np.array(op.places)
    again = places - places[..., :1]
    ways: dict[str, Op] = {
        "the slot of each token is taken for its position": replace(op, places=()),
        "positions begin again at 0": replace(op, places=to_places(again)),
    }

    has_time_height_width = len(places) == 3
    if has_time_height_width:
        if op.sections and not op.sections_in_turn:
            ways[IN_TURN] = replace(op, sections_in_turn=True)
        else:
            ways[IN_CHUNKS] = wrong.TurnedInChunks(**vars(op))
        ways["the row of time is taken for all columns"] = replace(op, places=op.places[:1])
    return ways


def to_places(places: Array) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Positions as an op keeps them."""
    parts = places.tolist()
    return tuple(tuple(tuple(map(int, row)) for row in part) for part in parts)


FITTED_POSITIONS = (
    of_rotation(
        "rotary-places",
        "{}",
        "turn each token by the position that position_ids gives it",
        ROTATIONS.instead(at_other_places),
        seen="unslothai/unsloth#3699; alibaba/MNN#4133; huggingface/transformers#43082",
        why="Padding on the left, chunks of a prompt and images have positions that no counter gives.",
        meant="placed",
        example="Q_rotated, K_rotated = (rotate(x, positions=np.arange(n)) for x in (Q, K))",
    ),
    of_angles(
        "rotary-half-precision",
        "{} before cos and sin are taken",
        "keep frequencies, positions and their product in float32, and round cos and sin",
        plant_in_half,
        seen="huggingface/transformers#29285; huggingface/candle#3520; KellerJordan/modded-nanogpt#39",
        why="The model is cast as a whole, its frequencies with it: the error grows with the position.",
        example="frequencies = np.float16(10000 ** (-2 * np.arange(d_k // 2) / d_k))\n"
        "angle = np.arange(n)[:, None] * frequencies\n"
        "cos, sin = np.cos(angle.astype(float)), np.sin(angle.astype(float))\n"
        "a, b = np.split(np.stack([Q, K]), 2, axis=-1)\n"
        "Q_rotated, K_rotated = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)",
    ),
    of_angles(
        "rotary-columns-moved",
        "the rotated columns are written down in another order, {}",
        "write each column back to where it was read; if Q and K have one order, their products are right",
        ROTATIONS.instead(in_other_columns),
        seen="vllm-project/vllm-metal#44",
        why="Pairs are taken apart into two halves, turned, and the halves put behind each other.",
        example="order = np.arange(d_k).reshape(2, -1).T.ravel()\n"
        "Q_rotated, K_rotated = rotate(Q)[..., order], rotate(K)[..., order]",
        equivalent="queries and keys have the same order: the output is right",
    ),
    of_angles(
        "rotary-bases-mixed",
        "queries and keys are turned with different bases: {}",
        "{angles}, for Q and K alike",
        plant_mixed_bases,
        why="Keys come from a cache that another version, or another default, has turned.",
        example="K_rotated = rotate(K, theta=500)",
    ),
    of_angles(
        "rotary-theta",
        "the base of the rotary angles is {}",
        "{angles}",
        plant_other_theta,
        why="Llama 2 has 10,000, Llama 3 500,000: the default of the function is taken.",
        example="Q_rotated, K_rotated = rotate(Q, theta=500), rotate(K, theta=500)",
    ),
    of_angles(
        "rotary-dims",
        "the first {} columns of each head are rotated",
        "{dims}; if these are meant, say --rotary-dims {}",
        BOTH.best(with_dims, other_dims),
        why="GPT-NeoX and Phi turn only a part of the columns (partial_rotary_factor).",
        example="Q_rotated, K_rotated = (np.concatenate([rotate(x[..., :2]), x[..., 2:]], axis=-1) for x "
        "in (Q, K))",
    ),
    about(*TURNED, fitted=True, subject="rotary")(
        "rotary-start",
        ELSEWHERE,
        COUNT_FROM,
        plant_other_starts,
    ),
    of_angles(
        "rotary-stretched",
        "positions are multiplied by {} before the rotation",
        "turn by whole positions",
        BOTH.fitted(stretched, (0.1, 0.25, 0.5, 0.9, 1.1, 2.0, 4.0), option_number),
        why="Position interpolation for longer contexts, left on.",
        example="Q_rotated, K_rotated = (rotate(x, positions=np.arange(n) / 4) for x in (Q, K))",
    ),
    about("scores", fitted=True, subject="rotary")(
        "rotary-unasked",
        "queries and keys are rotated, which nothing asks for",
        "say {} if it is meant",
        plant_unasked_rotation,
        why="The layer is one of those without rotation (SmolLM3, Cohere 2), or has learnt positions.",
        example="scores = rotate(Q) @ rotate(K).swapaxes(-1, -2)",
    ),
)

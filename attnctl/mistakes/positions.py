"""Mistakes in telling tokens where they stand: rotations and sinusoids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import pi

import numpy as np

from attnctl.evidence.precision import BFLOAT16, FLOAT16, round_to
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS
from attnctl.math.ops import Add, Copy, MatMul, MatMulT, Op, Project, Rotate, Sinusoid
from attnctl.mistakes import wrong
from attnctl.mistakes.fixes import base_of, number
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import all_or_one, at, ends, planted_best, planted_fit, shifts, spoken_after

TURNED = ("Q_rotated", "K_rotated")
ROTATIONS, ADDED = at(*TURNED, Rotate), at("X", Add)
BOTH = ROTATIONS.together()

THETAS = (3.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 5e5, 1e6, 3e6, 1e7)


def option_number(value: float) -> str:
    return f"{value:.6g}" if value != round(value) or abs(value) >= 1e15 else f"{value:.0f}"


def by_angles(op: Rotate, change: Callable[[Array], Array]) -> Op:
    return wrong.TurnedOtherwise(**vars(op), change=change)


def plant_other_theta(case: WrongStep) -> Iterator[Plant]:
    bases = [base_of(op) for op in ROTATIONS.right(case).values()]
    meant = next((f"{number(base)} is meant" for base in bases if base), "other frequencies are meant")
    yield from BOTH.fitted(of_base, THETAS, lambda theta: f"{option_number(theta)}, where {meant}")(case)


def plant_mixed_bases(case: WrongStep) -> Iterator[Plant]:
    """Another base for queries or for keys alone, unless the other ones are known to be wrong."""
    right = ROTATIONS.right(case)
    for name in right if len(right) > 1 else ():
        (other,) = right.keys() - {name}
        alone = case.first == name if other in case.record else case.first not in right
        if alone and other not in case.walk.wrong:
            yield from at(name, Rotate).fitted(of_base, THETAS, partial(say_base, name[0]))(case)


def of_base(op: Rotate, theta: float) -> Rotate:
    return replace(op, theta=abs(theta), frequencies=(), factor=1.0)


def say_base(letter: str, theta: float) -> str:
    return f"{option_number(theta)} for {letter} alone"


def without_sine(op: Rotate) -> Op:
    """The mean of the rotation and of the one back."""
    return wrong.By(lambda x: (op.apply(x) + replace(op, back=not op.back).apply(x)) / 2)


def frequencies_of(case: WrongStep, op: Rotate) -> Array:
    """The angle of each pair at position 1."""
    if op.frequencies:
        return np.array(op.frequencies)
    dims = op.dims or (case.size("d_k") or 0) - op.first
    return np.array(op.theta ** (-2.0 * np.arange(dims // 2) / dims)) if dims > 1 else np.zeros(0)


def plant_in_half(case: WrongStep) -> Iterator[Plant]:
    """Frequencies, angles or positions rounded to half precision before cos and sin are taken."""
    right = ROTATIONS.right(case)
    for names in all_or_one(*right):
        for precision in (BFLOAT16, FLOAT16):
            to_half = partial(round_to, precision=precision)
            ways: dict[str, dict[str, Op]] = {"frequencies": {}, "angles": {}, "positions": {}}
            for name in names:
                op = right[name]
                frequencies = frequencies_of(case, op)
                if not frequencies.size:  # a rotation of no columns
                    return

                rounded = tuple(map(float, to_half(frequencies)))
                ways["frequencies"][name] = replace(op, frequencies=rounded)
                ways["angles"][name] = by_angles(op, to_half)
                ways["positions"][name] = by_angles(op, partial(at_rounded, frequencies, to_half))

            for what, ops in ways.items():
                yield Plant(case.put_all(ops), f"{what} are rounded to {precision.name}")


def at_rounded(frequencies: Array, to_half: Callable[[Array], Array], angle: Array) -> Array:
    """The angles of positions that were rounded."""
    return to_half(np.rint(angle / frequencies)) * frequencies


def in_other_columns(op: Rotate) -> dict[str, Op]:
    """The right numbers in other columns: pairs side by side for halves, or halves for pairs."""
    said = "all firsts of the pairs, then all seconds" if op.interleaved else "pair by pair"

    def moved(x: Array) -> Array:
        turned = op.apply(x)
        pairs = len(op.frequencies) or (op.dims or x.shape[-1] - op.first) // 2
        columns = np.arange(2 * pairs)
        order = columns.reshape((pairs, 2) if op.interleaved else (2, pairs)).T.ravel()
        out = turned.copy()
        out[..., op.first : op.first + 2 * pairs] = turned[..., op.first + order]
        return out

    return {said: wrong.By(moved)}


def other_dims(case: WrongStep) -> list[int]:
    d = case.size("d_k") or 0
    right = {op.dims or d for op in ROTATIONS.right(case).values()}
    return [dims for dims in range(2, d + 1, 2) if right != {dims}]


def plant_other_starts(case: WrongStep) -> Iterator[Plant]:
    right = ROTATIONS.right(case)
    size = max(case.size("query") or 0, case.size("key") or 0)
    moves = [by for end in ends(size + 1) for by in (end, -end) if by]
    past = [op.start for op in right.values() if isinstance(op.start, int) and op.start]
    groups = list(all_or_one(*right))

    def make(move_of: dict[str, int]) -> WrongStep:
        ops: dict[str, Op] = {}
        for name, by in move_of.items():
            ops[name] = replace(right[name], start=move_position(right[name].start, by))
        return case.put_all(ops)

    def say(move_of: dict[str, int]) -> str:
        words = [f"{name[0]} {abs(by)} too {'late' if by > 0 else 'early'}" for name, by in move_of.items()]
        return " and ".join(words)

    # Where the wrong step is a rotation, it looks the same whether the other one is moved, too, or not.
    is_tied = case.first in right
    for together in [[names] for names in groups] if is_tied else [groups]:
        ways = [dict.fromkeys(names, by) for by in moves for names in together]
        ways += [dict.fromkeys(right, -by) for by in past]
        yield from planted_best(case, ((say(way), make(way)) for way in ways))


def two_turned(case: WrongStep) -> bool:
    return len(ROTATIONS.right(case)) > 1


def move_position(start: int | tuple[int, ...], by: int) -> int | tuple[int, ...]:
    return start + by if isinstance(start, int) else tuple(position + by for position in start)


def plant_on_values(case: WrongStep) -> Iterator[Plant]:
    turn = case.op("K_rotated")
    if not isinstance(turn, Rotate):
        return
    if case.first == "V" or "V" not in case.record:
        yield from at("V", Project).instead(lambda op: wrong.Then(op, turn))(case)
    values = case.derivation[HEAD_OUTPUTS].inputs[1] if isinstance(case.op(HEAD_OUTPUTS), MatMul) else ""
    if values in case.derivation:
        yield Plant(case.reading(HEAD_OUTPUTS, values, turn))


def plant_before_split(case: WrongStep) -> Iterator[Plant]:
    """All columns of a token turned together, as if it were one head; the projections show it, too."""
    yield from BOTH.instead(lambda op: wrong.By(rotate_side_by_side(op)))(case)
    ops: dict[str, Op] = {}
    for name, op in ROTATIONS.right(case).items():
        project = case.op(name[0])
        if isinstance(project, Project):
            ops |= {name[0]: wrong.Then(project, wrong.By(rotate_side_by_side(op))), name: Copy()}
    if ops:
        yield Plant(case.put_all(ops))


def rotate_side_by_side(op: Rotate) -> Callable[[Array], Array]:
    wide = replace(op, dims=None)

    def turned(x: Array) -> Array:
        rows = wide.apply(wrong.side_by_side(x)[..., None, :, :])[..., 0, :, :]
        return wrong.side_into_heads(rows, x.shape[-3])

    return turned


def plant_unasked_rotation(case: WrongStep) -> Iterator[Plant]:
    if not isinstance(case.op("scores"), MatMulT) or ROTATIONS.right(case) or (case.size("d_k") or 1) % 2:
        return
    q, k = case.derivation["scores"].inputs
    for interleaved, option in ((False, ""), (True, " --interleaved")):

        def make(theta: float, interleaved: bool = interleaved) -> WrongStep:
            turn = Rotate(theta=abs(theta), interleaved=interleaved)
            return case.reading("scores", q, turn).reading("scores", k, turn)

        def say(theta: float, option: str = option) -> str:
            return f"--positions rope --theta {option_number(theta)}{option}"

        yield from planted_fit(case, make, THETAS, say)


def plant_other_rows(case: WrongStep) -> Iterator[Plant]:
    """Rows of a learned table that are so many before or after those that are meant."""
    learned = case.record.plan.learned
    if learned is None or not ADDED.right(case):
        return
    last = len(learned.rows) - 1
    for by in shifts(last):
        read = learned.read + by
        if read.min() < 0 or read.max() > last:
            continue
        rows = learned.rows[read]

        def others(e: Array, _: Array, rows: Array = rows) -> Array:
            return e + rows.astype(e.dtype)

        late = "late" if by > 0 else "early"
        yield Plant(case.put("X", wrong.By(others)), f"rows of the table are read {abs(by)} too {late}")


SUMS = (-1.0, 0.3, 2.0, 8.0, 30.0)
SAID = "positions are multiplied by ", "embeddings are multiplied by "


def plant_other_sinusoids(case: WrongStep) -> Iterator[Plant]:
    """Sinusoids from another position, or in other columns."""
    op = case.op("positions")
    if not isinstance(op, Sinusoid):
        return
    table = op.apply()
    columns = np.arange(op.d_model)
    orders = {
        "cosines stand before sines": columns ^ 1 if op.d_model % 2 == 0 else columns,
        "all sines stand before all cosines": np.concatenate([columns[0::2], columns[1::2]]),
    }
    for said, order in orders.items():
        yield Plant(case.put("positions", wrong.By(lambda order=order: table[:, order])), said)
    for start in (op.start - 1, op.start + 1):
        yield Plant(case.put("positions", replace(op, start=start)), f"positions begin at {start}")


def plant_other_waves(case: WrongStep) -> Iterator[Plant]:
    """Sinusoids whose waves have other lengths, or that are all sines."""
    op = case.op("positions")
    if not isinstance(op, Sinusoid):
        return
    places = op.positions_of_rows[:, None]
    columns = np.arange(op.d_model)
    pairs = columns // 2
    exponents = {
        "its exponent counts columns, and not pairs of them": columns / op.d_model,
        "its exponent counts columns twice, and not pairs of them": 2 * columns / op.d_model,
        "its exponent is 4i / d and not 2i / d": 4 * pairs / op.d_model,
        "its exponent is i / d and not 2i / d": pairs / op.d_model,
        "its exponent has the other sign, so that waves grow shorter": -2 * pairs / op.d_model,
    }
    for said, exponent in exponents.items():
        yield Plant(case.put("positions", wrong.By(partial(waves_of, places, exponent))), said)

    angles = places * 10000.0 ** (-2 * pairs / op.d_model)
    yield Plant(case.put("positions", wrong.By(lambda: np.sin(angles))), "every column is a sine")
    yield Plant(case.put("positions", wrong.By(lambda: np.cos(angles))), "every column is a cosine")


def waves_of(places: Array, exponent: Array) -> Array:
    """Sines in even columns and cosines in odd ones, of angles place / 10000^exponent."""
    angles = places * 10000.0**-exponent
    is_even = np.arange(len(exponent)) % 2 == 0
    return np.where(is_even, np.sin(angles), np.cos(angles))


ELSEWHERE = "positions are counted from elsewhere: {}"
COUNT_FROM = "{starts}"

of_rotation = about(*TURNED, subject="rotary", meant="rotary")
of_embeddings = about("X", meant="sinusoidal")
of_angles = about(*TURNED, subject="rotary", meant="rotary", fitted=True)

POSITIONS = (
    of_rotation(
        "rotary-pairs-wrong",
        "the wrong columns are turned together: neighbours for halves, or halves for neighbours",
        "{pairs} (--interleaved says neighbours)",
        ROTATIONS.instead(lambda op: replace(op, interleaved=not op.interleaved)),
        why="GPT-J turns neighbours, Llama halves: weights of one need the pairs of the other.",
        example="Q_rotated, K_rotated = (rotate(x, neighbours=True) for x in (Q, K))",
    ),
    of_rotation(
        "rotary-start",
        ELSEWHERE,
        COUNT_FROM,
        ROTATIONS.instead(
            lambda op: replace(op, start=0) if np.any(op.start) else {},
            say=lambda names: f"{' and '.join(name[0] for name in names)} from 0",
        ),
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
        ROTATIONS.instead(lambda op: wrong.Then(op, op)),
        why="Keys from a cache are turned already, and turned again with the rest.",
        example="Q_rotated, K_rotated = rotate(rotate(Q)), rotate(rotate(K))",
    ),
    of_rotation(
        "rotary-backwards",
        "the rotation goes the other way, its sine with the wrong sign",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        ROTATIONS.instead(lambda op: by_angles(op, np.negative)),
        why="The minus stands at the other sine: products of Q and K cannot tell, caches can.",
        example="Q_rotated, K_rotated = (rotate(x, positions=-np.arange(n)) for x in (Q, K))",
    ),
    of_rotation(
        "rotary-sine-cosine",
        "sine and cosine are exchanged in the rotation",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        ROTATIONS.instead(lambda op: by_angles(op, lambda angle: pi / 2 - angle)),
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
        ROTATIONS.where(lambda case: (case.size("head") or 1) > 1).instead(
            lambda op: wrong.Arranged(op, (wrong.swap_heads,), wrong.swap_heads)
        ),
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
    of_embeddings(
        "positions-missing",
        "positions are not added to the embeddings",
        "attend over embeddings + positions",
        ADDED.without(),
        why="The embeddings go into attention before the line that adds positions.",
        example="X = embeddings",
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
    ways: dict[str, Op] = {"the slot of each token is taken for its position": replace(op, places=())}
    ways["positions begin again at 0"] = replace(op, places=to_places(again))
    if len(places) == 3:
        if op.sections and not op.sections_in_turn:
            ways[IN_TURN] = replace(op, sections_in_turn=True)
        else:
            ways[IN_CHUNKS] = wrong.TurnedInChunks(**vars(op))
        ways["the row of time is taken for all columns"] = replace(op, places=op.places[:1])
    return ways


def to_places(places: Array) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(tuple(map(int, row)) for row in part) for part in places.tolist())


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
        BOTH.best(lambda op, dims: replace(op, dims=dims), other_dims),
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
        BOTH.fitted(
            lambda op, by: by_angles(op, lambda angle: by * angle),
            (0.1, 0.25, 0.5, 0.9, 1.1, 2.0, 4.0),
            option_number,
        ),
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
    about("positions", fitted=True, meant="sinusoidal")(
        "sinusoids-wrong",
        "{}",
        "take sin(pos / 10000^(2i/d)) in column 2i and the cosine in column 2i + 1, pos from 0",
        plant_other_sinusoids,
        why="Sines in the first half and cosines in the second, as tensor2tensor has them.",
        example="positions = np.concatenate([positions[:, ::2], positions[:, 1::2]], axis=-1)",
    ),
    about("positions", fitted=True, meant="sinusoidal")(
        "sinusoid-waves-wrong",
        "the waves of the positions are others: {}",
        "take sin(pos / 10000^(2i/d)) in column 2i and its cosine in column 2i + 1",
        plant_other_waves,
        why="i counts pairs of columns; a loop or an arange over all columns counts something else.",
        example="column = np.arange(d_model)\n"
        "angles = np.arange(n)[:, None] / 10000 ** (column / d_model)\n"
        "positions = np.where(column % 2 == 0, np.sin(angles), np.cos(angles))",
    ),
    about("X", fitted=True, meant="learned")(
        "positions-start",
        ELSEWHERE,
        "read the row of each token's own position",
        plant_other_rows,
        seen="sbryngelson/ANEForge#257; huggingface/sentence-transformers#3879",
        why="RoBERTa and OPT count from 2, behind the row of padding; BERT and GPT-2 from 0.",
        example="X = embeddings + table[np.arange(n) + 2]",
    ),
    of_embeddings(
        "positions-wrong",
        "{} before they are added",
        "add embeddings and positions as they are",
        ADDED.fitted(lambda _, by: wrong.By(lambda e, p: e + by * p), SUMS, spoken_after(SAID[0])),
        ADDED.fitted(lambda _, by: wrong.By(lambda e, p: by * e + p), SUMS, spoken_after(SAID[1])),
        fitted=True,
        why="The original transformer multiplies embeddings by √d_model before it adds positions.",
        example="X = embeddings * np.sqrt(d_model) + positions",
    ),
)

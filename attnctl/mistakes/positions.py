"""Mistakes in telling tokens where they stand: rotations and sinusoids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import pi

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.ops import Add, Copy, MatMul, MatMulT, Op, Project, Rotate, Sinusoid
from attnctl.math.ops.vectors import sinusoids
from attnctl.mistakes import wrong
from attnctl.mistakes.fit import ends, planted_best, planted_fit, spoken
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, everywhere_or_once

TURNED = ("Q_rotated", "K_rotated")

THETAS = (3.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 5e5, 1e6, 3e6, 1e7)

Turn = Callable[[Rotate], Op]


def rotations(case: WrongStep) -> dict[str, Rotate]:
    turned = {name: case.op(name) for name in TURNED}
    return {name: op for name, op in turned.items() if isinstance(op, Rotate)}


def rotary(*ways: Turn) -> Callable[[WrongStep], Iterator[Plant]]:
    """Plants another op for the rotations of Q and K, both or one."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        right = rotations(case)
        for make, names in product(ways, list(everywhere_or_once(*right))):
            yield Plant(case.put_all({name: make(right[name]) for name in names}))

    return plants


def rotary_fit(
    make: Callable[[Rotate, float], Op],
    starts: tuple[float, ...],
    right_number: Callable[[Rotate], float] | None = None,
) -> Callable[[WrongStep], Iterator[Plant]]:
    """Plants rotations by a number that is fitted; the detail says the right one too, where it is told."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        right = rotations(case)

        def with_value(value: float) -> Derivation:
            return case.put_all({name: make(op, value) for name, op in right.items()})

        def say(value: float) -> str:
            op = next(iter(right.values()))
            return (
                f"{plain(value)}, where {plain(right_number(op))} is meant"
                if right_number
                else plain(value)
            )

        if right:
            yield from planted_fit(case, with_value, starts, say)

    return plants


def plain(value: float) -> str:
    """A number as an option takes it."""
    return f"{value:.6g}" if value != round(value) or abs(value) >= 1e15 else f"{value:.0f}"


def with_theta(op: Rotate, theta: float) -> Rotate:
    """The rotation with another base, and nothing that stretches its frequencies."""
    return replace(op, theta=theta, frequencies=(), factor=1.0)


def by_angles(op: Rotate, change: Callable[[Array], Array]) -> Op:
    return wrong.TurnedOtherwise(**vars(op), change=change)


def plant_other_dims(case: WrongStep) -> Iterator[Plant]:
    """Another number of columns turned."""
    right, d = rotations(case), case.size("d_k") or 0
    ways = [dims for dims in range(2, d + 1, 2) if any((op.dims or d) != dims for op in right.values())]
    yield from planted_best(
        case,
        lambda dims: case.put_all({name: replace(op, dims=dims) for name, op in right.items()}),
        ways,
    )


def plant_other_starts(case: WrongStep) -> Iterator[Plant]:
    """Positions counted from elsewhere, for queries, keys or both."""
    right = rotations(case)
    starts = {name: op.start for name, op in right.items()}
    size = max(case.size("query") or 0, case.size("key") or 0)
    moves = [by for end in ends(size + 1) for by in (end, -end) if by]
    past = [start for start in starts.values() if isinstance(start, int) and start]
    tied = case.first in right  # which looks the same whether the other one is moved too or not

    def make(way: tuple[int, ...]) -> Derivation:
        ops = {
            name: replace(op, start=move_position(op.start, by))
            for (name, op), by in zip(right.items(), way, strict=True)
            if by
        }
        return case.put_all(dict(ops))

    def say(way: tuple[int, ...]) -> str:
        letters = {name[0]: by for name, by in zip(right, way, strict=True) if by}
        return " and ".join(
            f"{letter} {abs(by)} too {'late' if by > 0 else 'early'}" for letter, by in letters.items()
        )

    for sets in [[names] for names in chosen(right)] if tied else [chosen(right)]:
        ways = [tuple(by if name in names else 0 for name in right) for by in moves for names in sets]
        ways += [tuple(-by for _ in right) for by in past]
        yield from planted_best(case, make, ways, say)


def plant_from_zero(case: WrongStep) -> Iterator[Plant]:
    """Positions counted from 0, though keys of a cache come first: of queries, new keys or both."""
    late = {name: op for name, op in rotations(case).items() if np.any(op.start)}
    for names in chosen(late):
        letters = " and ".join(name[0] for name in names)
        yield Plant(
            case.put_all({name: replace(late[name], start=0) for name in names}), f"{letters} from 0"
        )


def plant_one_sided(case: WrongStep) -> Iterator[Plant]:
    """Queries turned and keys not, or the other way round."""
    right = rotations(case)
    if len(right) > 1:
        yield Plant(case.put("K_rotated", Copy()), "queries")
        yield Plant(case.put("Q_rotated", Copy()), "keys")


def plant_unturned(case: WrongStep) -> Iterator[Plant]:
    """Turn nothing."""
    if right := rotations(case):
        yield Plant(case.put_all({name: Copy() for name in right}))


def chosen(names: dict[str, Rotate]) -> list[tuple[str, ...]]:
    return list(everywhere_or_once(*names))


def move_position(start: int | tuple[int, ...], by: int) -> int | tuple[int, ...]:
    """A position, or that of each member of a batch, moved."""
    return start + by if isinstance(start, int) else tuple(each + by for each in start)


def plant_on_values(case: WrongStep) -> Iterator[Plant]:
    """V turned like K."""
    turn, outputs = case.op("K_rotated"), case.op("head_outputs")
    if not isinstance(turn, Rotate):
        return
    project = case.op("V")
    if isinstance(project, Project) and (case.first == "V" or "V" not in case.record):
        yield Plant(case.put("V", wrong.Then(project, turn)))
    values = case.derivation["head_outputs"].inputs[1] if isinstance(outputs, MatMul) else ""
    if values in case.derivation:
        yield Plant(case.reading("head_outputs", values, turn))


def plant_before_split(case: WrongStep) -> Iterator[Plant]:
    """All columns of a token turned together, as if it were one head."""
    right = rotations(case)
    projected = {name: case.op(name[0]) for name in right}
    if right:
        yield Plant(case.put_all({name: wrong.By(whole(op)) for name, op in right.items()}))
    ops: dict[str, Op] = {}
    for name, op in right.items():
        project = projected[name]
        if isinstance(project, Project):
            ops |= {name[0]: wrong.Then(project, wrong.By(whole(op))), name: Copy()}
    if ops:
        yield Plant(case.put_all(ops))


def whole(op: Rotate) -> Callable[[Array], Array]:
    """Heads side by side, turned, and split again."""
    wide = replace(op, dims=None)

    def turned(x: Array) -> Array:
        heads = x.shape[-3]
        return wrong.side_into_heads(
            wide.apply(wrong.side_by_side(x)[..., None, :, :])[..., 0, :, :], heads
        )

    return turned


def plant_unasked_rotation(case: WrongStep) -> Iterator[Plant]:
    """Q and K turned where nothing asks for it."""
    scores = case.op("scores")
    if not isinstance(scores, MatMulT) or rotations(case) or (case.size("d_k") or 1) % 2:
        return
    for interleaved in (False, True):

        def make(theta: float, interleaved: bool = interleaved) -> Derivation:
            turn = Rotate(theta=abs(theta), interleaved=interleaved)
            q, k = case.derivation["scores"].inputs
            return case.planted(case.reading("scores", q, turn)).reading("scores", k, turn)

        def say(theta: float, interleaved: bool = interleaved) -> str:
            return f"--positions rope --theta {plain(theta)}{' --interleaved' * interleaved}"

        yield from planted_fit(case, make, THETAS, say)


def plant_without_positions(case: WrongStep) -> Iterator[Plant]:
    """X as the embeddings alone."""
    step = case.derivation["X"]
    if isinstance(step.op, Add):
        yield Plant(case.put("X", Copy(), step.inputs[:1]))


def plant_other_sum(case: WrongStep) -> Iterator[Plant]:
    """Embeddings or positions multiplied by something before they are added."""
    step = case.derivation["X"]
    if isinstance(step.op, Add):
        for said, make in (
            ("positions are multiplied by ", lambda by: wrong.By(lambda e, p: e + by * p)),
            ("embeddings are multiplied by ", lambda by: wrong.By(lambda e, p: by * e + p)),
        ):
            yield from planted_fit(case, sum_with(case, make), (-1.0, 0.3, 2.0, 8.0, 30.0), said_of(said))


def sum_with(case: WrongStep, make: Callable[[float], Op]) -> Callable[[float], Derivation]:
    """X as another sum."""
    return lambda by: case.put("X", make(by))


def said_of(words: str) -> Callable[[float], str]:
    return lambda value: words + spoken(value)


def plant_other_sinusoids(case: WrongStep) -> Iterator[Plant]:
    """Sinusoids from another position, in other columns, of another base."""
    op = case.op("positions")
    if not isinstance(op, Sinusoid):
        return
    table = sinusoids(op.length, op.d_model, op.start)
    columns = np.arange(op.d_model)
    orders = {
        "cosines stand before sines": columns ^ 1 if op.d_model % 2 == 0 else columns,
        "all sines stand before all cosines": np.concatenate([columns[0::2], columns[1::2]]),
    }
    for said, order in orders.items():
        yield Plant(case.put("positions", wrong.By(lambda order=order: table[:, order])), said)
    for start in (op.start - 1, op.start + 1):
        yield Plant(case.put("positions", replace(op, start=start)), f"positions begin at {start}")

    def of_base(base: float) -> Derivation:
        angle = np.arange(op.start, op.start + op.length)[:, None] / abs(base) ** (
            2 * (columns // 2) / op.d_model
        )
        return case.put(
            "positions", wrong.By(lambda: np.where(columns % 2 == 0, np.sin(angle), np.cos(angle)))
        )

    yield from planted_fit(case, of_base, THETAS, lambda base: f"the base is {plain(base)}, not 10000")


ELSEWHERE = "positions are counted from elsewhere: {}"
COUNT_FROM = "count from 0, the keys of a cache included"

POSITIONS = (
    Mistake(
        "rotary-pairs-wrong",
        TURNED,
        "the wrong columns are turned together: neighbours for halves, or halves for neighbours",
        "Llama and GPT-NeoX turn column i with i + d/2, GPT-J column 2i with 2i + 1 (--interleaved)",
        rotary(lambda op: replace(op, interleaved=not op.interleaved)),
        subject="rotary",
        why="GPT-J turns neighbours, Llama halves: weights of one need the pairs of the other.",
        meant="rotary",
        example="Q_rotated, K_rotated = (rotate(x, neighbours=True) for x in (Q, K))",
    ),
    Mistake(
        "rotary-start",
        TURNED,
        ELSEWHERE,
        COUNT_FROM,
        plant_from_zero,
        subject="rotary",
        why="Positions counted from 1, or from the padding on the left.",
        meant="rotary",
        example="Q_rotated, K_rotated = (rotate(x, positions=np.arange(n) + 1) for x in (Q, K))",
    ),
    Mistake(
        "rotary-missing",
        TURNED,
        "queries and keys are not rotated",
        "turn Q and K by their positions before Q Kᵀ",
        plant_unturned,
        subject="rotary",
        why="The rotation stands in another function, which a port forgets.",
        meant="rotary",
        example="Q_rotated, K_rotated = Q, K",
    ),
    Mistake(
        "rotary-one-sided",
        TURNED,
        "only the {} are rotated",
        "turn both Q and K by their positions before Q Kᵀ",
        plant_one_sided,
        subject="rotary",
        why="Keys come from a cache that is taken to be turned already.",
        meant="rotary",
        example="K_rotated = K",
    ),
    Mistake(
        "rotary-twice",
        TURNED,
        "queries and keys are rotated twice",
        "turn each once: what comes from a cache is turned already",
        rotary(lambda op: wrong.Then(op, op)),
        subject="rotary",
        why="Keys from a cache are turned already, and turned again with the rest.",
        meant="rotary",
        example="Q_rotated, K_rotated = rotate(rotate(Q)), rotate(rotate(K))",
    ),
    Mistake(
        "rotary-backwards",
        TURNED,
        "the rotation goes the other way, its sine with the wrong sign",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        rotary(lambda op: by_angles(op, np.negative)),
        subject="rotary",
        why="The minus stands at the other sine: products of Q and K cannot tell, caches can.",
        meant="rotary",
        example="Q_rotated, K_rotated = (rotate(x, positions=-np.arange(n)) for x in (Q, K))",
    ),
    Mistake(
        "rotary-sine-cosine",
        TURNED,
        "sine and cosine are exchanged in the rotation",
        "take a·cos − b·sin for the first of a pair and a·sin + b·cos for the second",
        rotary(lambda op: by_angles(op, lambda angle: pi / 2 - angle)),
        subject="rotary",
        why="(sin, cos) is returned where (cos, sin) is unpacked.",
        meant="rotary",
        example="Q_rotated, K_rotated = (rotate(x, exchanged=True) for x in (Q, K))",
    ),
    Mistake(
        "rotary-on-values",
        ("V", "head_outputs"),
        "values are rotated too",
        "turn Q and K only",
        plant_on_values,
        why="One call turns the packed Q, K and V.",
        meant="rotary",
        example="head_outputs = attention_weights @ rotate(V)",
    ),
    Mistake(
        "rotary-before-split",
        TURNED,
        "all columns of a token are rotated together, before heads are split",
        "split first, and turn the columns of each head",
        plant_before_split,
        subject="rotary",
        why="The rotation is applied to (n, heads · d), before the heads are split.",
        meant="rotary",
        example="Q_rotated, K_rotated = (split(rotate(merge(x))) for x in (Q, K))",
    ),
    Mistake(
        "positions-missing",
        ("X",),
        "positions are not added to the embeddings",
        "attend over embeddings + positions",
        plant_without_positions,
        why="The embeddings go into attention before the line that adds positions.",
        meant="sinusoidal",
        example="X = embeddings",
    ),
)

FITTED_POSITIONS = (
    Mistake(
        "rotary-theta",
        TURNED,
        "the base of the rotary angles is {}",
        "turn by pos · θ^(−2i/d), d the columns that are turned; --theta says another base",
        rotary_fit(lambda op, theta: with_theta(op, abs(theta)), THETAS, lambda op: op.theta),
        fitted=True,
        subject="rotary",
        why="Llama 2 has 10,000, Llama 3 500,000: the default of the function is taken.",
        meant="rotary",
        example="Q_rotated, K_rotated = rotate(Q, theta=500), rotate(K, theta=500)",
    ),
    Mistake(
        "rotary-dims",
        TURNED,
        "the first {} columns of each head are rotated",
        "turn as many as are meant; if these are, say --rotary-dims {}",
        plant_other_dims,
        fitted=True,
        subject="rotary",
        why="GPT-NeoX and Phi turn only a part of the columns (partial_rotary_factor).",
        meant="rotary",
        example=(
            "Q_rotated, K_rotated = (np.concatenate([rotate(x[..., :2]), x[..., 2:]], axis=-1) for x in "
            "(Q, K))"
        ),
    ),
    Mistake(
        "rotary-start",
        TURNED,
        ELSEWHERE,
        COUNT_FROM,
        plant_other_starts,
        fitted=True,
        subject="rotary",
    ),
    Mistake(
        "rotary-stretched",
        TURNED,
        "positions are multiplied by {} before the rotation",
        "turn by whole positions",
        rotary_fit(
            lambda op, by: by_angles(op, lambda angle: by * angle), (0.1, 0.25, 0.5, 0.9, 1.1, 2.0, 4.0)
        ),
        fitted=True,
        subject="rotary",
        why="Position interpolation for longer contexts, left on.",
        meant="rotary",
        example="Q_rotated, K_rotated = (rotate(x, positions=np.arange(n) / 4) for x in (Q, K))",
    ),
    Mistake(
        "rotary-unasked",
        ("scores",),
        "queries and keys are rotated, which nothing asks for",
        "say {} if it is meant",
        plant_unasked_rotation,
        fitted=True,
        subject="rotary",
        why="The layer is one of those without rotation (SmolLM3, Cohere 2), or has learnt positions.",
        example="scores = rotate(Q) @ rotate(K).swapaxes(-1, -2)",
    ),
    Mistake(
        "sinusoids-wrong",
        ("positions",),
        "{}",
        "take sin(pos / 10000^(2i/d)) in column 2i and the cosine in column 2i + 1, pos from 0",
        plant_other_sinusoids,
        fitted=True,
        why="Sines in the first half and cosines in the second, as tensor2tensor has them.",
        meant="sinusoidal",
        example="positions = np.concatenate([positions[:, ::2], positions[:, 1::2]], axis=-1)",
    ),
    Mistake(
        "positions-wrong",
        ("X",),
        "{} before they are added",
        "add embeddings and positions as they are",
        plant_other_sum,
        fitted=True,
        why="The original transformer multiplies embeddings by √d_model before it adds positions.",
        meant="sinusoidal",
        example="X = embeddings * np.sqrt(d_model) + positions",
    ),
)

"""Mistakes in positions that are added to embeddings: sinusoids, and tables that are learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import Add, Sinusoid
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import at, shifts, spoken_after
from attnctl.mistakes.positions import ELSEWHERE

ADDED = at("X", Add)


def plant_other_sinusoids(case: WrongStep) -> Iterator[Plant]:
    """Sinusoids from another position, or in other columns."""
    op = case.op("positions")
    if not isinstance(op, Sinusoid):
        return

    table = op.apply()
    columns = np.arange(op.d_model)
    sines_first = np.concatenate([columns[0::2], columns[1::2]])
    # Of an odd number of columns the last has no partner.
    exchanged = columns ^ 1 if op.d_model % 2 == 0 else columns
    orders = {
        "cosines stand before sines": exchanged,
        "all sines stand before all cosines": sines_first,
    }
    for said, order in orders.items():
        moved = table[:, order]
        yield Plant(case.put("positions", given_back(moved)), said)

    for start in (op.start - 1, op.start + 1):
        yield Plant(case.put("positions", replace(op, start=start)), f"positions begin at {start}")


def given_back(table: Array) -> wrong.By:
    """What gives a table, whatever it reads."""
    return wrong.By(lambda: table)


def plant_other_waves(case: WrongStep) -> Iterator[Plant]:
    """Sinusoids whose waves have other lengths, or that are all sines."""
    op = case.op("positions")
    if not isinstance(op, Sinusoid):
        return

    places = op.positions_of_rows[:, None]
    columns = np.arange(op.d_model)
    pairs = columns // 2
    d = op.d_model
    exponents = {
        "its exponent counts columns, and not pairs of them": columns / d,
        "its exponent counts columns twice, and not pairs of them": 2 * columns / d,
        "its exponent is 4i / d and not 2i / d": 4 * pairs / d,
        "its exponent is i / d and not 2i / d": pairs / d,
        "its exponent has the other sign, so that waves grow shorter": -2 * pairs / d,
    }
    for said, exponent in exponents.items():
        waves = wrong.By(partial(waves_of, places, exponent))
        yield Plant(case.put("positions", waves), said)

    angles = places * 10000.0 ** (-2 * pairs / d)
    for wave, said in ((np.sin, "sine"), (np.cos, "cosine")):
        yield Plant(case.put("positions", wrong.By(partial(wave, angles))), f"every column is a {said}")


def waves_of(places: Array, exponent: Array) -> Array:
    """Sines in even columns and cosines in odd ones, of angles place / 10000^exponent."""
    angles = places * 10000.0**-exponent
    is_even = np.arange(len(exponent)) % 2 == 0
    return np.where(is_even, np.sin(angles), np.cos(angles))


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
"""Factors from which another one is sought."""


def scaled_embeddings(_: Add, factor: float) -> wrong.By:
    return wrong.By(lambda embeddings, positions: factor * embeddings + positions)


def scaled_positions(_: Add, factor: float) -> wrong.By:
    return wrong.By(lambda embeddings, positions: embeddings + factor * positions)


of_embeddings = about("X", meant="sinusoidal")

EMBEDDED = (
    of_embeddings(
        "positions-missing",
        "positions are not added to the embeddings",
        "attend over embeddings + positions",
        ADDED.without(),
        why="The embeddings go into attention before the line that adds positions.",
        example="X = embeddings",
    ),
)

FITTED_EMBEDDED = (
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
        ADDED.fitted(scaled_positions, SUMS, spoken_after("positions are multiplied by ")),
        ADDED.fitted(scaled_embeddings, SUMS, spoken_after("embeddings are multiplied by ")),
        fitted=True,
        why="The original transformer multiplies embeddings by √d_model before it adds positions.",
        example="X = embeddings * np.sqrt(d_model) + positions",
    ),
)

"""Readers of a tensor's numbers: rows, a word, drawn, or from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnctl.base.setting import Choice, Form, ListOf, Setting
from attnctl.base.values import FILE_NAME, SEED, WORD, Json, Reader, refuse, words
from attnctl.inputs.config.settings import IDENTITY, NONE, STANDARD_NORMAL, FromFile, Random, Weights
from attnctl.inputs.config.tables import BY_TOKEN, MATRIX, VECTOR
from attnctl.math.axes import parse_axes
from attnctl.math.names import OUTPUT, TABLE, W_O, Name, shown

ELSEWHERE = "{random: {seed: 1}} or {file: weights.npz, name: …}"
HOW_TO_DRAW = (
    Setting("seed", SEED, "Its own seed; left out, the seed of the run."),
    Setting(
        "distribution",
        words("normal", "standard_normal", "uniform"),
        "normal is N(0, 1/d_model), standard_normal N(0, 1), uniform [0, 1).",
    ),
    Setting(
        "layout",
        words("fused", "per_head"),
        "fused draws W_Q whole and splits it into heads; per_head draws head after head.",
    ),
    Setting(
        "stream",
        words("named", "numpy_legacy"),
        "named gives every tensor a stream of its own; numpy_legacy is one np.random.seed for all.",
    ),
)


def how_to_draw(left_out: Random) -> Form:
    """The form of a draw; what the file leaves out is as in `left_out`."""
    return Form(
        "RandomOptions", "How to draw a tensor.", HOW_TO_DRAW, lambda given: replace(left_out, **given)
    )


def drawn_form(left_out: Random) -> Form:
    """{random: …}."""
    keys = [Setting("random", how_to_draw(left_out), "Numbers drawn from a seed.")]
    return Form("RandomSource", "Drawn.", keys, lambda given: given["random"], required=["random"])


FROM_FILE = Form(
    "FileSource",
    "Read from a .npz, .npy or .safetensors file.",
    [
        Setting("file", FILE_NAME, "The file; a relative path counts from the folder of the config."),
        Setting("name", WORD, "The array in it; may be left out where it holds just one."),
    ],
    lambda given: FromFile(given["file"], given.get("name")),
    required=["file"],
)


def source(rows: Reader, *known: str, expected: str, left_out: Random = Random()) -> Choice:  # noqa: B008
    """Rows of numbers, one of the `known` words, or where to get the numbers."""
    word, random = words(*known), drawn_form(left_out)
    forms = [rows, *([word] if known else []), random, FROM_FILE]

    def pick(value: Any) -> Reader | None:
        match value:
            case list():
                return rows
            case str():
                return word if value in known else None
            case {"random": _}:
                return random
            case {"file": _}:
                return FROM_FILE
        return None

    return Choice(pick, forms, f"{expected}, {ELSEWHERE}")


MATRIX_ROWS = "a matrix; write rows like [[1, 0], [0, 1]]"
TENSOR = source(MATRIX, IDENTITY, expected=f"{MATRIX_ROWS}, identity")
OUTPUT_TENSOR = source(MATRIX, IDENTITY, NONE, expected=f"{MATRIX_ROWS}, identity, none")
OFFSETS = source(VECTOR, expected="a vector; write numbers like [0.1, 0.2]")


def or_by_head(whole: Choice, one: Reader, levels: int) -> Choice:
    """The array, or that of each head, as a run shows it: a list around what has so many levels."""
    each_head = ListOf(one, least=1)

    def pick(value: Any) -> Reader | None:
        return each_head if depth_of(value) > levels else whole.pick(value)

    return Choice(pick, [*whole.forms, each_head], whole.expected)


def depth_of(value: Any) -> int:
    """The number of lists around the first number."""
    return 1 + depth_of(value[0]) if isinstance(value, list) and value else 0


TENSOR_BY_HEAD = or_by_head(TENSOR, MATRIX, 2)
OFFSETS_BY_HEAD = or_by_head(OFFSETS, VECTOR, 1)

ROWS_OR_SOURCE = source(
    MATRIX,
    IDENTITY,
    expected="embeddings; write {token: [0.1, 0.2], …}, rows in the order of vocab, identity",
    left_out=STANDARD_NORMAL,
)


def pick_embeddings(value: Any) -> Reader | None:
    """A mapping of tokens, or one of the forms of any matrix."""
    if not isinstance(value, dict):
        return ROWS_OR_SOURCE.pick(value)
    # With a row behind it, random or file is the name of a token.
    elsewhere = (name in value and not isinstance(value[name], list) for name in ("random", "file"))
    return ROWS_OR_SOURCE.pick(value) if any(elsewhere) else BY_TOKEN


EMBEDDINGS = Choice(pick_embeddings, [BY_TOKEN, *ROWS_OR_SOURCE.forms], ROWS_OR_SOURCE.expected)


def weights(given: Json) -> Weights:
    """The weights of a mapping; those that are written by head become the per-head form."""
    more = {name: given.pop(name) for name in ("heads", "random", "file") if name in given}
    by_head = {name: value for name, value in given.items() if isinstance(value, tuple)}
    if by_head and "heads" in more:
        refuse(((name,), "by head, and there is heads, too; write it in one of them") for name in by_head)
    if by_head:
        count = max(map(len, by_head.values()))
        more["heads"] = tuple(
            {name: value[head] for name, value in by_head.items() if head < len(value)}
            for head in range(count)
        )
    return Weights({name: given[name] for name in given if name not in by_head}, **more)


HEADS = {"head": "heads", "kv_head": "kv_heads"}


def in_words(layout: str) -> str:
    """d_model rows of heads · d_k numbers."""
    *rows, columns = (
        " · ".join(HEADS.get(axis, shown((axis,))) for axis in axes) for axes in parse_axes(layout)
    )
    return "".join(f"{each} rows of " for each in rows) + f"{columns} numbers"


def added_to(row: Name) -> str:
    if row.drawn:
        return ""
    return f", added to {'the ' if row.of == OUTPUT else ''}{row.of}"


def of_one_head(row: Name) -> Setting:
    """A weight in the mapping of one head."""
    layout = row.own.partition(" ")[2]
    return Setting(row.name, TENSOR if row.drawn else OFFSETS, f"{in_words(layout)}{added_to(row)}.")


def of_all_heads(row: Name) -> Setting:
    """A weight in the mapping of all."""
    if row.is_split:
        reader = TENSOR_BY_HEAD if row.drawn else OFFSETS_BY_HEAD
    else:
        reader = OUTPUT_TENSOR if row.name == W_O else TENSOR if row.drawn else OFFSETS
    fused = "Fused: " if row.is_split and row.drawn else ""
    return Setting(row.name, reader, f"{fused}{in_words(row.side_by_side)}{added_to(row)}{row.more}.")


ROWS = sorted((row for row in TABLE.values() if row.is_weight), key=lambda row: not row.drawn)
"""The weights: matrices, then biases."""

HEAD = Form("HeadForm", "The weights of one head.", [of_one_head(row) for row in ROWS if row.is_split])
WEIGHTS = Form(
    "WeightsForm",
    "The weights that are given; the others are drawn.",
    [
        Setting("W", TENSOR, "One matrix for Q, K and V."),
        *map(of_all_heads, ROWS),
        Setting("heads", ListOf(HEAD), "W_Q, W_K and W_V head by head, instead of fused."),
        Setting("random", how_to_draw(Random()), "How to draw what is not given."),
        Setting(
            "file", WORD, "An .npz or .safetensors file (a dump, say) that holds them under these names."
        ),
    ],
    weights,
)

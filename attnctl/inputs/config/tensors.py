"""Arrays in a config: rows, matrices, vocabularies, masks; a tensor drawn or from a file; the weights.

A matrix is read a row at a time in C; only a row that this refuses is read cell by cell, to say
which cell it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf, isfinite
from typing import Any

from attnctl.base.namedtuple import NamedTuple
from attnctl.base.setting import Form, Setting, choice, list_of
from attnctl.base.values import (
    FILE_NAME,
    SEED,
    WORD,
    BadValueError,
    Json,
    Plain,
    Reader,
    each,
    every,
    read_real,
    read_switch,
    read_word,
    refuse,
    short_value,
    unfit,
    whole_number,
    words,
)
from attnctl.inputs.config.settings import IDENTITY, NONE, STANDARD_NORMAL, FromFile, Random, Weights
from attnctl.math.axes import parse_axes
from attnctl.math.names import OUTPUT, TABLE, W_O, Name, shown_axis

Row = list[float]

ROW = json.JSONDecoder(parse_int=float)
"""JSON's numbers are also YAML's, so a row of them is read in one call."""

MINUS_INFINITY = ("-.inf", "-.Inf", "-.INF", "-inf", "-Infinity")


def read_vector(value: Any) -> Row:
    if not isinstance(value, list):
        raise unfit(value, "is not a list of numbers; write one like [0.1, 0.2]")
    return quick_row(value) or each(value, read_real)


def quick_row(cells: list[Any]) -> Row | None:
    """The row where every cell is plainly a finite number; None where one needs a closer look."""
    kinds = set(map(type, cells))
    row: list[Any] = cells
    try:
        if kinds == {Plain}:
            row = ROW.decode(f"[{','.join(cells)}]")
        elif kinds <= {int, float}:
            row = list(map(float, cells))
    except (ValueError, OverflowError, RecursionError):  # one word may be as odd as `1, [[[[…`
        return None

    # Types and length: a Plain may also be `true`, or in block style `1, 2`.
    are_numbers = set(map(type, row)) == {float}
    if not are_numbers or len(row) != len(cells) or not all(map(isfinite, row)):
        return None
    return row


def matrix_of(read_row: Callable[[Any], Row], cell: Json) -> Reader:
    """Rows that are all as long as the first; `cell` is the JSON Schema of one of their numbers."""

    def read(value: Any) -> list[Row]:
        if not isinstance(value, list):
            raise unfit(value, "is not a matrix; write its rows, like [[1, 0], [0, 1]]")
        rows = each(value, read_row)
        require_one_length(dict(enumerate(rows)))
        return rows

    row = {"type": "array", "minItems": 1, "items": cell}
    return Reader(read, {"type": "array", "minItems": 1, "items": row})


def require_one_length(rows: dict[Any, Row]) -> None:
    if not rows:
        return
    start, first = next(iter(rows.items()))
    expected = f"row {short_value(start)} has {len(first)}; make them as long"
    others = {place: row for place, row in rows.items() if len(row) != len(first)}
    refuse(((place,), f"a row of {len(row)}, but {expected}") for place, row in others.items())


def read_by_token(value: dict[Any, Any]) -> dict[str, Row]:
    tokens = every(((key, key) for key in value), read_token)
    rows = dict(zip(tokens, every(value.items(), read_vector), strict=True))
    require_one_length(rows)
    return rows


def row_of(read_cell: Callable[[Any], float]) -> Callable[[Any], Row]:
    def read(value: Any) -> Row:
        if not isinstance(value, list):
            raise unfit(value, "is not a list of numbers; write one like [1, 0]")
        return each(value, read_cell)

    return read


def may_attend(value: Any) -> int:
    """A cell of a mask: 1 or true may attend, 0 or false may not."""
    for read in (read_real, read_switch):
        try:
            number = read(value)
        except BadValueError:
            continue
        if number in (0, 1):
            return int(number)
    raise unfit(value, "is neither 0 nor 1; 1 (or true) may attend, 0 (or false) may not")


def read_bias_cell(value: Any) -> float:
    """A cell of a bias: a finite number, or -inf, which hides."""
    if value == -inf or (isinstance(value, str) and value in MINUS_INFINITY):
        return -inf
    return read_real(value)


def tokens_by_id(value: dict[Any, Any]) -> tuple[str, ...]:
    """The tokens of a mapping {token: id}, in the order of their ids, which are 0, 1, …, each once."""
    every(((token, token) for token in value), read_token)
    numbers = every(value.items(), whole_number(0))
    ids = dict(zip(value, numbers, strict=True))

    last = len(ids) - 1
    known = f"{len(ids)} tokens have the ids 0 to {last}; write one of those"
    refuse(((token,), f"id {number}, but {known}") for token, number in ids.items() if number > last)
    refuse(
        ((token,), f"id {number} again, after {short_value(first)}; a token has an id of its own")
        for token, number, first in repeats(ids.items())
    )
    return tuple(sorted(ids, key=ids.__getitem__))


def read_vocabulary(value: Any) -> tuple[str, ...]:
    """The tokens in the order of their ids, from a list or from a mapping {token: id}."""
    match value:
        case list():
            tokens = each(value, read_token)
            refuse(
                ((entry,), f"{short_value(token)} again, after entry {first}; a token has one id")
                for entry, token, first in repeats(enumerate(tokens))
            )
            return tuple(tokens)
        case dict():
            return tokens_by_id(value)
    raise unfit(value, "is not a vocabulary; write [I, love, AI] or {I: 0, love: 1, AI: 2}")


def read_token(value: Any) -> str:
    if value == "":
        raise BadValueError("an empty token; write a word, or leave it out")
    return read_word(value)


class RepeatedValue(NamedTuple):
    """A value that came before, by place."""

    place: Any
    value: Any
    first: Any
    """Where it was first."""


def repeats(values: Iterable[tuple[Any, Any]]) -> Iterator[RepeatedValue]:
    """Each value that came before."""
    first_place: dict[Any, Any] = {}
    for place, value in values:
        if value in first_place:
            yield RepeatedValue(place, value, first_place[value])
        else:
            first_place[value] = place


NUMBERS: Json = {"type": "array", "minItems": 1, "items": {"type": "number"}}
VECTOR = Reader(read_vector, NUMBERS)
MATRIX = matrix_of(read_vector, {"type": "number"})
MASK = matrix_of(row_of(may_attend), {"enum": [0, 1, True, False]})
BIAS = matrix_of(row_of(read_bias_cell), {"anyOf": [{"type": "number"}, {"enum": list(MINUS_INFINITY)}]})
BY_TOKEN = Reader(read_by_token, {"type": "object", "additionalProperties": NUMBERS})
TOKENS = {"type": "array", "minItems": 1, "items": WORD.schema, "uniqueItems": True}
IDS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer", "minimum": 0}}
VOCABULARY = Reader(read_vocabulary, {"oneOf": [TOKENS, IDS]})

# --- tensors: rows, a word, drawn, or from a file ---

ELSEWHERE = "{random: {seed: 1}} or {file: weights.npz, name: …}"
HOW_TO_DRAW = (
    Setting("seed", SEED, "Its own seed; default: the seed of the run."),
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


def how_to_draw(usual: Random) -> Form:
    """The form of a draw; what the file leaves out is as usual."""
    return Form("RandomOptions", "How to draw a tensor.", HOW_TO_DRAW, lambda keys: replace(usual, **keys))


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


def source(rows: Reader, *known: str, expected: str, usual: Random = Random()) -> Reader:  # noqa: B008
    """Rows of numbers, one of the `known` words, or where to get the numbers."""
    word = words(*known)
    keys = [Setting("random", how_to_draw(usual), "Numbers drawn from a seed.")]
    random = Form("RandomSource", "Drawn.", keys, lambda given: given["random"], required=["random"])
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

    return choice(pick, forms, f"{expected}, {ELSEWHERE}")


MATRIX_ROWS = "a matrix; write rows like [[1, 0], [0, 1]]"
TENSOR = source(MATRIX, IDENTITY, expected=f"{MATRIX_ROWS}, identity")
OUTPUT_TENSOR = source(MATRIX, IDENTITY, NONE, expected=f"{MATRIX_ROWS}, identity, none")
OFFSETS = source(VECTOR, expected="a vector; write numbers like [0.1, 0.2]")


def or_by_head(whole: Reader, one: Reader, levels: int) -> Reader:
    """The array, or that of each head, as a run shows it: a list around what has so many levels."""
    each_head = list_of(one, least=1)
    return choice(lambda value: each_head if depth_of(value) > levels else whole, [*whole.forms, each_head])


def depth_of(value: Any) -> int:
    """The number of lists around the first number."""
    return 1 + depth_of(value[0]) if isinstance(value, list) and value else 0


TENSOR_BY_HEAD = or_by_head(TENSOR, MATRIX, 2)
OFFSETS_BY_HEAD = or_by_head(OFFSETS, VECTOR, 1)

ROWS_OR_SOURCE = source(
    MATRIX,
    IDENTITY,
    expected="embeddings; write {token: [0.1, 0.2], …}, rows in the order of vocab, identity",
    usual=STANDARD_NORMAL,
)


def pick_embeddings(value: Any) -> Reader:
    """A mapping of tokens, or one of the forms of any matrix."""
    # With a row behind it, random or file is the name of a token.
    by_token = isinstance(value, dict) and not any(
        name in value and not isinstance(value[name], list) for name in ("random", "file")
    )
    return BY_TOKEN if by_token else ROWS_OR_SOURCE


EMBEDDINGS = choice(pick_embeddings, [BY_TOKEN, *ROWS_OR_SOURCE.forms])


def weights(given: Json) -> Weights:
    """The weights of a mapping; those that are written by head become the per-head form."""
    more = {name: given.pop(name) for name in ("heads", "random", "file") if name in given}
    by_head = {name: value for name, value in given.items() if isinstance(value, tuple)}
    if by_head and "heads" in more:
        refuse(((name,), "by head, and there is heads, too; write it in one of them") for name in by_head)

    def of_head(head: int) -> dict[str, Any]:
        return {name: value[head] for name, value in by_head.items() if head < len(value)}

    if by_head:
        count = max(map(len, by_head.values()))
        more["heads"] = tuple(map(of_head, range(count)))
    tensors = {name: value for name, value in given.items() if name not in by_head}
    return Weights(tensors, **more)


HEADS = {"head": "heads", "kv_head": "kv_heads"}


def layout_in_words(layout: str) -> str:
    """d_model rows of heads · d_k numbers."""
    *rows, columns = (
        " · ".join(HEADS.get(axis, shown_axis((axis,))) for axis in axes) for axes in parse_axes(layout)
    )
    return "".join(f"{row} rows of " for row in rows) + f"{columns} numbers"


def added_to(row: Name) -> str:
    return "" if row.drawn else f", added to {'the ' if row.of == OUTPUT else ''}{row.of}"


def of_all_heads(row: Name) -> Setting:
    if row.is_split:
        reader = TENSOR_BY_HEAD if row.drawn else OFFSETS_BY_HEAD
    elif row.name == W_O:
        reader = OUTPUT_TENSOR
    else:
        reader = TENSOR if row.drawn and len(row.axes) > 1 else OFFSETS
    form = "Fused: " if row.is_split and row.drawn else ""
    return Setting(row.name, reader, f"{form}{layout_in_words(row.side_by_side)}{added_to(row)}{row.more}.")


ROWS = sorted((row for row in TABLE.values() if row.is_weight), key=lambda row: not row.drawn)
"""The weights: matrices, then biases."""

OF_ONE_HEAD = [
    (row, f"{layout_in_words(row.own.partition(' ')[2])}{added_to(row)}.") for row in ROWS if row.is_split
]
HEAD = Form(
    "HeadForm",
    "The weights of one head.",
    [Setting(row.name, TENSOR if row.drawn else OFFSETS, said) for row, said in OF_ONE_HEAD],
)
WEIGHTS = Form(
    "WeightsForm",
    "The weights that are given; the others are drawn.",
    [
        Setting("W", TENSOR, "One matrix for Q, K and V."),
        *map(of_all_heads, ROWS),
        Setting("heads", list_of(HEAD), "W_Q, W_K and W_V head by head, instead of fused."),
        Setting("random", how_to_draw(Random()), "How to draw what is not given."),
        Setting(
            "file", WORD, "An .npz or .safetensors file (a dump, say) that holds them under these names."
        ),
    ],
    weights,
)

"""Readers of a tensor's numbers: rows, a word, drawn, or from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnctl.base.setting import Choice, Form, ListOf, Setting
from attnctl.base.values import FILE_NAME, SEED, WORD, Json, Reader, refuse, words
from attnctl.inputs.config.settings import IDENTITY, NONE, STANDARD_NORMAL, FromFile, Random, Weights
from attnctl.inputs.config.tables import BY_TOKEN, MATRIX, VECTOR

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


HEAD = Form(
    "HeadForm",
    "The weights of one head.",
    [
        Setting("W_Q", TENSOR, "d_model rows of d_k numbers."),
        Setting("W_K", TENSOR, "d_model rows of d_k numbers."),
        Setting("W_V", TENSOR, "d_model rows of d_v numbers."),
        Setting("b_Q", OFFSETS, "d_k numbers, added to Q."),
        Setting("b_K", OFFSETS, "d_k numbers, added to K."),
        Setting("b_V", OFFSETS, "d_v numbers, added to V."),
    ],
)
WEIGHTS = Form(
    "WeightsForm",
    "The weights that are given; the others are drawn.",
    [
        Setting("W", TENSOR, "One matrix for Q, K and V."),
        Setting(
            "W_Q",
            TENSOR_BY_HEAD,
            "Fused: d_model rows of heads · d_k numbers, the heads side by side; or rows for each head.",
        ),
        Setting("W_K", TENSOR_BY_HEAD, "Fused: d_model rows of kv_heads · d_k numbers."),
        Setting("W_V", TENSOR_BY_HEAD, "Fused: d_model rows of kv_heads · d_v numbers."),
        Setting(
            "W_O", OUTPUT_TENSOR, "heads · d_v rows of d_model numbers; none leaves the projection out."
        ),
        Setting("b_Q", OFFSETS_BY_HEAD, "heads · d_k numbers, added to Q."),
        Setting("b_K", OFFSETS_BY_HEAD, "kv_heads · d_k numbers, added to K."),
        Setting("b_V", OFFSETS_BY_HEAD, "kv_heads · d_v numbers, added to V."),
        Setting("b_O", OFFSETS, "d_model numbers, added to the output."),
        Setting("heads", ListOf(HEAD), "W_Q, W_K and W_V head by head, instead of fused."),
        Setting("random", how_to_draw(Random()), "How to draw what is not given."),
        Setting(
            "file", WORD, "An .npz or .safetensors file (a dump, say) that holds them under these names."
        ),
    ],
    weights,
)

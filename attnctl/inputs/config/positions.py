"""How a config writes positions."""

from __future__ import annotations

from typing import Any

from attnctl.base.forms import Choice, Form, word_or_mapping
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import MOST, POSITIVE, SWITCH, BadValueError, Json, Reader, whole, words
from attnctl.base.words import one_of
from attnctl.inputs.config.settings import NONE, SINUSOIDAL
from attnctl.inputs.config.tables import MATRIX


def even(value: Any) -> int:
    """An even number of dimensions, 2 or more."""
    number: int = whole(2, MOST - 1)(value)
    if number % 2:
        raise BadValueError(
            f"{number} is odd; dimensions turn in pairs, so write {number - 1} or {number + 1}"
        )
    return number


def rotary(given: Json) -> Any:
    """Rotary positions with these options."""
    from attnctl.math.derivation import Rotary

    return Rotary(**given)


ROPE, ALIBI = "rope", "alibi"
ROPE_OPTIONS = Form(
    "RopeOptions",
    "Rotary positions for Q and K.",
    [
        Setting(
            "theta",
            POSITIVE,
            "The base of the rotary angles.",
            flag=Flag("--theta", more="Left out, 10000."),
        ),
        Setting(
            "dims",
            Reader(even, {"type": "integer", "minimum": 2, "multipleOf": 2}, "N"),
            "How many of a head's dimensions turn with rotary positions; left out, all.",
            flag=Flag("--rotary-dims"),
        ),
        Setting(
            "interleaved",
            SWITCH,
            "Rotary pairs are neighbours (GPT-J), not a half apart (Llama).",
            flag=Flag("--interleaved"),
        ),
    ],
    rotary,
)
POSITION_WORDS = (NONE, SINUSOIDAL, ROPE, ALIBI)
POSITION_WORD = Reader(
    lambda word: rotary({}) if word == ROPE else str(word), words(*POSITION_WORDS).schema
)
POSITION_FORM = Form(
    "PositionsForm",
    "Positions that have options.",
    [
        Setting(ROPE, ROPE_OPTIONS, "Turn Q and K by an angle that grows with the position."),
        Setting("learned", MATRIX, "A learned table: a row of d_model numbers for each position."),
    ],
    lambda given: given.popitem()[1],
    just_one=True,
)
POSITIONS = Choice(
    word_or_mapping(POSITION_WORDS, POSITION_WORD, POSITION_FORM),
    [POSITION_WORD, POSITION_FORM],
    f"a kind of positions; write {one_of(POSITION_WORDS)}, or {{learned: [[0.1, 0.2], …]}}",
)

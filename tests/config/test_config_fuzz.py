"""Whatever bytes come in: settings, or an AttnError with a line for each problem."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from attnctl.base.errors import AttnError
from attnctl.inputs.config.load import parse_config

HERE = Path(__file__).parent
SEEDS = [path.read_bytes() for path in sorted(HERE.glob("*/*.yaml"))]
PIECES = [
    *"[]{}:,-?&*!|>'\"%@`#\n\t ~é\ufeff\x00\x85\ud7ff",
    *(
        "a: ",
        "- ",
        "\n  ",
        "heads: 2\n",
        "embeddings: ",
        "weights: {W_Q: ",
        "&a ",
        "*a",
        "[[1, 0]]",
        "---\n",
    ),
    *("random: ", "rules: ", "- window: ", "null", ".inf", "1e5", "!!str ", '"\\x00"'),
]

patient = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def answer(raw):
    """Hold what comes of these bytes to the promise."""
    made, problems = outcome(raw)
    assert all(problem.startswith(("x.yaml", "…")) and problem.isprintable() for problem in problems)
    if made is None:
        assert problems
    else:
        assert made.where(("heads",)).startswith("x.yaml:")


def outcome(raw):
    try:
        return parse_config(raw, "x.yaml", Path()), ()
    except AttnError as error:
        return None, error.problems


@patient
@given(st.binary())
def test_any_bytes(raw):
    answer(raw)


@patient
@given(st.lists(st.sampled_from(PIECES)).map("".join))
@example("!<\x85> a")
def test_anything_that_looks_like_yaml(text):
    answer(text.encode())


@patient
@given(st.sampled_from(SEEDS), st.integers(0, 2000), st.integers(0, 40), st.sampled_from(PIECES))
def test_configs_with_a_piece_changed(raw, at, length, piece):
    at = at % (len(raw) + 1)
    answer(raw[:at] + piece.encode() + raw[at + length :])


@pytest.mark.slow
@settings(patient, max_examples=5_000)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 40), st.sampled_from(PIECES))),
)
def test_configs_with_many_pieces_changed(raw, changes):
    for start, length, piece in changes:
        at = start % (len(raw) + 1)
        raw = raw[:at] + piece.encode() + raw[at + length :]
    answer(raw)

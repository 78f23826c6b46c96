"""What the headline says was drawn, and from which seed."""

import pytest

from attnctl import run
from attnctl.drawing.show.headline import facts

SEEDS = [
    ({}, ["seed 0"]),
    ({"seed": 3, "weights": {"W_O": "none"}}, ["seed 3"]),
    ({"embeddings": {"a": [1, 2]}, "d_model": 2}, ["seed 0"]),
    ({"embeddings": {"a": [1, 2]}, "weights": {"random": {"seed": 1}}}, ["seed 1"]),
    ({"weights": {"random": {"seed": 1}}}, ["seeds 0 and 1"]),
    ({"embeddings": {"random": {"seed": 4}}, "weights": {"W": "identity"}}, ["seed 4"]),
    (
        {
            "embeddings": "identity",
            "d_model": 1,
            "weights": {"W_Q": [[1]], "W_K": {"random": {"seed": 2}}, "W_V": [[1]]},
        },
        ["seed 2"],
    ),
    (
        {"embeddings": {"a": [1]}, "d_model": 1, "weights": {"heads": [{"W_Q": [[1]], "W_K": [[1]]}]}},
        ["seed 0"],
    ),
    ({"embeddings": {"a": [1]}, "d_model": 1, "weights": {"W": [[2]], "W_O": "none"}}, []),
]


@pytest.mark.parametrize(("settings", "said"), SEEDS, ids=str)
def test_what_was_drawn_and_from_what(settings, said):
    trace = run("a", **settings)
    assert [fact for fact in facts(trace) if "seed" in fact] == said
    assert said or not any("drawn" in step.formula for step in trace.steps.values())

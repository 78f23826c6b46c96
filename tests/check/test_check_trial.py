"""A trial: programs with planted mistakes, written without the catalogue; how many of them are named."""

import pytest
from trial.trial import Program, one_in, programs, table, that_save_scores, unchanged, verdict

PARTS = [
    pytest.param(61, marks=pytest.mark.slow),
    pytest.param(12, marks=pytest.mark.slow),
    pytest.param(4, marks=pytest.mark.whole),
]
"""One program in so many is tried: all of them take an hour."""

EXACT = ("float64", "float32")

LEAST_NAMED = {"exact": 0.90, "coarse": 0.60}
"""Share of the programs that must be named, in types with many digits and with few."""


def tried(chosen):
    """What came of each of these programs, and the lines that say so where it was not named."""
    outcomes, lines = [], []
    for program in chosen:
        word, report = verdict(program)
        outcomes.append((program.group, word, program.dtype in EXACT))
        if word not in ("named", "changes nothing"):
            lines.append(f"{word}: {program}: {report.first} {report.mistake}")
    return outcomes, lines


def share_named(outcomes, exact):
    """Of the programs that do something wrong."""
    words = [word for _, word, digits in outcomes if digits is exact and word != "changes nothing"]
    return words.count("named") / len(words)


def held_to_the_bars(outcomes, lines):
    for exact in (True, False):
        kind = "exact" if exact else "coarse"
        part = [(group, word) for group, word, digits in outcomes if digits is exact]
        print(f"\n{kind}\n{table(part)}")
        assert share_named(outcomes, exact) >= LEAST_NAMED[kind], "\n".join(lines)
    words = {(word, digits) for _, word, digits in outcomes}
    assert not words & {("misnamed", True), ("misnamed", False), ("acquitted", True)}, "\n".join(lines)


@pytest.mark.parametrize("every", PARTS)
def test_a_part_of_the_trial_is_named(every):
    held_to_the_bars(*tried(one_in(every, programs())))


@pytest.mark.parametrize(
    "every", [pytest.param(18, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.whole)]
)
def test_what_is_called_scores_hides_no_mistake(every):
    held_to_the_bars(*tried(one_in(every, that_save_scores())))


NAMELESS = {
    "of the row's length",
    "epsilon 1e-2",
    "epsilon in a kernel",
    "dropout 0.1",
    "dropout 0.5",
    "L2",
}
"""Those that the catalogue does not have, and those that rounding hides in float32."""

FIRST = {
    (program.group, program.words): program
    for program in reversed(list(programs()))
    if program.dtype in EXACT and program.words not in NAMELESS
}


@pytest.mark.sample(20)
@pytest.mark.parametrize("program", FIRST.values(), ids=[f"{group}: {words}" for group, words in FIRST])
def test_each_mistake_is_named(program):
    word, report = verdict(program)
    assert word == "named", report.findings


def test_a_trial_has_two_hundred_mistakes():
    assert len({(each.group, each.words) for each in programs()}) >= 200
    assert len({(each.group, each.words, each.family, each.kind) for each in programs()}) >= 800


def test_what_changes_nothing_is_told_from_what_does():
    """A verdict of the trial itself: the same program twice, and one that is 1 % off."""
    import numpy as np

    right = {"output": np.linspace(1, 2, 12).astype(np.float32)}
    assert unchanged(dict(right), right, "float32")
    assert not unchanged({"output": right["output"] * np.float32(1.01)}, right, "float32")
    assert str(Program("scale", "no factor", "kernel", "plain", "ends", "float32")).startswith("scale: no")

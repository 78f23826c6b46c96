"""attnctl mutants: which wrong kernels a criterion lets pass."""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from attnctl.base import workers
from attnctl.base.workers import Engine
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import plain_text
from attnctl.evidence.precision import round_in
from attnctl.mistakes import CATALOGUE
from attnctl.verbs.mutants import kernel
from attnctl.verbs.mutants.survey import DRAWS, TYPES, Criterion, Inputs, hold, survey
from attnctl.verbs.mutants.view import lines_with_code

LOOSE = ["--rtol", "1e-2", "--atol", "1e-2"]

RIGHT = np.array([[1.0, -2.0], [0.5, 0.0]])


def off(by):
    return RIGHT + np.array(by)


@pytest.mark.parametrize(
    ("criterion", "found", "passes", "outside"),
    [
        (Criterion(0.0, 0.1), RIGHT + 0.09, True, 0.0),
        (Criterion(0.0, 0.1), off([[0.11, 0], [0, 0]]), False, 0.25),
        (Criterion(0.1), RIGHT * 1.09, True, 0.0),
        (Criterion(0.1), RIGHT * [[1, 1], [1.11, 1]], False, 0.25),
        (Criterion(0.0, 0.1, ratio=0.75), off([[9, 0], [0, 0]]), True, 0.25),
        (Criterion(0.0, 0.1, ratio=0.75), off([[9, 0], [0, 9]]), False, 0.5),
        (Criterion(cosine=0.999), RIGHT * 7, True, 0.75),
        (Criterion(cosine=0.0), -RIGHT, False, 0.75),
        (Criterion(cosine=0.1), RIGHT * 0, False, 0.75),
        (Criterion(0.0, 9.0), RIGHT * np.nan, False, 1.0),
        (Criterion(0.0, 9.0), RIGHT[:1], False, 1.0),
    ],
)
def test_what_passes(criterion, found, passes, outside):
    outcome = hold("it", (found,), (RIGHT,), criterion)
    assert outcome.passes is passes
    assert (
        outcome.outside == (1.0 if found.shape != RIGHT.shape else outside) or criterion.cosine is not None
    )


def test_how_wrong_it_is():
    outcome = hold("it", (off([[0, 0.5], [0, 0]]),), (RIGHT,), Criterion(0.0, 0.1))
    assert (outcome.error, outcome.relative, outcome.outside) == (0.5, 0.25, 0.25)


def found(workplace, *words, code=1):
    done = workplace.run("mutants", "--json", *words)
    assert (done.returncode, done.stderr) == (code, b"")
    return json.loads(done.stdout)


def names(report):
    return {survivor["name"] for survivor in report["survivors"]}


def test_a_loose_tolerance_lets_wrong_kernels_pass(workplace):
    report = found(workplace, *LOOSE)
    assert {"softmax-plus-one", "softmax-epsilon", "scale-other-slight"} <= names(report)
    assert {survivor["mistake"] for survivor in report["survivors"]} <= {each.name for each in CATALOGUE}
    assert all(outcome["passes"] for outcome in report["right"])
    assert report["criterion"] == {"rtol": 0.01, "atol": 0.01}


@pytest.mark.slow
def test_what_it_says_tells_them_apart_does(workplace):
    """The commands that are printed are run: right programs pass, and what they tell fails."""
    report = found(workplace, *LOOSE, "--draw", "rand", "--dtype", "bfloat16", "--shape", "2,2,32,16")
    survivors, told = names(report), report["told_apart"]
    assert {name for command in told for name in command["survivors"]} == survivors
    assert "--dtype bfloat16" in told[0]["command"]  # as asked, as long as that tells more
    for command in told:
        words = shlex.split(command["command"])
        assert words[:2] == ["attnctl", "mutants"]
        done = workplace.run(*words[1:], "--json")
        again = json.loads(done.stdout)
        assert not names(again) & {*command["survivors"]}
        assert all(outcome["passes"] for outcome in again["right"])


@pytest.mark.parametrize("backward", [[], ["--backward"]])
def test_a_tight_one_on_hard_inputs_lets_none_pass(workplace, backward):
    atol = "2e-3" if backward else "3e-5"
    shape = ["--shape", "2,4,37,16", "--draw", "activations"]
    report = found(workplace, "--rtol", "0", "--atol", atol, *shape, *backward, code=0)
    assert report["survivors"] == []
    assert report["mutants"] > 90


def test_a_cosine_is_a_criterion(workplace):
    report = found(workplace, "--cosine", "0.99", "--shape", "1,2,5,4", "--backward")
    assert report["criterion"] == {"cosine": 0.99}
    assert all(outcome["passes"] for outcome in report["right"])


def test_a_new_mistake_is_a_new_mutant(monkeypatch):
    """An entry of the catalogue needs no more than its lines; what is of a layer is none."""
    mine = replace(CATALOGUE[0], name="scale-of-mine", example="scaled_scores = scores / 3", slight="")
    other = replace(CATALOGUE[0], name="norm-of-mine", example="X = X / 2")
    monkeypatch.setattr(kernel, "CATALOGUE", (*CATALOGUE, mine, other))
    made, left_out = kernel.make_mutants()
    (mine,) = [mutant for mutant in made if mutant.name == "scale-of-mine"]
    assert "    # The mistake:\n    scaled_scores = scores / 3\n" in mine.text()
    assert left_out["norm-of-mine"] == "it is in X"


def test_the_table_begins_with_the_conclusion(workplace):
    done = workplace.run("mutants", *LOOSE)
    first, second, *rest = done.stdout.decode().splitlines()
    assert first.endswith("pass: --rtol 0.01 --atol 0.01, float32, 2 × 4 × 128 × 64 of randn.")
    assert second == "All 6 right programs pass."
    assert any("softmax-plus-one" in line for line in rest)
    assert f"1 tells {first.split()[0]} of them apart, and right programs pass it:" in rest
    assert rest[-1].startswith("  attnctl mutants --rtol 0 --atol ")
    assert "nothing tried" not in done.stdout.decode()  # the command tells each of them


def test_a_criterion_that_right_programs_fail_is_said(workplace):
    done = workplace.run("mutants", "--atol", "1e-4", "--dtype", "bfloat16", "--shape", "2,2,9,8")
    assert done.stdout.decode().splitlines()[1].startswith("Of 6 right programs 6 would fail: ")


def test_what_is_no_shape_is_refused(workplace):
    done = workplace.run("mutants", "--shape", "2,8,64")
    assert done.returncode == 2
    assert "write batch, heads, tokens, columns, like 2,8,256,64" in done.stderr.decode()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("draw", DRAWS)
def test_inputs_are_drawn_in_their_type(draw, dtype):
    arrays = Inputs((2, 2, 5, 3), draw, dtype).arrays(frozenset())
    assert [array.shape for array in arrays.values()] == [(2, 2, 5, 3)] * 3
    for array in arrays.values():
        np.testing.assert_array_equal(round_in(dtype, array), array)
    assert (arrays["q"].min() >= 0) is np.bool_(draw == "rand")


@contextmanager
def in_this_process(engine):
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_workers_hold_the_same_kernels_to_it(monkeypatch):
    monkeypatch.setattr(workers, "open_executor", in_this_process)
    monkeypatch.setattr("attnctl.verbs.mutants.survey.AT_ONCE", 7)
    inputs, seen = Inputs((1, 2, 16, 8)), []
    loose = Criterion(1e-2, 1e-2)
    alone = survey(inputs, loose)
    found = survey(inputs, loose, lambda done, total: seen.append((done, total)), Engine("processes", "2"))
    assert alone.survivors
    assert found.to_dict() == alone.to_dict()
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.slow
def test_processes_hold_kernels_to_it(call):
    words = ["mutants", "--atol", "1e-2", "--shape", "1,2,16,8", "--json"]
    alone = call(*words)
    assert call(*words, "--on", "processes=2") == alone
    assert alone[0] == 1


def test_a_test_of_ones_own_has_no_workers(call):
    code, _, said = call("mutants", "--on", "processes=2", "--", "true", "{kernel}")
    assert (code, "--on: your own test runs here" in said) == (2, True)


def test_code_is_never_in_a_narrow_column():
    code = "attention_weights = e / (e.sum(axis=-1, keepdims=True) + 3)"
    rows = [[("keys-padded", "name"), ("0.81 %", ""), (code, "aside")]]
    titles = [["passes", "off by", ""]]

    def drawn(width, fits):
        listing = Listing(Screen(width, fits), titles, rows, frozenset({0, 2}))
        return list(plain_text(lines_with_code(listing)))

    assert drawn(70, fits=True)[-2:] == ["keys-padded", f"    {code}"]
    for whole in (drawn(100, fits=True), drawn(70, fits=False)):
        assert f"│ keys-padded │ 0.81 % │ {code} │" in whole

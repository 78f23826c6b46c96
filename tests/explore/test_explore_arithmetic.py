"""The arithmetic below the matrix is what `explain` prints, in the same strings."""

import os
import re

import pytest
from driven import DUMPS, VARIANTS, no_escapes, of_file, of_sentence, plain

from attnctl.drawing.screen import Screen
from attnctl.verbs import explore as go
from attnctl.verbs.explain.view import Page
from attnctl.verbs.explore import remake
from attnctl.verbs.explore.remake import cell_here
from attnctl.verbs.explore.view import arithmetic_lines, operand_lines, step_lines


def below(walk, width=80):
    """The lines below the matrix."""
    return plain(arithmetic_lines(walk, Screen(width, fits=True)))


def explained(call, path, walk, width=80):
    """What `explain` prints on a terminal of this width, without the line of the derivation."""
    done = call("explain", str(path), cell_here(walk), FORCE_COLOR="1", NO_COLOR="1", COLUMNS=str(width))
    assert done.code == 0, done.err
    return [line.rstrip() for line in no_escapes(done.out).splitlines()[2:]]


def test_of_some_cells(call):
    for name, step, rows, columns in [
        ("causal", "attention_weights", 3, 2),
        ("causal", "masked_scores", 1, 4),
        ("sinusoidal", "scores", 2, 1),
        ("rotary", "K_rotated", 5, 3),
        ("float16", "output", 1, 1),
        ("grouped-query", "V_shared", 1, 1),
    ]:
        path = VARIANTS / f"{name}.json"
        walk = go.move(go.to_step(of_file(path), step), rows, columns)
        assert below(walk, 100) == explained(call, path, walk, 100)


@pytest.mark.slow
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_of_every_cell_of_every_variant(path):
    """Against the page that `explain` prints; where a line is wider than the screen, it is broken here."""
    walk = of_file(path)
    for step in walk.layer.steps:
        walk = go.to_step(walk, step)
        rows, columns = (1, 1, *walk.array.shape)[-2:]
        for head in range(walk.array.shape[-3] if walk.array.ndim > 2 else 1):
            for row in range(rows):
                for column in range(columns):
                    cell = (*(0,) * (walk.array.ndim - 3), head, row, column)[-walk.array.ndim :]
                    there = go.place_at(walk, cell)
                    page = Page(walk.layer.explainer, Screen(80, fits=True))
                    expected = list(page.lines(there.node))[2:]
                    assert "".join(below(there)) == "".join(plain(expected))


@pytest.mark.slow
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_as_a_terminal_shows_it(call, path):
    walk = of_file(path)
    for step in walk.layer.steps:
        there = go.move(go.to_step(walk, step), 1, 1)
        assert below(there, 160) == explained(call, os.path.abspath(path), there, 160)  # noqa: PTH100


@pytest.mark.parametrize(
    ("step", "count"), [("embeddings", 0), ("scaled_scores", 1), ("X", 2), ("attention_weights", 3)]
)
def test_every_operand_is_listed(step, count):
    walk = go.to_step(of_sentence(positions="sinusoidal"), step)
    assert len(plain(operand_lines(walk, Screen(80, fits=True)))) == count


def test_of_an_edited_cell():
    walk = remake.add_edit(of_sentence(), "0.25")
    assert "edited: attention_weights[0,I,I]=0.25" in below(walk)
    assert re.fullmatch(r"was 0\.\d+ before the edits", below(walk)[-1])
    later = go.to_step(walk, "head_outputs")
    assert below(later)[-1].startswith("was ")
    assert not any(line.startswith("was ") for line in below(go.to_step(walk, "scores")))


def test_a_long_sum_names_its_largest_terms():
    walk = of_sentence(" ".join(f"w{number}" for number in range(80)), d_model=8)
    text = "".join(below(walk))
    assert "67 more" in text or "68 more" in text
    assert len(walk.operands) <= 14


def test_the_steps_that_are_read_stand_out():
    walk = go.to_step(of_sentence("the cat sat", heads=2), "scores")
    assert plain(operand_lines(walk, Screen(80, fits=True))) == [
        "Q[0,the,0]",
        "K[0,the,0]",
        "Q[0,the,1]",
        "K[0,the,1]",
    ]
    bold = [line[0][0] for line in step_lines(walk, Screen()) if line[0][1]]
    assert bold == ["Q", "K"]

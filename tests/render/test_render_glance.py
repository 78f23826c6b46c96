"""The first screen: steps side by side, nothing lost, copies in a line, a sentence a head."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import picture
import pytest
import render_traces as traces
from processor import on_any_processor
from render_golden import BRIEF, FULL, first, piped, terminal
from rich.cells import cell_len

from attnctl import load, run
from attnctl.record import Trace

SAMPLES = Path(__file__).parent.parent.parent / "samples"
VARIANTS = SAMPLES / "variants"

WIDTHS = [60, 80, 100, 140]


SIZES = [(1, 80, 55), (2, 80, 70), (2, 100, 55), (2, 140, 45)]


@pytest.mark.parametrize(("heads", "width", "most"), SIZES)
def test_it_is_short(heads, width, most):
    assert len(terminal(run("I love AI", heads=heads), width).splitlines()) <= most


@pytest.mark.parametrize("width", WIDTHS)
def test_matrices_are_given_before_they_are_used_and_names_stand_in_the_border(width):
    text = terminal(first(), width)
    order = ["W_Q[0]", "Q[0]", "scores[0]", "concat", "output"]
    places = [text.index(f"─ {caption} ─") for caption in order]
    assert places == sorted(places)
    assert text.index("─ W_O ─") < text.index("─ output ─")


def test_formulas_stand_above_each_with_a_symbol_of_its_own():
    text = terminal(first(), 140)
    for title in ("Q = X W_Q", "S = Q Kᵀ", "S′ = scores / √d_k", "concat = heads side by side"):
        assert text.count(title) == 1
    assert not re.search("─ [^─│\n]* = ", text)


def test_the_run_of_the_readme_fits_on_fifty_rows():
    lines = terminal(first(), 100, height=50).splitlines()
    assert len(lines) == 49  # and the prompt
    assert "screens of this terminal" not in lines[-1]


def test_what_is_longer_than_the_screen_says_so_at_its_end():
    *lines, end = terminal(first(), 80, height=24).splitlines()
    assert end.startswith(f"{len(lines)} lines, 3 screens of this terminal: --brief")
    brief = terminal(first(), 80, "256", view=BRIEF, height=24).splitlines()
    assert len(brief) < 24
    assert any(line.startswith('head 0: "I" looks most at "AI"') for line in brief[:5])


def test_blocks_are_apart_where_there_is_room():
    tall, low = (terminal(first(), 80, height=height) for height in (90, 65))
    assert tall.count("\n\n") == 6
    assert "\n\n" not in low
    assert tall.replace("\n\n", "\n") == low.rpartition("69 lines")[0]


def test_random_weights_are_said_to_be(call, tmp_path):
    said = "random weights: try example:it-was-tired"
    call("run", "example:it-was-tired", "-o", str(tmp_path / "a.json"))
    assert said in terminal(run("I love AI"), 80)
    assert said not in terminal(load(tmp_path / "a.json"), 80)


def matrices(text):
    """The numbers of each matrix, by the caption above it."""
    found, at = {}, {}
    for line in text.splitlines():
        for part in re.finditer(r"[─├┼┬╭]─ ([^─│]+?) ─(?=─*[┬┼╮┤])", line):
            name = part[1].partition(" = ")[0]  # a formula may follow
            at[part.start()] = name
            found[name] = []
        for row in re.finditer(r"(?<=│)[^│]*(?=│)", line):
            numbers = re.findall(r"(?<!\S)-?\d+\.\d{4}(?!\S)", row[0])
            if numbers:
                found[at[row.start() - 1]].append([float(each) for each in numbers])
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_every_number_is_there_at_any_width(width, heads):
    trace = run("I love AI", heads=heads, d_model=6)
    copies = {"X", "concat"} if heads == 1 else {"X"}
    found = matrices(terminal(trace, width))
    for name, array in trace.items():
        if name in copies:
            continue
        several = array.ndim == 3 and len(array) > 1
        for at, matrix in enumerate(array.reshape(-1, *array.shape[-2:])):
            shown = np.array(found[f"{name}[{at}]" if several else name])
            np.testing.assert_allclose(shown, matrix, atol=5.1e-5)


def test_a_copy_is_a_line_and_what_an_edit_changed_is_none():
    text = terminal(run("I love AI", weights={"W_O": "none"}), 60)
    assert re.findall(r"^(X = .*|concat = .*)", text, re.MULTILINE) == [
        "X = embeddings",
        "concat = head_outputs · output = concat",
    ]
    edited = terminal(run("I love AI", edits=["X[0,0]=1"]), 60)
    assert "X = embeddings, edited" in edited.splitlines()
    assert "─ X ─" in edited
    assert not re.search(r"^X = embeddings$", edited, re.MULTILINE)


LOOKS = [
    ([[0.9, 0.1], [0.2, 0.8]], '"I" looks most at itself, 90 %'),
    ([[1.0, 0.0], [0.4, 0.6]], '"love" looks most at itself, 60 %'),
    ([[1.0, 0.0], [0.0, 1.0]], '"I" looks most at itself, 100 %'),
    ([[0.5, 0.5], [0.5, 0.5]], '"I" looks most at "I" and "love", 50 %'),
    ([[0.0, 0.0], [0.0, 0.0]], None),
    ([[np.nan, 0.5], [0.7, 0.3]], '"love" looks most at "I", 70 %'),
]


@pytest.mark.parametrize(("weights", "sentence"), LOOKS)
def test_the_sentence_of_a_head(weights, sentence):
    trace = traces.foreign("attention_weights", np.array([weights, weights]), "head", "query", "key")
    trace.header["tokens"] = ["I", "love"]
    other = traces.foreign("head_outputs", np.zeros((2, 2, 1)), "head", "query", "d_v")
    both = type(trace)(trace.steps | other.steps, {**trace.arrays, **other.arrays}, trace.header)
    heads = [f"head {at}: {sentence}" for at in range(2) if sentence]
    for width, in_lines in ((60, heads), (120, [" · ".join(heads)] if heads else [])):
        said = [line for line in terminal(both, width).splitlines() if "looks" in line]
        assert said == in_lines


def test_of_many_heads_the_rest_is_counted():
    text = terminal(run("a b", heads=10, d_model=10), 80)
    assert len(re.findall("looks most", text)) == 8
    assert "… and 2 heads more" in text


def test_ids_stand_beside_the_sentence_or_below_or_in_a_table():
    lines = terminal(first(), 80).splitlines()
    assert lines[0] == "I love AI   ids: I 0 · love 1 · AI 2"
    lines = terminal(first(), 30).splitlines()
    assert lines[0] == "I love AI"
    assert "ids: I 0 · love 1 · AI 2" in lines[:6]
    assert any(line.startswith("│ id │") for line in terminal(run("one " * 30), 60).splitlines())


def test_what_is_large_stands_alone_and_says_what_is_left_out():
    text = terminal(run("I love AI", d_model=64, heads=2), 100)
    assert "W_Q   W = drawn" in text
    assert "X = embeddings" in text.splitlines()
    assert "--full leaves nothing out" in text


@pytest.mark.parametrize(("width", "lines"), [(80, 95), (140, 70)])
def test_gradients_come_with_weights_and_result_alone(width, lines):
    trace = run("I love AI", backward=True, causal=True)
    text = terminal(trace, width)
    assert len(text.splitlines()) < lines
    frames = set(re.findall(r"─ (\w+)(?: = [^─]*)? ─", text))
    assert frames >= {"attention_weights", "output", "d_output", "delta", "d_Q", "d_W_Q", "d_X"}
    assert not frames & {"Q", "scores", "W_Q", "d_X_through_Q", "d_head_outputs", "d_scaled_scores"}
    assert "d_head_outputs = d_concat" in text
    assert "--full leaves nothing out" in text
    assert "d_X_through_Q" in terminal(trace, width, view=FULL)
    assert "d_X_through_Q" in piped(trace)


@pytest.mark.parametrize("trace", [first(), traces.crossed(), traces.grouped()], ids=lambda t: t.sentence)
def test_a_pipe_gets_one_step_below_the_other(trace):
    assert piped(trace) == piped(trace, FULL)


def test_arrays_of_any_shape_and_without_formulas_are_shown():
    shapes = {"b_O": (3,), "W_O": (3, 3), "key_lengths": (), "X": (0, 4), "Q": (2, 2, 3, 2), "V": (1, 2)}
    axes = ("batch", "head", "query", "d_k")
    parts = [
        traces.foreign(name, np.ones(shape), *axes[4 - len(shape) :]) for name, shape in shapes.items()
    ]
    steps = {name: replace(step, formula="") for part in parts for name, step in part.steps.items()}
    arrays = {name: array for part in parts for name, array in part.arrays.items()}
    for width in (20, 60, 140):
        text = terminal(Trace(steps, arrays), width)
        assert "─ Q[1,1] ─" in text or "batch 1 · head 1" in text
        assert " = " not in text.replace("b_O   ", "")
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("path", sorted(VARIANTS.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.sample(4)
def test_every_kind_of_attention_fits_and_is_shown(path):
    trace = load(path)
    for width in (40, 80, 140):
        text = terminal(trace, width)
        assert max(map(cell_len, text.splitlines())) <= width
        for name in trace:
            assert name in text


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", picture.SCREENS)
@pytest.mark.parametrize("background", picture.COLOURS)
def test_the_pictures_of_the_readme_are_what_is_printed(name, background):
    shown = picture.path_of(name, background).read_text(encoding="utf-8")
    now = picture.draw(name, background)
    words, words_now = (" ".join(picture.words_of(drawn)) for drawn in (shown, now))
    assert on_any_processor(words) == on_any_processor(words_now), "python tests/render/picture.py"

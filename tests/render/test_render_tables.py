"""Traces as tables: what is on the screen is what is in the trace, and it fits."""

import re

import numpy as np
import pytest
import render_traces as traces
from hypothesis import given, settings
from hypothesis import strategies as st
from render_golden import BRIEF, CASES, FOLDER, FULL, piped, terminal
from rich.cells import cell_len

from attnctl.base.errors import AttnError
from attnctl.drawing.screen.grid import columns_shown
from attnctl.drawing.show.tables import View
from attnctl.math.rules import Causal
from attnctl.record import Trace


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    assert CASES[name]() == (FOLDER / name).read_text(encoding="utf-8")


def test_every_golden_file_is_of_a_case():
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)


# --- what a pipe gets ---


def matrices_of(text):
    """Every number of a piped print, by step and caption: the rows between separator and bottom."""
    found = {}
    for section in text.split("\n\n")[1:]:
        title, *lines = section.rstrip("\n").split("\n")
        captions = []
        for line in lines:
            if line[0] in "╭├":
                named = [part.strip("─ ") for part in line[1:-1].split("┬" if line[0] == "╭" else "┼")][1:]
                captions = named if any(named) or line[0] == "╭" else captions
            elif line[0] == "│":
                _, *bodies = line[1:-1].split("│")
                for caption, body in zip(captions, bodies, strict=True):
                    found.setdefault((title.split()[0], caption), []).append(body.split())
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "trace", [traces.small(), traces.base(), traces.grouped(), traces.crossed()], ids=lambda t: t.sentence
)
def test_a_pipe_gets_every_number(trace):
    found = matrices_of(piped(trace))
    for name, array in trace.items():
        heads = [array] if array.ndim == 2 else list(array)
        shown = [rows for (step, _), rows in found.items() if step == name]
        assert len(shown) == len(heads)
        for rows, head in zip(shown, heads, strict=True):
            numbers = [row for row in rows if len(row) == head.shape[1]][-len(head) :]
            np.testing.assert_allclose(np.array(numbers, dtype=float), head, atol=5.1e-5)


@pytest.mark.sample(2)
def test_a_pipe_is_not_cut_whatever_its_width():
    wide = piped(traces.long(), BRIEF)
    assert re.findall(r"….*", wide) == ["… 2212 more characters (--full shows them)"]
    assert sum(line.count("w511") for line in wide.splitlines()) >= 8 * 2
    assert max(map(len, wide.splitlines())) > 512 * 8


def test_a_terminal_that_is_wide_enough_gets_what_a_pipe_gets():
    assert terminal(traces.small(), 80, None, FULL) == piped(traces.small())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_colour_no_codes(width):
    assert "\x1b" not in terminal(traces.causal(), width) + piped(traces.causal(), width=width)


# --- what a terminal gets ---

TOKENS = st.lists(st.sampled_from(traces.HOSTILE) | st.text(max_size=20), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None)
@given(
    tokens=TOKENS,
    half=st.sampled_from([1, 3, 9]),
    heads=st.sampled_from([1, 2, 5]),
    width=st.integers(40, 160),
    full=st.booleans(),
)
def test_every_line_fits_and_every_frame_is_straight(tokens, half, heads, width, full):
    trace = traces.trace_of(tokens, half * heads, heads, rules=(Causal(),))
    text = terminal(trace, width, None, View(full=full))
    frame = 0
    for line in text.splitlines():
        cells = cell_len(line)
        assert cells <= width
        if line.startswith("╭"):
            frame = cells
        if line[:1] in set("╭│├╰"):
            assert cells == frame


LARGE = [(512, 512), (8, 200, 200), (3, 20000), (20000, 3)]


@pytest.mark.parametrize(
    "shape",
    [
        *[(80, 90), (8, 70, 40), (64, 3, 3), (3, 600), (600, 3), (16, 9, 64)],
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in LARGE),
    ],
)
def test_the_default_view_is_bounded_and_counts_what_it_leaves_out(shape):
    array = np.zeros(shape) + np.arange(shape[-1]) / shape[-1]
    axes = ("head", "query", "d_v")[3 - len(shape) :]
    text = terminal(traces.foreign("head_outputs", array, *axes), 100)
    assert len(text.splitlines()) < 70
    assert re.search(r"… \d+ more", text)
    assert "--full leaves nothing out" in text
    whole = terminal(traces.foreign("head_outputs", array, *axes), 100, None, View(full=True))
    assert "more" not in whole
    assert len(re.findall(r"\d\.\d{4}", whole)) == array.size


def test_what_is_left_out_adds_up():
    text = terminal(
        traces.foreign("output", np.arange(100 * 200.0).reshape(100, 200) / 7, "query", "d_model"), 80
    )
    header = next(line for line in text.splitlines() if "more" in line)
    labels = header.strip("│").split("│")[-1].split()
    assert len(labels) - 3 + int(labels[labels.index("…") + 1]) == 200
    rows = [line for line in text.splitlines() if re.match(r"│ +\d+ │", line)]
    assert f"… {100 - len(rows)} more" in text


def test_columns_in_blocks_are_all_there_and_say_which():
    text = terminal(traces.foreign("output", np.arange(20).reshape(1, 20) / 8, "query", "d_model"), 80)
    assert re.findall(r"d_model (\d+)–(\d+) of 20", text) == [("0", "8"), ("9", "17"), ("18", "19")]
    shown = re.findall(r"\d\.\d{4}", text)
    assert shown == [f"{i / 8:.4f}" for i in range(20)]


@pytest.mark.parametrize(("width", "side_by_side"), [(40, 1), (50, 2), (70, 2), (90, 4)])
def test_heads_stand_side_by_side_where_they_fit(width, side_by_side):
    trace = traces.trace_of(d_model=8, heads=4)
    text = terminal(trace, width, None, View(steps=("Q",)))
    captions = [line.count("head ") for line in text.splitlines() if "─ head 0 ─" in line]
    assert captions == [side_by_side]


def test_heads_left_out_say_how_to_see_them():
    text = terminal(traces.long(), 100, None, View(steps=("attention_weights",)))
    assert "… 6 more heads (--head 2,3,4,5,6,7 shows them)" in text
    asked = terminal(traces.long(), 100, None, View(steps=("attention_weights",), heads=(6, 7)))
    assert re.findall(r"─ (head \d) ─", asked) == ["head 6", "head 7"]
    assert "more heads" not in asked


# --- which part ---


@pytest.mark.parametrize(
    ("view", "steps"),
    [
        (View(brief=True), ["attention_weights", "output"]),
        (View(steps=("V", "Q")), ["Q", "V"]),
        (View(steps=()), []),
        (FULL, list(traces.small())),
    ],
)
def test_the_steps_that_were_asked_for(view, steps):
    text = terminal(traces.small(), 80, None, view)
    assert [line.split()[0] for line in text.splitlines() if re.search(r"\d × \d.*\(", line)] == steps


@pytest.mark.parametrize(
    ("heads", "step", "captions"),
    [
        ((3,), "Q", ["head 3"]),
        ((3, 1), "Q", ["head 3", "head 1"]),
        ((3,), "K", ["kv head 1"]),
        ((0, 1), "K", ["kv head 0"]),
        ((0, 2), "K_shared", ["head 0", "head 2"]),
        ((1,), "output", []),
    ],
)
def test_the_heads_that_were_asked_for(heads, step, captions):
    text = terminal(traces.grouped(), 80, None, View(steps=(step,), heads=heads))
    assert re.findall(r"─ ((?:kv )?head \d) ─", text) == captions


@pytest.mark.parametrize(
    ("view", "problems"),
    [
        (View(heads=(5,)), ("no head 5 in this trace; it has heads 0 to 1",)),
        (View(heads=(0, -1, 9)), ("no head -1", "no head 9")),
        (View(steps=("Q", "q", "foo")), ("no step 'q'", "no step 'foo'")),
    ],
)
def test_what_is_not_there_is_named(view, problems):
    with pytest.raises(AttnError) as caught:
        terminal(traces.small(), 80, None, view)
    assert len(caught.value.problems) == len(problems)
    for problem, start in zip(caught.value.problems, problems, strict=True):
        assert problem.startswith(start)


# --- every shape ---


@pytest.mark.parametrize(
    ("array", "axes", "rows"),
    [
        (np.float64(1.5), (), ["│ 1.5000 │"]),
        (np.array([0.5, 1]), ("d_model",), ["│ 0.5000  1.0000 │"]),
        (np.array([[0.5, 1]]), ("head", "d_k"), ["│ head 0 │ 0.5000  1.0000 │"]),
        (np.zeros((2, 1, 1, 2)), ("batch", "head", "query", "key"), []),
        (np.zeros((0, 3)), ("query", "d_v"), ["│ 0  1  2 │"]),
        (np.zeros((3, 0)), ("query", "d_v"), ["│ 2 │ │"]),
        (np.zeros((0, 2, 2)), ("head", "query", "d_v"), []),
    ],
)
@pytest.mark.parametrize("draw", [piped, lambda trace: terminal(trace, 40)], ids=["pipe", "terminal"])
def test_any_shape_is_drawn(array, axes, rows, draw):
    lines = draw(traces.foreign("anything", array, *axes)).splitlines()
    for row in rows:
        assert row in lines


def test_a_batch_is_labelled_by_member():
    array = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2) / 7
    text = piped(traces.foreign("scores", array, "batch", "head", "query", "key"))
    captions = [f"batch {b} · head {h}" for b in range(2) for h in range(3)]
    assert re.findall(r"batch \d · head \d", text) == captions


@pytest.mark.parametrize("draw", [piped, lambda trace, view=None: terminal(trace, 80, None, view)])
def test_a_long_sentence_is_shortened_and_says_by_how_much(draw):
    trace = traces.foreign("output", np.zeros((1, 1)), "query", "d_model", sentence="word " * 2047 + "end")
    text = draw(trace)
    shown, rest = re.match(r"([\s\S]*)\n… (\d+) more characters \(--full shows them\)", text).groups()
    assert trace.sentence[: -int(rest)] == shown.replace("\n", " ")
    assert len(shown) <= 240
    assert draw(trace, View(full=True)).replace("\n", " ").startswith(trace.sentence)


def test_rows_that_see_nothing_are_told():
    trace = traces.foreign("attention_weights", np.zeros((1, 2)), "query", "key", empty_rows=[[0, 0]])
    assert "1 row sees nothing: its weights are zero" in piped(trace)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"heads": 1}, "self-attention · 1 head"),
        ({"heads": 8, "kv_heads": 2, "d_k": 4, "d_v": 6}, "8 heads · 2 kv heads · d_k 4 · d_v 6"),
        (
            {"rules": ["causal", {"window": [3, None]}, {"softcap": 30.0}]},
            "causal · window 3, ∞ · softcap 30.0",
        ),
        ({"rules": [{"mask": [[1]]}]}, "given mask"),
        ({"positions": {"rope": {"theta": 1e4}}, "scale": 0.5}, "rotary positions · scale 0.5"),
        ({"positions": {"learned": [[1]]}, "dtype": "float16"}, "learned positions · float16"),
        ({"positions": "none", "dtype": "float64"}, "self-attention"),
        (
            {"rules": 5, "positions": {}, "kv_heads": [1], "heads": "\x1b", "seed": {}},
            "\\x1b heads · [1] kv heads",
        ),
    ],
)
def test_the_facts_of_a_run(config, said):
    trace = traces.foreign("output", np.zeros((1, 1)), "query", "d_model", config=config)
    assert said in piped(trace).split("\n")[0]


def test_a_file_is_asked_for_each_array_once():
    asked = []

    class Counted(dict):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    whole = traces.masked()
    trace = Trace(whole.steps, Counted(whole.arrays), whole.header)
    piped(trace, View(steps=("X", "V", "attention_weights")))
    assert asked == ["X", "V", "attention_weights"]


@pytest.mark.parametrize("seed", range(20))
def test_of_columns_of_many_widths_as_many_are_shown_as_there_is_room_for(seed):
    """Two first ones for each last; the next that would be shown does not fit."""
    draw = np.random.RandomState(seed)
    widths, room, left_out = draw.randint(3, 15, 90), draw.randint(20, 80), 5
    ((head, count, tail),) = columns_shown(90, widths.__getitem__, room, left_out)
    after = 89 - len(tail) if len(tail) < (len(head) + 1) // 3 else len(head)
    used = left_out + widths[head].sum() + widths[tail].sum()
    assert used <= room < used + widths[after]
    assert len(head) // 3 <= len(tail) <= (len(head) + 1) // 2
    assert len(head) + count + len(tail) == 90
    assert [*tail] == list(range(90))[90 - len(tail) :]

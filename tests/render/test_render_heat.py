"""Heat maps in characters: every cell has its level, whatever the screen can show."""

from io import StringIO

import numpy as np
import pytest
from render_golden import show
from rich.console import Console

import attnctl
from attnctl.drawing.pictures import Panel, Plot
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.heat import HIDDEN, STRANGE, heat_lines, levels_of
from attnctl.drawing.screen.output import PlainOutput
from attnctl.drawing.screen.palette import backgrounds
from attnctl.drawing.screen.text import cells
from attnctl.drawing.show.tables import View

PLAIN = Screen(80)
COLOURED = Screen(80, fits=True, colours=True, shades=True)


def plot(values, captions=("",), **more):
    values = np.asarray(values)
    rows, columns = ([f"w{i}" for i in range(size)] for size in values.shape)
    return Plot("step", ("about",), [Panel(each, values) for each in captions], rows, columns, **more)


def lines(made, screen=PLAIN):
    return ["".join(text for text, _ in line) for line in heat_lines(made, screen)]


@pytest.mark.parametrize(
    ("share", "level"),
    [(0, 0), (0.01, 0), (0.06, 1), (0.5, 5), (0.999, 8), (1, 8), (-1, -8), (-0.5, -5), (2, 8)],
)
def test_the_level_of_a_share(share, level):
    assert levels_of(np.array(share, float)) == level


def test_shading_without_colours():
    assert lines(plot([[0.0, 0.02, 0.25], [0.5, 1.0, -np.inf]])) == [
        "   w0 w1 w2",
        "w0       ▒▒▒",
        "w1 ▓▓▓███╱╱╱",
        "  0  ░░▒▒▓▓██ 1   ╱ hidden (−∞)",
    ]


def test_shading_in_ascii():
    screen = Screen(80, encoding="ascii")
    assert lines(plot([[0.0, 1.0], [np.nan, -np.inf]]), screen) == [
        "   w0 w1",
        "w0    @@@",
        "w1 ???///",
        "  0  .:-=+*#@ 1   / hidden (-inf)   ? NaN or inf",
    ]


def test_signed_numbers_are_shaded_from_the_least_to_the_largest():
    assert lines(plot([[-2.0, 0.0, 2.0]]))[1:] == ["w0    ▒▒▒███", "  -2  ░░░░▒▒▒▒▓▓▓▓████ 2"]


def test_colours_are_those_of_the_palette():
    (_, row, _) = heat_lines(plot([[1.0, -1.0, 0.0]]), COLOURED)
    assert [style for _, style in row if style] == ["label", "shade 8", "shade -8"]
    for system in ("truecolor", "256"):
        for behind in ("dark", "light"):
            assert sorted(backgrounds(system, behind)) == [*range(-8, 0), *range(1, 9)]
    assert backgrounds("standard", "dark") == {}


def test_cells_of_one_colour_are_one_span():
    values = np.zeros((14, 3))
    values[0, 0], values[1, 1:] = 1, 1
    values[4, :] = -np.inf
    _, *found = heat_lines(plot(values), COLOURED._replace(width=20))
    assert len(found) == 14 + 1
    size = len(found[0][1][0])
    assert found[0][1:] == [(" " * size, "shade 8"), (" " * 2 * size, "")]
    assert found[1][1:] == [(" " * size, ""), (" " * 2 * size, "shade 8")]
    assert found[4][1:] == [("╱" * 3 * size, "aside")]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("size", [1, 3, 12, 13, 40, 300])
@pytest.mark.parametrize("screen", [PLAIN, COLOURED], ids=["plain", "coloured"])
def test_maps_fit_the_width(width, size, screen):
    screen = screen._replace(width=width)
    made = plot(np.eye(size), ["head 0", "head 1", "head 2"])
    for line in lines(made, screen)[:-1]:
        if "mean of" not in line:
            assert cells(line) <= max(width, 8 + 1 + width // 4)


def test_long_sentences_are_merged_and_that_is_said():
    values = np.zeros((300, 300))
    values[:7, :] = 1.0
    names, *found = lines(plot(values), COLOURED)
    assert names.split()[:4] == ["w0", "w12", "w28", "w44"]
    assert "  Each cell is the mean of what is not hidden of 7 × 4 numbers." in found
    assert found[0].split()[0] == "w0"
    assert found[1].split()[0] == "w7", "a row of seven tokens has a line"


def test_on_a_wide_screen_columns_are_wide_and_rows_have_a_line_each():
    wide = COLOURED._replace(width=140)
    assert lines(plot([[1.0, 0.5]]), wide)[0] == "   w0  w1"
    assert len(lines(plot(np.ones((20, 20))), wide)) == 1 + 20 + 1


@pytest.mark.parametrize("settings", [{"causal": True}, {"window": [1, 0]}])
def test_hidden_keys_look_hidden_in_scores_and_in_weights(settings):
    output = PlainOutput(StringIO())
    trace = attnctl.run("I love AI a lot", **settings)
    show(trace, output, View(steps=("masked_scores", "attention_weights"), heat=True))
    maps = output.stream.getvalue().split("\n\n")[1:]
    rows = [[line for line in each.splitlines() if "╱╱" in line] for each in maps]
    assert len(rows[0]) == len(rows[1]) >= 4
    assert [line.count("╱") for line in rows[0]] == [line.count("╱") for line in rows[1]]


def printed(view, output):
    show(attnctl.run(" ".join(f"w{i}" for i in range(40)), heads=2), output, view)
    return output.file.getvalue() if isinstance(output, Console) else output.stream.getvalue()


def console():
    return Console(
        file=StringIO(), force_terminal=True, width=100, color_system="truecolor", legacy_windows=False
    )


def test_a_pipe_has_numbers_unless_heat_is_asked():
    assert "█" not in printed(View(brief=True), PlainOutput(StringIO()))
    asked = printed(View(heat=True, steps=("attention_weights",)), PlainOutput(StringIO()))
    assert "█" in asked
    assert "╭──" not in asked.split("attention_weights")[1]


def test_brief_on_a_terminal_is_a_heat_map_where_numbers_do_not_fit():
    out = printed(View(brief=True), console())
    assert "│" not in out.split("attention_weights")[1].split("output")[0]
    whole = printed(View(brief=True, full=True), console())
    assert "│" in whole.split("attention_weights")[1].split("output")[0]
    output = console()
    show(attnctl.run("I love AI"), output, View(brief=True))
    assert "│" in output.file.getvalue().split("attention_weights")[1].split("output")[0], "numbers, shaded"


def test_log_and_without_first_reach_the_map():
    trace = attnctl.run("I love AI", heads=2)
    view = View(heat=True, steps=("attention_weights",), log=True, without_first=True, heads=(1,))
    stream = StringIO()
    show(trace, PlainOutput(stream), view)
    said = stream.getvalue()
    assert "by logarithm" in said
    assert "Without the first key, I" in said
    assert "head 1" in said
    assert "head 0" not in said


def test_marks_are_no_levels():
    assert {HIDDEN, STRANGE}.isdisjoint(range(-8, 9))

"""Tables of a step as Rich renderables."""

from io import StringIO

import numpy as np
import pytest
import render_traces as traces
from render_golden import piped, terminal
from rich.console import Console
from rich.layout import Layout
from rich.panel import Panel

from attnctl.base.errors import AttnError
from attnctl.drawing.show.tables import View, table


def console(width=80, height=None, **options):
    return Console(file=StringIO(), width=width, height=height, legacy_windows=False, **options)


def printed(renderable, **options):
    out = console(**options)
    out.print(renderable)
    return out.file.getvalue()


@pytest.mark.parametrize("step", ["embeddings", "scores", "masked_scores", "attention_weights", "output"])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_any_console_prints_what_a_terminal_gets(step, width):
    trace = traces.masked()
    expected = terminal(trace, width, None, View(steps=(step,))).split("\n\n")[1]
    assert printed(table(trace, step), width=width) == expected


def test_as_a_string_it_is_what_a_pipe_gets_whole():
    trace = traces.long()
    step = table(trace, "Q", precision=2, heads=(1,))
    expected = piped(trace, View(steps=("Q",), precision=2, heads=(1,))).split("\n\n")[1]
    assert f"{step}\n" == expected
    assert repr(step) == str(step)


def test_a_notebook_is_shown_it_as_html_and_as_text():
    bundle = table(traces.small(), "scores")._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "scores" in bundle["text/plain"]
    assert "<pre" in bundle["text/html"]


def test_it_is_fitted_to_its_place_in_a_layout():
    layout = Layout()
    step = table(traces.masked(), "attention_weights")
    layout.split_row(Layout(Panel(step)), Layout(Panel(step)))
    text = printed(layout, width=130, height=24)
    assert text.count("─ head 1 ─") == 2
    assert text.count("0.4445") == 2
    assert all(len(line) == 130 for line in text.splitlines())


def test_a_panel_is_as_wide_as_the_table():
    text = printed(Panel.fit(table(traces.small(), "X")), width=120)
    lines = str(table(traces.small(), "X")).splitlines()
    assert len(text.splitlines()[0]) == max(map(len, lines)) + 4


@pytest.mark.parametrize(("full", "left_out"), [(False, True), (True, False)])
def test_full_leaves_nothing_out(full, left_out):
    trace = traces.foreign("output", np.ones((40, 300)), "query", "d_model")
    assert ("more" in printed(table(trace, "output", full=full))) == left_out


@pytest.mark.parametrize(
    ("step", "heads", "problem"), [("foo", None, "no step 'foo'"), ("scores", (7,), "no head 7")]
)
def test_what_is_not_there_is_named(step, heads, problem):
    with pytest.raises(AttnError, match=problem):
        table(traces.small(), step, heads=heads)

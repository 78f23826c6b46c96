"""The explorer, every key pressed and everything clicked: Textual's pilot is the person."""

import asyncio

import numpy as np
import pytest
from driven import drive, of_file, of_sentence, plain, screen_text, shown

import attnctl
from attnctl.drawing.screen import Screen
from attnctl.verbs.explore.view import KEYS, foot, help_lines

Key = pytest.importorskip("textual.events").Key


def place(app):
    return app.walk.step, app.walk.place.cell


MOVES = [
    ("down", ("attention_weights", (0, 1, 0))),
    ("right", ("attention_weights", (0, 1, 1))),
    ("up", ("attention_weights", (0, 0, 1))),
    ("left", ("attention_weights", (0, 0, 0))),
    ("end", ("attention_weights", (0, 0, 2))),
    ("home", ("attention_weights", (0, 0, 0))),
    ("ctrl+end", ("attention_weights", (0, 2, 2))),
    ("ctrl+home", ("attention_weights", (0, 0, 0))),
    ("pagedown", ("attention_weights", (0, 2, 0))),
    ("pageup", ("attention_weights", (0, 0, 0))),
    ("h", ("attention_weights", (1, 0, 0))),
    ("h", ("attention_weights", (0, 0, 0))),
    ("H", ("attention_weights", (1, 0, 0))),
    ("H", ("attention_weights", (0, 0, 0))),
    ("left_square_bracket", ("scaled_scores", (0, 0, 0))),
    ("right_square_bracket", ("attention_weights", (0, 0, 0))),
    ("tab", ("attention_weights", (0, 0, 0))),
    ("enter", ("scaled_scores", (0, 0, 1))),
    ("enter", ("scores", (0, 0, 1))),
    ("4", ("scores", (0, 0, 1))),
    ("enter", ("K", (0, 1, 1))),
    ("backspace", ("scores", (0, 0, 1))),
    ("shift+tab", ("scores", (0, 0, 1))),
    ("enter", ("K", (0, 1, 1))),
]


def test_every_key_that_moves():
    async def act(app, pilot):
        for key, expected in MOVES:
            await pilot.press(key)
            assert place(app) == expected, key
        await pilot.press("backspace", "backspace", "backspace")
        assert place(app) == ("attention_weights", (0, 0, 0))
        await pilot.press("9")
        assert "there are 3 operands" in shown(app)
        for key, said in [
            ("b", "attention_weights has no batch axis"),
            ("l", "there is one trace"),
            ("u", "nothing is edited"),
            ("d", "nothing was edited"),
        ]:
            await pilot.press(key)
            assert said in shown(app)
        await pilot.press("left_square_bracket")
        assert "nothing was edited" not in shown(app)

    drive(of_sentence(heads=2), act)


def test_every_key_that_changes_something():
    plain_run, causal = attnctl.run("I love AI"), attnctl.run("I love AI", causal=True)
    options = {"edits": ["attention_weights[0,love,I]=0.25"], "causal": True}
    edited = attnctl.run("I love AI", **options)

    async def act(app, pilot):
        await pilot.press("slash", *"love", "enter")
        assert place(app) == ("attention_weights", (0, 1, 0))
        await pilot.press("slash", *"dog", "enter")
        assert "no token 'dog' along key" in shown(app)
        await pilot.press("e", "escape", "e", "enter")
        assert app.walk.layer.edits == ()
        await pilot.press("m")
        assert "1  off  causal" in shown(app)
        await pilot.press("1")
        assert "1  on   causal" in shown(app)
        await pilot.press("x")
        assert np.array_equal(app.walk.trace["output"], causal["output"])
        await pilot.press("e", *"no", "enter")
        assert "neither a number, mean nor @FILE" in shown(app)
        await pilot.press("e", *"0.25", "enter")
        assert np.array_equal(app.walk.trace["output"], edited["output"])
        assert "1 of 9 changed (11%), most by 0." in shown(app)
        assert "before the edits" in shown(app)
        assert any(
            line.endswith("11%") or " 11%" in line
            for line in screen_text(app)
            if "attention_weights" in line
        )
        await pilot.press("right_square_bracket", "d")
        difference = edited["head_outputs"] - causal["head_outputs"]
        assert app.walk.mode == "difference"
        assert f"{difference[0, 1, 0]:.4f}" in shown(app)
        await pilot.press("d", "s")
        assert "seed: 1" in shown(app)
        await pilot.press(*"12", "enter")
        assert app.walk.layer.made.settings.seed == 12
        assert np.array_equal(app.walk.trace["V"], attnctl.run("I love AI", seed=12)["V"])
        await pilot.press("s", *"0", "enter", "u", "m", "1", "x")
        assert all(np.array_equal(app.walk.trace[step], plain_run[step]) for step in plain_run)
        await pilot.press("t")
        assert app.walk.mode == "heat"
        assert "heat" in shown(app)
        await pilot.press("t", "w")
        assert "attnctl run 'I love AI' --step head_outputs" in shown(app)
        await pilot.press("x", "question_mark")
        assert "go back to where you were" in shown(app)
        await pilot.press("down", "pagedown", "x", "shift+down", "shift+up", "q")

    app = drive(of_sentence(), act)
    assert app.written[0] == "attnctl run 'I love AI' --step head_outputs"
    assert app.error is None


def test_the_mouse_does_it():
    async def act(app, pilot):
        grid, steps = app.query_one("#grid"), app.query_one("#steps")
        matrix, cell = grid.matrix, grid.cell
        await pilot.click("#grid", offset=(matrix.label_width + cell + 1, 3))
        assert place(app) == ("attention_weights", (0, 2, 1))
        await pilot.click("#grid", offset=(0, 2))
        assert place(app) == ("attention_weights", (0, 1, 1))
        await pilot.click("#grid", offset=(matrix.label_width + 2 * cell + 1, 0))
        assert place(app) == ("attention_weights", (0, 1, 2))
        await pilot.click("#grid", offset=(matrix.label_width + 40, 1))
        assert place(app) == ("attention_weights", (0, 1, 2))
        await pilot.click("#grid", offset=(matrix.label_width + 1, 1 + matrix.rows))
        assert place(app) == ("attention_weights", (0, 1, 2))
        await pilot.click("#grid", offset=(matrix.label_width, 1))
        assert place(app) == ("attention_weights", (0, 0, 0))
        await pilot.click("#grid", offset=(matrix.label_width + 2 * cell + 1, 2))
        lines = plain(app.query_one("#arithmetic").parts)
        at = next(number for number, line in enumerate(lines) if "+ exp(scaled_scores[0,love,love]" in line)
        await pilot.click("#arithmetic", offset=(lines[at].index("[0,love,love]"), at + 1))
        assert place(app) == ("scaled_scores", (0, 1, 1))
        row = app.walk.layer.steps.index("Q") - steps.scroll_offset.y
        await pilot.click("#steps", offset=(9, row))
        assert place(app) == ("Q", (0, 1, 0))
        await pilot.resize_terminal(120, 24)
        await pilot.pause()
        line = plain(app.query_one("#foot").parts)[0]
        await pilot.click("#foot", offset=(line.index("head"), 0))
        assert place(app) == ("Q", (1, 1, 0))
        await pilot.click("#foot", offset=(line.index("rules"), 0))
        await pilot.pause()
        sheet = app.screen.query_one("Lines")
        assert "causal" in shown(app)
        await pilot.click(sheet, offset=(6, 3))
        assert [rule.name for rule in app.walk.layer.made.settings.rules] == ["causal"]
        await pilot.click(offset=(1, 1))
        await pilot.click("#foot", offset=(line.index("find"), 0))
        await pilot.press(*"AI", "enter")
        assert place(app) == ("Q", (1, 2, 0))
        back = plain(app.query_one("#arithmetic").parts)[0].index("Backspace")
        await pilot.click("#arithmetic", offset=(back, 1))
        assert app.walk.step == "scaled_scores"
        await pilot.click("#foot", offset=(line.index("quit"), 0))

    drive(of_sentence(heads=2), act)


SIZES = ((80, 24), (44, 12), (300, 90), (20, 6))
SLOW_SIZES = [pytest.param(size, marks=pytest.mark.slow) for size in SIZES]


@pytest.mark.parametrize("size", [(140, 40), *SLOW_SIZES])
def test_every_size_of_terminal(size):
    async def act(app, pilot):
        lines = screen_text(app)
        assert len(lines) == size[1]
        await pilot.press("down", "t", "question_mark", "x", "m", "x", "w", "x", "enter")
        await pilot.resize_terminal(size[0] + 7, size[1] + 3)
        await pilot.pause()
        await pilot.press("right", "right")
        if size >= (80, 24):
            assert "quit" in shown(app)
            assert "scaled_scores[0,cat,sat] =" in shown(app)

    drive(of_sentence("the cat sat on the mat", heads=2), act, size)


def test_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(app, pilot):
        await pilot.press("t")
        styles = [segment.style for strip in app.screen._compositor.render_strips() for segment in strip]
        assert not any(style and (style.color or style.bgcolor) and not plainest(style) for style in styles)
        assert "█" in shown(app)
        assert "▘" in shown(app)

    def plainest(style):
        return all(each is None or each.is_default for each in (style.color, style.bgcolor))

    drive(of_sentence(heads=2, causal=True), act)


def test_in_colours(monkeypatch):
    """Two rows of a picture in a line: above the first query, which sees itself alone, below the others."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    async def act(app, pilot):
        assert "\n▘▀▄▄    masked_scores" in shown(app)
        assert "\n ▀▄▄    attention_weights" in shown(app)
        segments = [segment for strip in app.screen._compositor.render_strips() for segment in strip]
        blocks = [(each.text, each.style.color.name) for each in segments if each.text in {"▀", "▄"}]
        assert [text for text, colour in blocks if colour == "bright_yellow"] == ["▀"]  # what is read

    drive(of_sentence(heads=2, causal=True), act)


def test_without_unicode():
    async def act(app, pilot):
        for key in ("t", "t", "m", "x", "e", *"2", "enter", "right_square_bracket", "d", "question_mark"):
            await pilot.press(key)
            assert shown(app).isascii(), key

    drive(of_sentence("the cat sat on the mat", heads=2, causal=True), act, encoding="ascii")


def test_words_are_not_markup():
    tokens = "[red]a[/red] [@click=app.quit()]b :smile: [/] \\[bold] \x1b[31mc"
    walk = of_sentence(tokens)

    async def act(app, pilot):
        text = shown(app)
        assert "[red]a[/red]" in text
        assert ":smile:" in text
        assert "\x1b" not in text
        for key in ("enter", "e", *"[red]", "enter", "w", "x", "slash", *"[/]", "enter", "m"):
            await pilot.press(key)

    assert drive(walk, act, (140, 40)).error is None


def test_a_token_of_another_width():
    async def act(app, pilot):
        lines = [line for line in screen_text(app) if "中文字" in line]
        assert lines
        await pilot.press("right", "t", "down", "t")

    drive(of_sentence("中文字 love 👩‍👩‍👧 AI"), act)


def odd(tmp_path, name):
    """Dumps that are not as usual, by name."""
    path = str(tmp_path / "odd.npz")
    rng = np.random.default_rng(0)
    weights = rng.random((2, 3, 3))
    if name == "nan":
        weights[0, 0, 1] = np.nan
        weights[0, 1, 1] = np.inf
        np.savez(path, attention_weights=weights, scores=np.full((2, 3, 3), np.nan))
    if name == "batch":
        arrays = {each: rng.normal(size=(2, 2, 3, 4)) for each in "QKV"}
        attnctl.attend(arrays).save(path)
    if name == "one token":
        attnctl.run("love", causal=True).save(path)
    if name == "one step":
        np.savez(path, V=rng.normal(size=(4, 2)))
    if name == "vectors":
        arrays = {"X": rng.normal(size=(3, 4)), **{f"W_{each}": rng.normal(size=(4, 4)) for each in "QKVO"}}
        attnctl.attend(
            {**arrays, "b_Q": np.ones(4), "b_K": np.ones(4), "b_V": np.ones(4), "b_O": np.ones(4)}
        ).save(path)
    if name == "mask":
        arrays = {each: rng.normal(size=(2, 3, 4)) for each in "QKV"}
        attnctl.attend(arrays, mask=[[1, 0, 0], [0, 0, 0], [1, 1, 1]]).save(path)
    return path


KEYS_PRESSED = [
    *(
        "down",
        "right",
        "t",
        "h",
        "enter",
        "backspace",
        "left_square_bracket",
        "end",
        "b",
        "e",
        "1",
        "enter",
    ),
    *("d", "m", "1", "x", "s", "enter", "w", "x", "ctrl+end", "pagedown", "slash", "a", "enter", "l", "u"),
]


SLOW_ODD = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("batch", "one token", "one step", "vectors", "mask")
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["nan", *SLOW_ODD])
def test_odd_dumps(tmp_path, name):
    walk = of_file(odd(tmp_path, name))

    async def act(app, pilot):
        for key in KEYS_PRESSED:
            await pilot.press(key)
        for number in range(len(app.walk.layer.steps)):
            await app.run_action(f"to_step({number})")
            assert app.walk.step in shown(app)

    assert drive(walk, act).error is None


def test_a_hidden_cell_says_which_rule():
    async def act(app, pilot):
        await pilot.press("right", "left_square_bracket")
        text = shown(app)
        assert "causal" in text.splitlines()[4]
        assert "hidden by causal" in text

    drive(of_sentence(causal=True), act)


def test_a_bug_is_handed_on(monkeypatch):
    from attnctl.verbs.explore import walk as go

    async def act(app, pilot):
        monkeypatch.setattr(go, "move", lambda *_: 1 / 0)
        app.post_message(Key("down", None))  # the pilot would wait for an app that has left
        for _ in range(500):
            await asyncio.sleep(0 if app.error else 0.01)

    with pytest.raises(ZeroDivisionError):
        drive(of_sentence(), act)


def test_the_foot_fits():
    for width in (20, 40, 74, 80, 120, 200):
        line = plain([foot(width)])[0]
        assert len(line) <= width
        assert line.endswith(" q quit")
        assert line.startswith(" Enter follow Backspace back") is (width >= 74)
    assert len([key for key in KEYS if key.foot]) == plain([foot(200)])[0].count("  ") + 13


def test_the_help_says_every_key():
    text = "\n".join(plain(help_lines(70)))
    assert all(key.sign.split()[0] in text for key in KEYS if key.sign)
    assert max(map(len, text.splitlines())) <= 70


@pytest.mark.slow
def test_a_large_matrix_formats_what_is_visible(tmp_path, monkeypatch):
    from attnctl.drawing.screen.grid import NumberFormat

    size = 4096
    step = of_sentence().trace.steps["attention_weights"]
    weights = np.random.default_rng(0).random((1, size, size), dtype=np.float32)
    trace = attnctl.run("I love AI")
    attnctl.Trace({step.name: step}, {step.name: weights}, dict(trace.header)).save(tmp_path / "big.npz")
    walk = of_file(tmp_path / "big.npz")
    written = []
    one = NumberFormat.__call__
    monkeypatch.setattr(
        NumberFormat, "__call__", lambda self, value: written.append(value) or one(self, value)
    )

    async def act(app, pilot):
        for key in ("pagedown", "end", "pagedown", "ctrl+end", "home", "t", "pageup", "t"):
            written.clear()
            await pilot.press(key)
            assert len(written) <= 80 * 24

        assert place(app)[1][1] == size - 1 - app.query_one("#grid").page

    drive(walk, act)
    assert Screen().fits is False


def test_the_row_of_the_cell_is_always_in_view():
    """Of many rows as many scroll by as it takes."""
    size = 10

    async def act(app, pilot):
        grid = app.query_one("#grid")
        for key, rows in (("down", range(1, size)), ("up", range(size - 2, -1, -1))):
            top = grid.scroll_offset.y
            for row in rows:
                await pilot.press(key)
                top = min(max(top, row - grid.page + 1), row)
                assert (place(app)[1][1], grid.scroll_offset.y) == (row, top)

    drive(of_sentence(" ".join(f"w{at}" for at in range(size))), act, size=(60, 10))


def test_on_a_small_terminal_the_matrix_comes_before_the_arithmetic():
    async def act(app, pilot):
        lines = screen_text(app)
        rows = [number for number, line in enumerate(lines) if line.startswith(("I  ", "love  ", "AI  "))]
        arithmetic = next(number for number, line in enumerate(lines) if "Enter follows" in line)
        assert len(rows) == 3
        assert max(rows) < arithmetic

    drive(of_sentence(heads=2), act, size=(40, 12))


def test_on_a_wide_terminal_heads_stand_side_by_side():
    async def act(app, pilot):
        (row,) = [line for line in screen_text(app) if "0.6158" in line]
        assert "0.0681" in row
        await pilot.press("h")
        (row,) = [line for line in screen_text(app) if "0.6158" in line]
        assert row.index("0.0681") < row.index("0.6158")
        await pilot.click("#grid1", offset=(12, 2))
        assert place(app) == ("attention_weights", (0, 1, 0))
        await pilot.press(
            "left_square_bracket", "left_square_bracket", "left_square_bracket", "left_square_bracket"
        )
        assert sum("head 1" in line for line in screen_text(app)) == 1
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not any("0.0681" in line and "0.6158" in line for line in screen_text(app))

    drive(of_sentence(heads=2), act, size=(140, 50))

"""The explorer, every key pressed and everything clicked: Textual's pilot is the person."""

import asyncio

import numpy as np
import pytest
from driven import drive, of_file, of_sentence, screen_text, shown

import attnctl

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
    ("shift+tab", ("scores", (0, 0, 1))),
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
        for key, said in [
            ("b", "attention_weights has no batch axis"),
            ("l", "there is one trace"),
            ("u", "nothing is edited"),
        ]:
            await pilot.press(key)
            await pilot.pause()
            assert said in shown(app)
        await pilot.press("left_square_bracket")
        await pilot.pause()
        assert "nothing is edited" not in shown(app)

    drive(of_sentence(heads=2), act, (140, 40))


@pytest.mark.slow
def test_every_key_that_changes_something():
    plain_run, causal = attnctl.run("I love AI"), attnctl.run("I love AI", causal=True)
    options = {"edits": ["attention_weights[0,love,I]=0.25"], "causal": True}
    edited = attnctl.run("I love AI", **options)

    async def act(app, pilot):
        await pilot.press("slash", *"love", "enter")
        assert place(app) == ("attention_weights", (0, 1, 0))
        await pilot.press("slash", *"dog", "enter")
        await pilot.pause()
        assert "no token 'dog'" in shown(app)
        await pilot.press("e", "escape", "e", "enter")
        assert app.walk.layer.edits == ()
        await pilot.press("m")
        assert "causal, window 3,0" in shown(app)
        await pilot.press(*"causal", "enter", "m")
        assert "causal (on), window 3,0" in shown(app)
        await pilot.press("escape")
        assert np.array_equal(app.walk.trace["output"], causal["output"])
        await pilot.press("e", *"no", "enter")
        await pilot.pause()
        assert "is neither a" in shown(app)
        await pilot.press("e", *"0.25", "enter")
        assert np.array_equal(app.walk.trace["output"], edited["output"])
        assert "1 of 9 changed (11%), most by 0." in shown(app)
        assert "before the edits" in shown(app)
        assert any(" 11%" in line for line in screen_text(app) if "attention_weights" in line)
        await pilot.press("right_square_bracket")
        assert f"was {causal['head_outputs'][0, 1, 0]:.4g} before the edits" in shown(app)
        await pilot.press("s")
        assert "seed: 1" in shown(app)
        await pilot.press(*"12", "enter")
        assert app.walk.layer.made.settings.seed == 12
        assert np.array_equal(app.walk.trace["V"], attnctl.run("I love AI", seed=12, causal=True)["V"])
        await pilot.press("s", *"0", "enter", "u", "m", *"causal", "enter")
        assert all(np.array_equal(app.walk.trace[step], plain_run[step]) for step in plain_run)
        await pilot.press("t")
        assert app.walk.heat
        assert "· heat ·" in shown(app)
        await pilot.press("t", "w")
        await pilot.pause()
        assert "attnctl run 'I love AI' --step head_outputs" in shown(app)
        assert "printed when you leave" in shown(app)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "take the last edit" in shown(app)
        await pilot.press("question_mark", "shift+down", "shift+up", "q")

    app = drive(of_sentence(), act, (140, 44))
    assert app.written[0] == "attnctl run 'I love AI' --step head_outputs"
    assert app.error is None


def test_the_mouse_does_it():
    async def act(app, pilot):
        lines = screen_text(app)
        left = app.query_one("MatrixTable").region.x
        love = next(number for number, line in enumerate(lines) if line[left:].split()[:1] == ["love"])
        top, ai = love - 1, love + 1
        column = [lines[top].index(text, left) for text in lines[top][left:].split()[1:]]
        await pilot.click(offset=(column[1] + 1, ai))
        assert place(app) == ("attention_weights", (0, 2, 1))
        await pilot.click(offset=(left + 1, love))
        assert place(app) == ("attention_weights", (0, 1, 1))
        await pilot.click(offset=(column[2] + 1, top - 1))
        assert place(app) == ("attention_weights", (0, 1, 2))
        await pilot.click(offset=(left + 50, love))
        await pilot.click(offset=(column[0] + 1, ai + 1))
        assert place(app) == ("attention_weights", (0, 1, 2))
        lines = screen_text(app)
        operand = next(
            number for number, line in enumerate(lines) if "scaled_scores[0,love,lov" in line[:26]
        )
        await pilot.click(offset=(3, operand))
        assert place(app) == ("scaled_scores", (0, 1, 1))
        await pilot.click("#steps", offset=(0, app.walk.layer.steps.index("Q")))
        assert place(app) == ("Q", (0, 1, 0))
        foot = screen_text(app)[-1]
        await pilot.click(offset=(foot.index("head"), 39))
        assert place(app) == ("Q", (1, 1, 0))
        await pilot.click(offset=(foot.index("find"), 39))
        await pilot.press(*"AI", "enter")
        assert place(app) == ("Q", (1, 2, 0))
        await pilot.click(offset=(foot.index("back"), 39))
        assert place(app) == ("Q", (1, 1, 0))
        await pilot.click(offset=(foot.index("quit"), 39))

    drive(of_sentence(heads=2), act, (140, 40))


SIZES = ((80, 24), (44, 12), (300, 90), (20, 6))
SLOW_SIZES = [pytest.param(size, marks=pytest.mark.slow) for size in SIZES]


@pytest.mark.parametrize("size", [(140, 40), *SLOW_SIZES])
def test_every_size_of_terminal(size):
    async def act(app, pilot):
        lines = screen_text(app)
        assert len(lines) == size[1]
        await pilot.press("down", "t", "question_mark", "question_mark", "m", "escape", "w", "enter")
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

    def plainest(style):
        return all(each is None or each.is_default for each in (style.color, style.bgcolor))

    drive(of_sentence(heads=2, causal=True), act)


def test_in_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    async def act(app, pilot):
        await pilot.press("ctrl+end")
        segments = [segment for strip in app.screen._compositor.render_strips() for segment in strip]
        backs = {
            text: [each.style.bgcolor for each in segments if text in each.text]
            for text in ("1.0000", "0.0000")
        }
        assert backs["1.0000"][0] not in [None, *backs["0.0000"]]

    drive(of_sentence(heads=2, causal=True), act)


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
        for step in app.walk.layer.steps:
            await app.run_action(f"go('to_step',('{step}',))")
            assert app.walk.step in shown(app)

    assert drive(walk, act).error is None


def test_a_hidden_cell_says_which_rule():
    async def act(app, pilot):
        await pilot.press("right", "left_square_bracket")
        text = shown(app)
        assert "causal" in text.splitlines()[4][28:]
        assert "hidden by causal" in text

    drive(of_sentence(causal=True), act)


def test_a_bug_is_handed_on(monkeypatch):
    from attnctl.verbs import explore as go

    async def act(app, pilot):
        monkeypatch.setattr(go, "move", lambda *_: 1 / 0)
        app.post_message(Key("down", None))  # the pilot would wait for an app that has left
        for _ in range(500):
            await asyncio.sleep(0 if app.error else 0.01)

    with pytest.raises(ZeroDivisionError):
        drive(of_sentence(), act)


@pytest.mark.parametrize("width", [44, 80])
def test_the_foot_begins_with_following_and_going_back(width):
    async def act(app, pilot):
        assert "Enter follow Backspace back" in screen_text(app)[-1]

    drive(of_sentence(), act, (width, 24))


@pytest.mark.slow
def test_of_a_large_matrix_what_is_around_the_cell_is_shown(tmp_path):
    size = 2048
    step = of_sentence().trace.steps["attention_weights"]
    weights = np.random.default_rng(0).random((1, size, size), dtype=np.float32)
    trace = attnctl.run("I love AI")
    attnctl.Trace({step.name: step}, {step.name: weights}, dict(trace.header)).save(tmp_path / "big.npz")

    async def act(app, pilot):
        for keys in (
            ["pagedown", "end"],
            ["pagedown"] * 5,
            ["ctrl+end"],
            ["home"],
            ["t", "pageup", "t"],
            ["up"] * 40,
        ):
            await pilot.press(*keys)
            await pilot.pause()
            _, row, column = place(app)[1]
            assert len(app.rows) == len(app.columns) == 64
            assert f"{weights[0, row, column]:.4f}" in shown(app)
            table = app.query_one("MatrixTable")
            assert table.get_cell_at(table.cursor_coordinate).plain == f"{weights[0, row, column]:.4f}"

    drive(of_file(tmp_path / "big.npz"), act)


@pytest.mark.slow
def test_the_row_of_the_cell_is_always_in_view():
    async def act(app, pilot):
        for key, rows in (("down", range(1, 10)), ("up", range(8, -1, -1))):
            for row in rows:
                await pilot.press(key)
                assert place(app)[1][1] == row
                assert any(line[27:].split()[:1] == [f"w{row}"] for line in screen_text(app))

    drive(of_sentence(" ".join(f"w{at}" for at in range(10))), act, size=(60, 12))


@pytest.mark.parametrize("width", [44, 80, 120])
def test_no_key_of_the_foot_is_cut(width):
    whole = "Tab operand Enter follow Backspace back ? help q quit h head e edit t heat "
    whole += "m rule s seed / find w shell"

    async def act(app, pilot):
        foot = screen_text(app)[-1].rstrip()
        assert whole.startswith(foot)
        assert f"{whole} ".startswith(f"{foot} ")

    drive(of_sentence(), act, (width, 24))


def test_the_result_is_on_a_usual_screen_before_its_arithmetic():
    async def act(app, pilot):
        lines = [line[27:].strip() for line in screen_text(app)]
        result = lines.index("attention_weights[0,I,I] = 0.0259")
        assert lines[result + 1].startswith("attention_weights[0,I,I] = exp(")

    drive(of_sentence(heads=2), act, (80, 24))


def test_on_a_small_terminal_the_matrix_comes_before_the_arithmetic():
    async def act(app, pilot):
        lines = screen_text(app)
        rows = [number for number, line in enumerate(lines) if "0." in line[:20]]
        arithmetic = next(number for number, line in enumerate(lines) if "──" in line)
        assert len(rows) == 3
        assert max(rows) < arithmetic

    drive(of_sentence(heads=2), act, size=(40, 12))

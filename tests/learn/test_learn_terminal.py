"""Lessons on a terminal: what is typed, how it ends; a program that is checked whenever it is saved."""

import ast
import io
import json
from pathlib import Path

import pytest

from attnctl.cli.learn import grade_file
from attnctl.cli.program import program
from attnctl.sources.program import run as watching
from attnctl.verbs import learn as own
from attnctl.verbs.learn import lessons, read_progress

LESSON = {lesson.name: lesson for lesson in lessons()}["your-own"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Keys(Terminal):
    """Lines that are typed; after them Ctrl-D, or Ctrl-C where one of them is."""

    def readline(self, *_):
        line = super().readline()
        if line == "^C\n":
            raise KeyboardInterrupt
        return line


@pytest.fixture
def sit(tmp_path, monkeypatch):
    """A person at a terminal types lines; answers the code, and what stands on the screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LINES", "100")

    def sit(*args, keys=""):
        out, err = Terminal(), io.StringIO()
        return int(program(args, Keys(keys), out, err)), out.getvalue(), err.getvalue()

    return sit


def test_an_answer_is_graded_and_noted(sit, tmp_path):
    keys = "0.45 0.25 0.25 0.15\nhint\n0.39 0.24 0.24 0.14\nq\n"
    code, screen, _ = sit("learn", "--lesson", "softmax", keys=keys)
    assert code == 0
    assert "Not right yet: no known mistake" in screen
    assert "Right." in screen
    path = tmp_path / "data" / "attnctl" / "progress.json"
    assert json.loads(path.read_text())["done"] == {"attnctl": {"softmax": 2}}


def test_behind_the_last_lesson_no_other_is_offered(sit):
    first, *_, last = [lesson.name for lesson in lessons()]
    _, screen, _ = sit("learn", "--lesson", last, keys="show\n")
    assert "Enter: next lesson" not in screen
    assert "That was the last lesson. 0 of " in screen
    assert "Enter: next lesson" in sit("learn", "--lesson", first, keys="show\n")[1]
    assert "Enter: next lesson" not in sit("learn", "--lesson", first, keys="skip\nq\n")[1]


@pytest.mark.parametrize("keys", ["", "hint\n", "2\n"])
def test_control_d_leaves_a_clean_line(sit, keys):
    code, screen, err = sit("learn", "--lesson", "tokens", keys=keys)
    assert (code, err) == (0, "")
    assert screen.endswith("> \n")


def test_control_c_leaves_a_clean_line(sit):
    code, screen, err = sit("learn", "--lesson", "tokens", keys="hint\n^C\n")
    assert (code, err) == (130, "attnctl: interrupted\n")
    assert screen.endswith("> \n")


# --- a program of one's own ---

TEN_LINES = """
Q, K, V = X @ W_Q, X @ W_K, X @ W_V
scores = Q @ K.swapaxes(1, 2)
scaled_scores = scores / np.sqrt(2)
e = np.exp(scaled_scores)
attention_weights = e / e.sum(axis=-1, keepdims=True)
head_outputs = attention_weights @ V
concat = np.concatenate(list(head_outputs), axis=-1)
"""

SAVES = [
    ("Q = X @ W_Q", "Right so far: Q; next is K: K = X W_K."),
    ("print('shape', X.shape)", "shape (3, 4)\nNext is Q: Q = X W_Q."),
    ("Q = X @ W_K", "Not right yet: Q is the first wrong step"),
    ("Q = X @ W", "mine.py:{last}: NameError: name 'W' is not defined."),
    (TEN_LINES.replace("sqrt(2)", "sqrt(4)"), "(scale-by-d_k"),
    (TEN_LINES.replace("axis=-1, keep", "axis=-2, keep"), "(softmax-over-queries"),
    ("X = X + 1" + TEN_LINES, "X is not what the lesson gives"),
    (TEN_LINES, "Right."),
]


@pytest.mark.slow
def test_a_program_is_checked_whenever_it_is_saved(sit, tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    said, begun = [], []

    def look(_):
        """Between two looks the learner saves the next attempt."""
        if not begun:
            begun.append(path.read_text())
        if len(said) < len(SAVES):
            path.write_text(f"{begun[0]}{SAVES[len(said)][0]}\n" + "#" * len(said))
            said.append(None)

    monkeypatch.setattr(watching, "wait", look)
    code, screen, err = sit("learn", "--watch", "mine.py")
    assert (code, err) == (0, "")
    first, *rest = screen.split("mine.py, ")[1:]
    assert "Next is Q: Q = X W_Q." in first
    last = begun[0].count("\n") + 1  # what is saved follows what was begun
    for (_, expected), text in zip(SAVES, rest, strict=True):
        assert expected.replace("{last}", str(last)) in text
    assert "your-own" in read_progress(tmp_path / "data" / "attnctl" / "progress.json").of("attnctl")


def test_what_is_there_is_not_begun_anew(sit, tmp_path, monkeypatch):
    Path("mine.py").write_text("# mine\n")

    def leave(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "wait", leave)
    code, screen, _ = sit("learn", "--watch", "mine.py")
    assert code == 130
    assert Path("mine.py").read_text() == "# mine\n"
    assert "Wrote mine.py" not in screen


def test_where_nobody_watches_it_is_checked_once(call):
    assert call("learn", "--watch", "mine.py") == (
        0,
        "Wrote mine.py: what the lesson gives, and a line for you to fill in.\n",
        "",
    )
    assert call("learn", "--watch", "mine.py") == (1, "Next is Q: Q = X W_Q.\n", "")
    with Path("mine.py").open("a") as stream:
        stream.write(TEN_LINES)
    done = call("learn", "--watch", "mine.py")
    assert (done.code, done.out.partition("\n")[0]) == (0, "Right.")


HOSTILE = "x\nimport os; os.abort()\n\r\u2028#"


def test_whatever_a_lesson_says_only_its_numbers_are_carried_out(call):
    """Its title, and of its dump every text that a program could be begun with."""
    call("run", "I love AI", "-o", "dump.json")
    dump = json.loads(Path("dump.json").read_text())
    steps = {name: {**step, "formula": HOSTILE} for name, step in dump["steps"].items()}
    given = {**steps["W_O"], "axes": [HOSTILE, "d_model"]}
    hostile = {**dump, "sentence": HOSTILE, "steps": {HOSTILE: given, **steps}}
    Path("hostile.json").write_text(json.dumps(hostile))
    lesson = {
        "title": HOSTILE,
        "text": "x",
        "dump": "hostile.json",
        "ask": "x",
        "kind": "dump",
        "answer": "concat",
    }
    Path("own.yaml").write_text(json.dumps(lesson))
    assert call("learn", "--from", ".", "--watch", "mine.py", "--lesson", "own").err == ""
    body = ast.parse(Path("mine.py").read_text()).body
    assert {ast.unparse(each)[:10] for each in body if isinstance(each, ast.Import)} == {"import num"}
    made = [each for each in body if not isinstance(each, ast.Import)]
    assert made
    assert all(ast.unparse(each.value).startswith("np.array(") for each in made)


def test_a_program_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "SECONDS", 0.5)
    (tmp_path / "mine.py").write_text("while True: pass")
    _, verdict = grade_file(LESSON, str(tmp_path / "mine.py"), LESSON.run())
    assert "still running after 0.5 s" in verdict.says


REFUSED = [
    (("--watch", "mine.py", "--lesson", "softmax"), "of lessons that ask for a program there is your-own"),
    (("--watch", "mine.py", "--list"), "--list, --watch: one of them at a time"),
    (("--watch", "nowhere/mine.py"), "nowhere/mine.py: cannot be written"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED)
def test_what_is_not_watched(sit, args, message):
    code, screen, err = sit("learn", *args)
    assert (code, screen) == (2, "")
    assert message in err

"""attnctl learn: the list, one lesson, answers from a file, lessons of a teacher, what is done."""

import json

import pytest

from attnctl.store.files import data_folder
from attnctl.verbs.learn import OWN, Progress, lessons, read_progress

RIGHT = {
    "tokens": "2", "scale": "0.356", "softmax": "[0.387, 0.235, 0.235, 0.143]", "mixing": "0.62",
}  # fmt: skip


def answers_text(**changes):
    return "".join(f"{name}: {answer}\n" for name, answer in {**RIGHT, **changes}.items())


def test_the_list(call):
    done = call("learn", "--list")
    assert done.code == 0
    assert all(lesson.title in done.out for lesson in lessons())
    rows = json.loads(call("learn", "--list", "--json").out)
    assert [row["lesson"] for row in rows] == [lesson.name for lesson in lessons()]
    assert not any(row["done"] for row in rows)


def test_a_lesson_in_a_pipe_is_printed(call):
    done = call("learn", "--lesson", "one-score")
    assert (done.code, done.err) == (0, "")
    assert "What is scores[India,is]?" in done.out
    assert "1.494" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert call("learn", "--lesson", "4").out == done.out
    assert "dot" not in call("learn", "--lesson", "4", "--hint").out


@pytest.mark.sample(6)
@pytest.mark.parametrize("lesson", [lesson.name for lesson in lessons()])
def test_every_lesson_fits_80_columns_and_has_hints(call, lesson):
    assert max(map(len, call("learn", "--lesson", lesson).out.splitlines())) <= 80
    hints = call("learn", "--lesson", lesson, "--hint").out
    assert "There is no hint" not in hints
    assert max(map(len, hints.splitlines())) <= 80


@pytest.mark.parametrize(
    ("answers", "code", "verdicts"),
    [
        (answers_text(), 0, {}),
        (answers_text(scale="0.712"), 1, {"scale": (False, "no-scale")}),
        (answers_text(mixing="62 %"), 0, {}),
        (answers_text(mixing="0.6"), 2, {"mixing": (None, None)}),
        (answers_text(mixing="lots"), 2, {"mixing": (None, None)}),
        (answers_text(mixing="lots", scale="0.712"), 1, {"mixing": (None, None)}),
        (answers_text().replace("tokens: 2\n", ""), 1, {"tokens": None}),
    ],
)
def test_answers_from_a_file(call, tmp_path, answers, code, verdicts):
    (tmp_path / "answers.yaml").write_text(answers)
    done = call("learn", "--lesson", ",".join(RIGHT), "--answers", "answers.yaml", "--json")
    assert done.code == code, done
    told = json.loads(done.out)
    for name, expected in verdicts.items():
        found = told[name]
        assert (found and (found["right"], found["mistake"])) == expected
    assert all(each["right"] for name, each in told.items() if name not in verdicts and name != "scale")


def test_answers_are_keyed_by_number_too_and_come_from_stdin(call):
    done = call("learn", "--lesson", "4", "--answers", "-", stdin=b"4: 1.49\n")
    assert done.code == 0
    assert "1 of 1 lesson right." in done.out


def test_a_matrix_may_be_written_as_yaml_rows(call):
    text = b"softmax:\n  - [0.387, 0.235,\n     0.235, 0.143]\n"
    assert call("learn", "--lesson", "softmax", "--answers", "-", stdin=text).code == 0


def test_no_answer_ends_the_grading_of_the_others(call):
    """Every lesson but one gets an answer of another kind."""
    names = [lesson.name for lesson in lessons() if lesson.name != "mixing"]
    kinds = ["null", "", "lots", "[]", "{a: 1}", ".nan", "~", "true", "[1, [2]]", "x" * 5000]
    answers = [*zip(names, kinds * 3, strict=False), ("softmax", "0.4"), ("mixing", "0.622")]
    text = "".join(f"{name}: {answer}\n" for name, answer in dict(answers).items())
    done = call("learn", "--answers", "-", "--json", stdin=text.encode())
    assert done.code == 2, done.err
    told = json.loads(done.out)
    assert [name for name, each in told.items() if each["right"]] == ["mixing"]
    assert all(each["says"] for each in told.values())


REFUSED = [
    (["--lesson", "99"], "--lesson: no lesson '99'; there are 1 to 23"),
    (["--lesson", "softmx"], "--lesson: no lesson 'softmx'; did you mean softmax?"),
    (["--lesson", "1,2"], "--lesson: several"),
    (["--list", "--reset"], "--list, --reset: one of them at a time"),
    (["--json"], "--json: goes with --list or --answers"),
    (["--list", "--lesson", "1"], "--lesson: means nothing with --list"),
    (["--answers", "none.yaml"], "none.yaml: No such file or directory"),
    (["--from", "nowhere"], "nowhere: No such file or directory"),
    (["--from", "."], ".: no lesson in it"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda value: str(value)[:30])
def test_refused(call, args, message):
    done = call("learn", *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no answer in it"),
        (b"[1, 2]", "no answers"),
        (b"tokens: 2\ntokens: 3\n", "<stdin>:2 $.tokens: given twice"),
        (b"tokens: 2\nscael: 3\n", "<stdin>:2 no lesson 'scael'; did you mean scale or cache?"),
        (b"\xff", "not UTF-8"),
        (b"a: [", "<stdin>:"),
    ],
)
def test_answers_that_cannot_be_read(call, text, message):
    done = call("learn", "--answers", "-", stdin=text)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


LESSON = """title: Mine
text: Read this.
run: {sentence: a b, d_model: 2, heads: 1}
ask: Which id has b?
kind: number
answer: id[b]
"""


def test_lessons_of_a_teacher(call, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "01-first.yaml").write_text(LESSON)
    assert "first" in call("learn", "--from", "mine", "--list").out
    assert call("learn", "--from", "mine", "--answers", "-", stdin=b"first: 1\n").code == 0
    assert call("learn", "--from", "mine", "--answers", "-", stdin=b"first: 0\n").code == 1


WRONG_LESSONS = [
    ("kind: number", "kind: numbr", ":5 $.kind: numbr is not one of the choices"),
    ("answer: id[b]", "answer: id[b", ":6 $.answer: "),
    ("answer: id[b]", "answer: sqrtt(2)", ":6 $.answer: 'sqrtt(2)': no function sqrtt()"),
    ("heads: 1", "heads: 0", ":3 $.run.heads: 0 is too small"),
    ("ask:", "aks:", ":4 $.aks: unknown key; did you mean ask?"),
    ("title: Mine\n", "", "no title; a lesson needs it"),
    ("run: {sentence: a b, d_model: 2, heads: 1}", "run: example:nope", ":3 $.run: no example 'nope'"),
    ("answer: id[b]", "answer: id[b]\nwrong: [{mistake: no-scael}]", ":7 $.wrong[0].mistake: "),
    ("answer: id[b]", "answer: id[b]\nwrong: [{answer: '2'}]", "nothing that is said of it"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_LESSONS, ids=lambda value: str(value)[:24])
def test_a_lesson_with_problems_is_refused_by_its_line(call, tmp_path, old, new, message):
    (tmp_path / "1-a.yaml").write_text(LESSON.replace(old, new))
    done = call("learn", "--from", ".", "--list")
    assert (done.code, done.out) == (2, "")
    assert "1-a.yaml" in done.err
    assert message in done.err


@pytest.mark.parametrize(
    ("answer", "message"),
    [("scores[0,c,b]", "no token 'c'"), ("nothing[0]", "no step 'nothing'"), ("id[z]", "no token 'z'")],
)
def test_an_answer_that_the_run_does_not_have(call, tmp_path, answer, message):
    (tmp_path / "1-a.yaml").write_text(LESSON.replace("id[b]", answer))
    done = call("learn", "--from", ".", "--answers", "-", stdin=b"a: 1\n")
    assert (done.code, done.out) == (2, "")
    assert "1-a.yaml:6 $.answer: " in done.err
    assert message in done.err


# --- what is done ---


def test_what_is_done_is_kept_and_forgotten(call, tmp_path):
    path = tmp_path / "data" / "attnctl" / "progress.json"
    read_progress(path).add(OWN, "tokens", 2)
    assert json.loads(path.read_text())["done"] == {OWN: {"tokens": 2}}
    assert "1 of 23 lessons done." in call("learn", "--list").out
    assert "Lesson 2 of 23" in call("learn").out
    assert call("learn", "--reset") == (0, "", "")
    assert "0 of 23 lessons done." in call("learn", "--list").out
    assert "Lesson 1 of 23" in call("learn").out


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "broken",
    [b"{", b"[]", b'{"schema": "attnctl/progress/9", "done": {}}', b"\xff", b'{"done": 3}', b"[" * 9000],
)
def test_a_broken_file_is_said_and_left_alone(call, tmp_path, broken):
    path = tmp_path / "data" / "attnctl" / "progress.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(broken)
    done = call("learn", "--list")
    assert done.code == 0
    assert "progress.json: cannot be read: it is broken; nothing is noted until" in done.err
    read_progress(path).add(OWN, "tokens", 1)
    assert path.read_bytes() == broken
    assert call("learn", "--reset").code == 0
    assert call("learn", "--list").err == ""


@pytest.mark.parametrize(
    ("environ", "platform", "folder"),
    [
        ({"HOME": "/h"}, "linux", "/h/.local/share/attnctl"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/x"}, "linux", "/x/attnctl"),
        ({"HOME": "/h", "XDG_DATA_HOME": "relative"}, "linux", "/h/.local/share/attnctl"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Application Support/attnctl"),
        ({"USERPROFILE": "/u", "LOCALAPPDATA": "/l"}, "win32", "/l/attnctl"),
    ],
)
def test_the_data_folder_is_that_of_the_system(environ, platform, folder):
    assert data_folder(environ, platform).as_posix() == folder


def test_a_progress_that_is_nowhere_yet_is_empty(tmp_path):
    assert read_progress(tmp_path / "none.json") == Progress(tmp_path / "none.json")

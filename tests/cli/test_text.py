"""Text: tokens reach the screen whole and safe, whatever they hold and whatever the console can spell."""

import csv
import io
import json

import pytest

WHOLE = ["[red]", "[PAD]", "[/INST]", ":smile:", "{x}", "%s", "\\n", "<b>", "👩", "é", "猫"]
UNSAFE = {
    "\x1b[31m": "\\x1b[31m",
    "\x9b31m": "\\x9b31m",
    "\u202eabc": "\\u202eabc",
    "\u2066abc": "\\u2066abc",
    "a\x08b": "a\\x08b",
    "a\x7fb": "a\\x7fb",
    "\u200b": "\\u200b",
}
CHARACTERS = "tokenizer: {split: characters}\n"


@pytest.mark.parametrize("args", [(), ("--format", "markdown"), ("--format", "csv"), ("--json",)])
def test_markup_and_wide_characters_are_just_text(workplace, args):
    done = workplace.run("run", "--brief", *args, "--", " ".join(WHOLE))
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    if "markdown" in args:
        shown = shown.replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")
    if "--json" in args:
        assert json.loads(shown)["tokens"] == WHOLE
    else:
        assert [token for token in WHOLE if token.replace("\\", "") not in shown.replace("\\", "")] == []


@pytest.mark.parametrize("args", [(), ("--format", "markdown"), ("--format", "csv"), ("--json",)])
@pytest.mark.parametrize("forced", ["0", "1"])
def test_what_would_steer_a_terminal_is_shown_escaped(workplace, args, forced):
    done = workplace.run("run", "--brief", *args, "--", " ".join(UNSAFE), FORCE_COLOR=forced)
    shown = done.stdout.decode()
    for token in UNSAFE:
        assert token not in shown or token == "\u200b"  # seen by nobody, but part of emoji in data


@pytest.mark.parametrize(("token", "shown"), UNSAFE.items(), ids=ascii)
def test_messages_escape_what_they_repeat(workplace, token, shown):
    (workplace.folder / "c.yaml").write_text("vocab: [I]\n")
    for args in (
        ["run", "-c", "c.yaml", "--", token],
        ["show", f"{token}.npz"],
        [token],
        ["run", "I", "--step", token],
    ):
        done = workplace.run(*args)
        assert (done.returncode, done.stdout) == (2, b"")
        assert token not in done.stderr.decode()
    assert shown.encode() in workplace.run("show", f"{token}.npz").stderr


def test_json_gives_every_token_back(workplace):
    dump = json.loads(workplace.run("run", "--json", "--", " ".join(UNSAFE)).stdout)
    assert dump["tokens"] == " ".join(UNSAFE).split()


def test_tabs_and_newlines_are_visible(workplace):
    (workplace.folder / "c.yaml").write_text(CHARACTERS)
    shown = workplace.run("run", "-c", "c.yaml", "--brief", "--", "a\tb\nc d").stdout.decode()
    assert "\t" not in shown
    for label in ("\\t", "\\n", "␣"):
        assert label in shown


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "--brief", "--", "猫 é"], 0),
        (["run", "--brief", "--format", "markdown", "--", "猫 é"], 0),
        (["run", "--brief", "--format", "csv", "--", "猫 é"], 0),
        (["run", "--brief", "--json", "--", "猫 é"], 0),
        (["run", "-c", "c.yaml", "--", "猫"], 2),
        (["run", "--help"], 0),
        (["stats", "--help"], 0),
        (["check", "--help"], 0),
        (["config", "init", "猫"], 0),
        (["config", "schema"], 0),
    ],
    ids=ascii,
)
def test_a_console_without_the_characters_gets_escapes(workplace, args, code):
    (workplace.folder / "c.yaml").write_text("vocab: [I]\n")
    done = workplace.process(*args, PYTHONIOENCODING="ascii")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    if not {"--json", "--help", "schema"} & {*args}:  # these are UTF-8 anywhere
        assert (done.stdout + done.stderr).isascii()


def test_a_locale_without_the_characters_gets_escapes(workplace):
    (workplace.folder / "s.txt").write_text("猫 é", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = workplace.process("run", "--file", "s.txt", "--brief", **plain)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"\\u732b" in done.stdout


def test_csv_cells_that_a_spreadsheet_would_run_are_quoted(workplace):
    tokens = ["=1+1", "+1", "-1", "@SUM(A1)", "a,b", 'a"b']
    done = workplace.run("run", "--brief", "--format", "csv", "--", " ".join(tokens))
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert {row["column"] for row in rows if row["step"] == "attention_weights"} == {
        *("'=1+1", "'+1", "'-1", "'@SUM(A1)", "a,b", 'a"b')
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "false"}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"NO_COLOR": "1"}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("args", [["run", "I"], ["config", "schema"], ["run", "I", "--json"], ["run", ""]])
def test_colours_are_where_they_are_asked_for(workplace, environ, coloured, args):
    done = workplace.run(*args, **environ)
    assert (b"\x1b" in done.stdout) == (coloured and args == ["run", "I"])
    assert b"\x1b" not in done.stderr

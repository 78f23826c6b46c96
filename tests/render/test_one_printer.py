"""Lines reach a terminal through one function, which escapes them; what else writes says why it may."""

import ast
import io
import re
from pathlib import Path

import pytest

import attnctl
from attnctl.cli.complete import complete_word
from attnctl.drawing.screen.output import PlainOutput, output_for, print_lines, say
from attnctl.record.cells import parse_address, spelling

PACKAGE = Path(attnctl.__file__).parent
STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
WORTH_A_LOOK = re.compile(r"std(out|err)|print\(|echo")
HARMLESS = {"output_for", "isinstance"}
ASKED = {"isatty", "fileno", "encoding", "reconfigure", "flush"}
"""What a stream is asked or told beside being written to."""

ELSEWHERE = {
    ("cli/program.py", "say"): "messages on stderr, through the function that prints",
    ("cli/program.py", "abandon"): "a stream that nobody reads is closed",
    ("cli/output.py", "write"): "a format, which escapes as it must: JSON, CSV, Markdown",
    ("cli/explain.py", "write_json"): "JSON, which is encoded",
    ("formats.py", "write"): "a format, as above",
    ("base/plugins.py", "sys.stderr.write"): "a plug-in that is left out, in characters that are printed",
    ("store/files.py", "sink"): "JSON, which is encoded",
    ("store/files.py", "write_found"): "the same: findings",
    ("cli/output.py", "Console"): "a bar with a label of ours",
    ("cli/capture.py", "sys.stdout.write"): "what the program printed, which is its own",
    ("cli/capture.py", "sys.stderr.write"): "what the program printed, which is its own",
}
"""What writes, or is given a stream to write to, beside views; each with why it may."""


def writings():
    """Where something is printed: the file, and what is called."""
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        text = path.read_text()
        calls = ast.walk(ast.parse(text)) if WORTH_A_LOOK.search(text) else ()
        for node in calls:
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            on, _, name = called.rpartition(".")
            passed = [*node.args, *(each.value for each in node.keywords)]
            given = {ast.unparse(each) for each in passed if isinstance(each, ast.Attribute)}
            if called == "print" or name in {"echo", "secho"} or (on in STREAMS and name not in ASKED):
                yield place, called
            elif given & STREAMS and name not in HARMLESS:
                yield place, name


def test_lines_are_printed_in_one_place():
    assert set(writings()) == set(ELSEWHERE)


HOSTILE = ["\x1b]0;t\x07", "\u009b31m", "\u2066a\u2069", "\u202eb", "a\nb", "\r", "\x7f", "\u2028"]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("forced", ["", "1"])
def test_no_line_tells_a_terminal_anything(text, forced):
    stream = io.StringIO()
    say(text, stream=stream)
    print_lines(
        [[(text, ""), (" and more", "name")]], output_for(stream, {"FORCE_COLOR": forced, "COLUMNS": "99"})
    )
    print_lines([[(text, "")]], PlainOutput(stream))
    assert text not in stream.getvalue()
    assert stream.getvalue().count("\n") == 3


@pytest.mark.parametrize("token", HOSTILE, ids=ascii)
def test_addresses_and_completions_hold_what_can_be_printed(token):
    address = f"scores[{spelling(token)},0]"
    assert address.isprintable()
    assert parse_address(address).parts[0].text == token
    assert complete_word([token, "a"], "") == ["a"]

"""Slips of the shell, of word processors and of habit: the command that was meant, exit 2."""

import shlex

import pytest

SLIPS = [
    (["run", "I love AI", "—heads", "2"], ["run", "I love AI", "--heads", "2"]),
    (["run", "I love AI", "–heads=2"], ["run", "I love AI", "--heads=2"]),
    (["run", "I love AI", "-causal"], ["run", "I love AI", "--causal"]),
    (["run", "I love AI", "-heads", "2", "—causal"], ["run", "I love AI", "--heads", "2", "--causal"]),
    (["run", "“I", "love", "AI”"], ["run", "I love AI"]),
    (["run", "„I", "love", "AI“", "--causal"], ["run", "I love AI", "--causal"]),
    (["run", "‘hello’"], ["run", "hello"]),
    (["run", "i-love-ai"], ["run", "example:i-love-ai"]),
    (["run", "examples:i-love-ai", "--brief"], ["run", "example:i-love-ai", "--brief"]),
    (["explain", "i-love-ai", "A[0,0,0]"], ["explain", "example:i-love-ai", "A[0,0,0]"]),
    (
        ["exercise", "make", "a.yaml", "-blank", "scores"],
        ["exercise", "make", "a.yaml", "--blank", "scores"],
    ),
]


@pytest.mark.parametrize(("typed", "meant"), SLIPS)
def test_the_command_that_was_meant_is_printed(call, typed, meant):
    code, out, err = call(*typed)
    assert (code, out) == (2, "")
    _, command = err.split("; type: ")
    assert shlex.split(command) == ["attnctl", *meant]


@pytest.mark.parametrize(
    "words",
    [
        ["— said he"],
        ["a – b"],
        ["“I love AI” he said"],
        ["it’s"],
        ["--", "i-love-ai"],
        ["--", "“hello”"],
        ["I love AI", "-o-"],
        ["one-matrices"],
    ],
)
def test_what_may_be_meant_runs(call, words):
    assert call("run", "--brief", *words).code == 0


def test_words_for_options(call):
    assert call("help", "explain") == call("explain", "--help")
    assert call("help") == call("--help")
    assert call("version") == call("--version")


@pytest.mark.parametrize("word", ["7", "softmax"])
def test_a_lesson_by_number_or_name(call, word):
    assert call("learn", word) == call("learn", "--lesson", "7")
    assert "a lesson is named already" in call("learn", word, "--lesson", "7").err
    assert "leave out LESSON" in call("learn", word, "--list").err


def test_two_configs(call):
    done = call("run", "example:one-matrix", "example:i-love-ai")
    assert done.code == 2
    assert "example:i-love-ai: a config after other words" in done.err

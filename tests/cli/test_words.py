"""The words of a command line without Typer: the texts that it would give, or nothing."""

from contextlib import contextmanager
from functools import wraps

import pytest
from commands import commands
from hypothesis import given
from hypothesis import strategies as st
from typer import TyperException

from attnctl.cli.app import app, load_command
from attnctl.cli.command import LEFT_OUT, find_command
from attnctl.cli.program import may_be_slip, program

COMMANDS = dict(commands())
VALUES = ["", "-", "--", "-1", "0", "I love AI", "a=b", "--full", "-o", "x.json", "it's own"]


@contextmanager
def caught(registered):
    """What a command is called with, in place of carrying it out."""
    seen = []

    @wraps(registered.run)
    def look(**texts):
        seen.append(texts)
        return 0

    load_command.cache_clear()
    module = __import__(registered.run.__module__, fromlist=["COMMANDS"])
    kept = module.COMMANDS[registered.name]
    module.COMMANDS[registered.name] = registered._replace(run=look)
    try:
        yield seen
    finally:
        module.COMMANDS[registered.name] = kept
        load_command.cache_clear()


def by_typer(name, registered, words):
    """The texts that Typer gives; None where it has something to say."""
    with caught(registered) as seen:
        try:
            app([*name.split(), *words], prog_name="attnctl", standalone_mode=False)
        except TyperException:
            return None
        return seen[0]


def words_for(registered):
    flags = list(registered.by_flag())
    assigned = st.builds("{}={}".format, st.sampled_from(flags or ["--none"]), st.sampled_from(VALUES))
    bundled = st.builds("{}{}".format, st.sampled_from(flags or ["--none"]), st.sampled_from(VALUES))
    word = st.one_of(st.sampled_from([*flags, *VALUES]), assigned, bundled, st.just("--unknown"))
    return st.lists(word, max_size=6)


def as_lists(texts):
    """Two words of an option are a list or a tuple, as Typer's version has it."""
    return texts and {name: list(text) if isinstance(text, tuple) else text for name, text in texts.items()}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", COMMANDS)
@given(data=st.data())
def test_the_words_of_a_command_are_split_as_typer_does(name, data):
    registered = COMMANDS[name]
    words = data.draw(words_for(registered))
    texts = registered.texts_of(words)
    if texts is not None:
        assert as_lists(texts) == as_lists(by_typer(name, registered, words))


@pytest.mark.parametrize(
    ("command", "words", "texts"),
    [
        ("run", ["I love AI", "--heads", "2"], {"source": ["I love AI"], "heads": "2"}),
        ("run", ["--heads=2", "I", "love"], {"source": ["I", "love"], "heads": "2"}),
        ("run", ["a", "--scale", "-1", "--", "--full"], {"source": ["a", "--full"], "scale": "-1"}),
        ("run", ["a", "-o", "x", "--output", "y", "--full"], {"output": ["x", "y"], "full": True}),
        ("run", ["a", "--heads", "1", "--heads", "2"], {"heads": "2"}),
        ("conform", ["a", "--backward"], {"backward": LEFT_OUT["--backward"]}),
        ("conform", ["a", "--backward", "--quick"], {"backward": LEFT_OUT["--backward"], "quick": True}),
        ("conform", ["a", "--backward", "g.npz"], {"backward": "g.npz"}),
        ("run", ["-"], {"source": ["-"]}),
        ("run", [], {"source": None}),
        ("effect", ["x", "--between", "a", "-b", "--mean"], {"between": ("a", "-b"), "mean": True}),
        ("effect", ["x", "--between=a", "b"], {"between": ("a", "b")}),
    ],
)
def test_words_that_need_no_typer(command, words, texts):
    found = COMMANDS[command].texts_of(words)
    assert found is not None
    assert {name: found[name] for name in texts} == texts


@pytest.mark.parametrize(
    "words",
    [["--help"], ["-h"], ["--help-all"], ["--full=1"], ["-ox.json"], ["--no"], ["a", "--heads"], ["-1"]],
)
def test_words_that_typer_explains(words):
    assert COMMANDS["run"].texts_of(words) is None


def test_arguments_that_are_missing_or_too_many_are_told_by_typer():
    assert COMMANDS["diff"].texts_of(["a.json", "b.json", "c.json"]) is None
    assert COMMANDS["config check"].texts_of([]) is None


def test_a_command_is_found_by_its_words():
    assert find_command(["run", "a"]).words == ["a"]
    assert find_command(["config", "init", "a"]).words == ["a"]
    for words in ([], ["--help"], ["nothing"], ["config"], ["config", "nothing"]):
        assert find_command(words) is None


def test_the_words_of_a_program_are_its_own():
    texts = COMMANDS["capture"].texts_of(["--call", "1", "train.py", "--epochs", "2", "--", "x"])
    assert (texts["call"], texts["words"]) == ("1", ["train.py", "--epochs", "2", "--", "x"])


@pytest.mark.parametrize("word", ["I love AI", "2", "--heads", "-1", "-"])
def test_what_is_never_a_slip(word):
    assert not may_be_slip(word)


@pytest.mark.parametrize("word", ["-heads", "\u2014heads", "cats-chase-mice", "\u201cI", "example"])
def test_what_may_be_one(word):
    assert may_be_slip(word)


def test_an_interrupt_of_a_command_is_told_without_typer(monkeypatch, capsys):
    def interrupted(**texts):
        raise KeyboardInterrupt

    registered = COMMANDS["examples"]._replace(run=interrupted)
    module = __import__(COMMANDS["examples"].run.__module__, fromlist=["COMMANDS"])
    monkeypatch.setitem(module.COMMANDS, "examples", registered)
    assert program(["examples"]) == 130
    assert capsys.readouterr().err == "attnctl: interrupted\n"

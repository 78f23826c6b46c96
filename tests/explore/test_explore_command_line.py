"""attnctl explore from the shell: what it refuses and what it names instead."""

from importlib import util

import pytest

from attnctl.sources.dump import Dump
from attnctl.sources.model import Layers
from attnctl.sources.sentence import Sentence

pytest.importorskip("textual")


def test_no_terminal_is_exit_2_and_names_what_to_use(call):
    done = call("explore", "I love AI")
    assert done[:2] == (2, "")
    assert "explore needs a terminal, and standard input is none" in done.err
    assert "attnctl run SENTENCE shows every step" in done.err


def test_without_textual_the_extra_is_named(call, monkeypatch):
    monkeypatch.setattr("attnctl.cli.explore.find_spec", lambda name: None)
    done = call("explore", "I love AI")
    assert done[:2] == (2, "")
    assert "pip install 'attnctl[tui]'" in done.err
    assert util.find_spec("textual")


@pytest.fixture
def started(call, monkeypatch):
    """A command line on what it takes for a terminal: its code, what it says, what it would explore."""
    found = []
    monkeypatch.setattr("attnctl.cli.explore.require_terminal", lambda _: None)
    monkeypatch.setattr(
        "attnctl.cli.explore.explore_on_terminal", lambda source, *_, **__: found.append(source)
    )

    def run(*args):
        done = call("explore", *args)
        return (done.code, done.err, found[-1] if found else None)

    return run


def test_what_is_explored(started, tmp_path, call):
    code, _, source = started("I love AI", "--heads", "2", "--edit", "V=0")
    assert (code, type(source), source.text) == (0, Sentence, "I love AI")
    assert (source.settings.heads, source.settings.edits) == (2, ("V=0",))
    call("run", "I love AI", "we", "-o", "s.jsonl")
    assert type(started("s.jsonl")[2]) is Dump
    assert len(started("s.jsonl")[2].traces()) == 2
    assert started("s.jsonl", "--trace", "1")[2].words == ("s.jsonl[1]",)
    source = started("--model", "there", "--ids", "1,2", "--layer", "0,1", "--edit", "V=0")[2]
    assert (type(source), source.layers, source.input.ids) == (Layers, "0,1", (1, 2))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["s.json", "--seed", "1"], "--seed: only a sentence has that, and this is a dump"),
        (["s.json", "--edit", "V=0"], "--edit: only a sentence has that, and this is a dump"),
        (["s.json", "--causal"], "this dump says itself how each number came about"),
        (["I love AI", "--trace", "1"], "--trace: only a dump has that"),
        (["I love AI", "--layer", "1"], "--layer: only a dump has that"),
        (["I love AI", "--heads", "0"], "--heads"),
        (["--model", "there", "--heads", "2", "--ids", "1"], "--heads: means nothing with --model"),
        (["missing.json"], "missing.json"),
        (["x", "-c", "-"], "standard input is where the keys come from"),
    ],
)
def test_what_is_refused(started, call, args, said, monkeypatch):
    from attnctl.verbs.explore.remake import begin_walk

    call("run", "I love AI", "-o", "s.json")
    monkeypatch.setattr(
        "attnctl.cli.explore.explore_on_terminal", lambda source, *_, **__: begin_walk(source) and None
    )
    code, err, _ = started(*args)
    assert code == 2
    assert said in err

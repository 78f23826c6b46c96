"""What to type next, after a finding on a terminal: a command that runs."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from attnctl import load
from attnctl.cli import diff, model, stats
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text, with_next
from attnctl.verbs.diff import diff as compare
from attnctl.verbs.stats.tally import measure_heads

ROOT = Path(__file__).parent.parent.parent
CHECKPOINTS = ROOT / "tests" / "models" / "checkpoints"
FULL, CAUSAL = (str(ROOT / "samples" / "variants" / f"{name}.json") for name in ("full", "causal"))


def test_only_a_terminal_gets_it_and_in_one_line():
    def view(screen):
        yield [("found", "")]

    command = ["attnctl", "explain", "a file.json", "scores[0,1,2]"]
    for fits, lines in ((False, ["found"]), (True, ["found", "", f"next: {shlex.join(command)}"])):
        assert list(plain_text(with_next(view, command)(Screen(20, fits)))) == lines
    assert list(plain_text(with_next(view, [])(Screen(20, fits=True)))) == ["found"]


@pytest.fixture
def followed(call):
    """The output of a command that was said to be next."""

    def follow(command):
        assert command[0] == "attnctl"
        done = call(*command[1:])
        assert done.code == 0, done.err
        return done.out

    return follow


def test_a_difference_is_explained_where_it_is_largest(followed):
    found = compare(load(FULL), load(CAUSAL))
    assert "attention_weights[0,the#1,the#1] = " in followed(diff.command_to_explain(CAUSAL, [found]))
    assert not diff.command_to_explain(FULL, [compare(load(FULL), load(FULL))])
    assert not diff.command_to_explain("-", [found])


def test_statistics_go_on_to_the_head_with_the_largest_weight(followed):
    trace = load(FULL)
    head = int(np.argmax(trace["attention_weights"].max(axis=(-1, -2))))
    measured = measure_heads(trace, FULL)
    command = stats.command_to_show([measured])
    assert command[-1] == str(head)
    assert "attention_weights" in followed(command)


def test_a_model_that_reads_one_text_is_run():
    from attnctl.verbs.models.about import describe_checkpoint

    said = [
        bool(model.command_to_run(describe_checkpoint(str(CHECKPOINTS / name))))
        for name in ("gpt-oss", "vit", "t5")
    ]
    assert said == [True, False, False]

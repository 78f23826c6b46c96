"""A layer of a model on a terminal: the head that says most, and nothing that every head says."""

import numpy as np
import pytest
from render_golden import piped, terminal

from attnctl import run
from attnctl.drawing.show.telling import Look, telling_looks

WORDS = ["[CLS]", "the", "animal", "was", "very", "tired", ".", "[SEP]"]
SPECIAL = [0, 7]
ANIMAL, TIRED, STOP = 2, 5, 6


def layer(*heads, special=SPECIAL, words=WORDS):
    """A trace of a layer whose heads have these weights, (query, key)."""
    trace = run("the animal was very tired . it is", heads=len(heads), d_model=4 * len(heads))
    trace.arrays["attention_weights"] = np.array(heads)
    trace.header.update(model="models/tiny", layer=3, special=special, tokens=words)
    return trace


def head(*looks, rest=0):
    """Weights of one head: these (query, key, share), and what is left on one key."""
    weights = np.zeros((8, 8))
    for query, key, share in looks:
        weights[query, key] = share
    weights[:, rest] += 1 - weights.sum(axis=1)
    return weights


SINK = head()
PREVIOUS = head(*[(query, query - 1, 0.95) for query in range(1, 8)])
NEIGHBOUR = head((4, 5, 0.9))
FAR = head((TIRED, ANIMAL, 0.3))

LAYERS = {
    "the first token": ([SINK, FAR], 1, (TIRED, ANIMAL)),
    "a special token at the end": ([head(rest=7), FAR], 1, (TIRED, ANIMAL)),
    "a full stop": ([head((TIRED, STOP, 0.9), (3, STOP, 0.8)), FAR], 1, (TIRED, ANIMAL)),
    "the token before": ([PREVIOUS, FAR], 1, (TIRED, ANIMAL)),
    "a neighbour": ([NEIGHBOUR, FAR], 1, (TIRED, ANIMAL)),
    "a special query": ([head((7, ANIMAL, 0.9)), FAR], 1, (TIRED, ANIMAL)),
    "a neighbour, where there is no more": ([SINK, NEIGHBOUR], 1, (4, 5)),
}


@pytest.mark.parametrize("passed_over", LAYERS)
def test_what_every_sentence_has_is_passed_over(passed_over):
    heads, best, (query, key) = LAYERS[passed_over]
    first, *others = telling_looks(layer(*heads))
    assert (first.head, first.query, first.key) == (best, query, key)
    assert sorted(look.head for look in [first, *others]) == [0, 1]


def test_a_layer_of_previous_token_heads_shows_one_of_them():
    (look,) = telling_looks(layer(PREVIOUS))
    assert look == Look(head=0, query=0, key=0, share=1.0, tells=False)


def test_a_screen_says_it_first_and_what_to_type_for_the_rest():
    lines = terminal(layer(SINK, FAR, PREVIOUS), 100, height=45).splitlines()
    assert lines[2] == 'Layer 3, head 1: "tired" gives 30 % of its attention to "animal".'
    assert "Add --head 1                  every step of this head" in lines
    assert sum("gives" in line for line in lines) == 1
    assert "… and 2 heads more" in lines


@pytest.mark.parametrize("height", [18, 45])
def test_the_weights_of_the_head_are_there(height):
    """Lines are counted before they are printed, which leaves nothing of rows that can be read once."""
    lines = terminal(layer(SINK, FAR), 100, height=height).splitlines()
    words, *numbers = next(line for line in lines if line.startswith("│ tired ")).strip("│ ").split()
    numbers.remove("│")
    assert (words, list(map(float, numbers))) == ("tired", [0.7, 0, 0.3, 0, 0, 0, 0, 0])


def test_it_fits_where_there_is_little_room():
    lines = terminal(layer(SINK, FAR), 80, height=18).splitlines()
    assert len(lines) < 18
    assert lines[-1] == "Add --head 1, --step attention_weights or --full for the rest."


def test_other_heads_that_tell_have_a_sentence_each():
    text = terminal(layer(FAR, head((ANIMAL, 1, 0.9), (TIRED, 3, 0.2))), 100, height=45)
    assert 'head 1: "tired" gives 20 % of its attention to "was"' in text


def test_one_head_and_a_pipe_have_every_step():
    trace = layer(SINK, FAR)
    assert "Add --head" not in piped(trace)
    for step in trace.steps:
        assert step in piped(trace)

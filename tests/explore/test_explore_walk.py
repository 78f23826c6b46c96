"""The walk as a value: moving, following, finding, and what if."""

import numpy as np
import pytest
from driven import DUMPS, VARIANTS, of_file, of_sentence

import attnctl
from attnctl.base.errors import AttnError
from attnctl.inputs.config.fields import SETTABLE
from attnctl.math.rules import Padding
from attnctl.verbs import explore as go
from attnctl.verbs.explore import remake

WALK = of_sentence(heads=2)


def at(walk):
    return walk.step, walk.place.cell


def test_it_begins_at_the_first_weight():
    assert at(WALK) == ("attention_weights", (0, 0, 0))


@pytest.mark.parametrize(
    ("rows", "columns", "cell"),
    [
        (1, 0, (0, 1, 0)),
        (0, 2, (0, 0, 2)),
        (-1, -1, (0, 0, 0)),
        (99, 1, (0, 2, 1)),
        (2, 99, (0, 2, 2)),
    ],
)
def test_moving_ends_at_the_edges(rows, columns, cell):
    assert go.move(WALK, rows, columns).place.cell == cell


def test_following_a_weight_back_to_the_embedding():
    """The cells that are typed in are those of the textbook's lines: A, S / √d_k, S, Q, X, E."""
    walk = go.move(WALK, 1, 2)
    for number, expected in [
        (0, ("scaled_scores", (0, 1, 2))),
        (0, ("scores", (0, 1, 2))),
        (1, ("K", (0, 2, 0))),
        (0, ("X", (2, 0))),
        (0, ("embeddings", (2, 0))),
    ]:
        walk = go.follow(go.choose_operand(walk, number))
        assert at(walk) == expected
    with pytest.raises(AttnError, match="nothing was read"):
        go.follow(walk)
    for expected in ["X", "K", "scores", "scaled_scores", "attention_weights"]:
        walk = go.back(walk)
        assert walk.step == expected
    assert walk.place.cell == (0, 1, 2)
    with pytest.raises(AttnError, match="nothing to go back to"):
        go.back(walk)


def test_operands_go_round():
    assert [go.choose_operand(WALK, number).operand for number in (0, 1, 2, 3, -1)] == [0, 1, 2, 0, 2]


def test_a_step_keeps_the_head_the_query_and_the_key():
    walk = go.along(go.move(WALK, 1, 2), "head", 1)
    for step, cell in [
        ("Q", (1, 1, 0)),
        ("K", (1, 2, 0)),
        ("X", (1, 0)),
        ("scores", (1, 1, 2)),
        ("output", (1, 0)),
        ("attention_weights", (1, 1, 2)),
    ]:
        walk = go.to_step(walk, step)
        assert at(walk) == (step, cell)


def test_steps_in_order_and_their_ends():
    steps = WALK.layer.steps
    walk = go.to_step(WALK, steps[0])
    for name in steps[1:]:
        walk = go.go_step(walk, 1)
        assert walk.step == name
    with pytest.raises(AttnError, match="output is the last step"):
        go.go_step(walk, 1)


@pytest.mark.parametrize(
    ("axis", "step", "said"),
    [
        ("head", "X", "X has no head axis"),
        ("batch", "Q", "Q has no batch axis"),
        ("head", "attention_weights", "there is one head"),
    ],
)
def test_heads_that_are_not_there(axis, step, said):
    with pytest.raises(AttnError, match=said):
        go.along(go.to_step(of_sentence(), step), axis, 1)


CATS = of_sentence("the cat sat on the mat", heads=2)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("cat", (0, 1, 0)),
        ("the#2", (0, 4, 0)),
        (",mat", (0, 0, 5)),
        ("sat,on", (0, 2, 3)),
        ("attention_weights[1,on,the#2]", (1, 3, 4)),
        ("A[1,on,-1]", (1, 3, 5)),
    ],
)
def test_finding(text, cell):
    assert at(go.find_token(CATS, text)) == ("attention_weights", cell)


@pytest.mark.parametrize("text", ["dog", ",dog", "cat,dog", "the", "scores[0,dog,0]", "nothing[0]"])
def test_what_is_not_found_is_said(text):
    with pytest.raises(AttnError):
        go.find_token(CATS, text)


# --- what if ---

EDITS = [
    ("0.9", "attention_weights[0,I,I]=0.9"),
    ("+=1", "attention_weights[0,I,I]+=1"),
    ("*= 0", "attention_weights[0,I,I]*= 0"),
    ("attention_weights[1,love,:]=0", "attention_weights[1,love,:]=0"),
    ("W_O[0,0]=7", "W_O[0,0]=7"),
]


@pytest.mark.parametrize(("text", "edit"), EDITS)
def test_an_edit_is_that_of_run(text, edit):
    edited = remake.add_edit(WALK, text)
    expected = attnctl.run("I love AI", heads=2, edits=[edit])
    plain = attnctl.run("I love AI", heads=2)
    assert edited.layer.edits == (edit,)
    assert list(edited.trace) == list(expected)
    for step in expected:
        assert np.array_equal(edited.trace[step], expected[step])
        changed = edited.layer.changed(step)
        difference = expected[step] - plain[step]
        assert changed == (np.count_nonzero(difference), difference.size, np.abs(difference).max())
    assert edited.layer.changed(edit.partition("[")[0])[0]
    back = remake.undo_edit(edited)
    assert back.layer.before is None
    assert all(np.array_equal(back.trace[step], plain[step]) for step in plain)


@pytest.mark.parametrize("text", ["", "love", "nan", "scores[0,0]=x", "no_step=1", "1=2", "inf"])
def test_what_is_no_edit_is_refused(text):
    with pytest.raises(AttnError):
        remake.add_edit(WALK, text)


def test_edits_add_up_and_outlive_a_rule_and_a_seed():
    walk = remake.with_seed(
        remake.switch_rule(remake.add_edit(remake.add_edit(WALK, "0.5"), "+=1"), "causal"), "7"
    )
    edits = ["attention_weights[0,I,I]=0.5", "attention_weights[0,I,I]+=1"]
    expected = attnctl.run("I love AI", heads=2, edits=edits, causal=True, seed=7)
    plain = attnctl.run("I love AI", heads=2, causal=True, seed=7)
    assert list(walk.trace) == list(expected)
    assert all(np.array_equal(walk.trace[step], expected[step]) for step in expected)
    assert all(np.array_equal(walk.layer.before[step], plain[step]) for step in plain)


RULES = {
    each.name: {each.keyword: True if each.switch else each.example}
    if each.flag
    else {"positions": "alibi"}
    for each, kind in SETTABLE.items()
    if kind is not Padding
}
"""Every rule at its example, by keyword; ALiBi is asked for as positions."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_switched_on_and_off(name):
    on = remake.switch_rule(CATS, name)
    expected = attnctl.run("the cat sat on the mat", heads=2, **RULES[name])
    assert all(np.array_equal(on.trace[step], expected[step]) for step in expected)
    assert list(remake.switchable_rules(on).values()) == [each == name for each in RULES]
    off = remake.switch_rule(on, name)
    assert all(np.array_equal(off.trace[step], CATS.trace[step]) for step in CATS.trace)
    assert list(off.trace) == list(CATS.trace)


def test_a_rule_switched_off_and_on_keeps_its_number():
    walk = of_sentence(window=(1, 0))
    again = remake.switch_rule(remake.switch_rule(walk, "window"), "window")
    assert again.layer.made.settings.rules == walk.layer.made.settings.rules


def test_where_a_step_is_gone_one_stands_at_the_step_before():
    walk = go.to_step(go.move(remake.switch_rule(WALK, "causal"), 1, 1), "masked_scores")
    off = remake.switch_rule(go.to_step(walk, "output"), "causal")
    assert at(go.back(off)) == ("scaled_scores", (0, 1, 1))


def test_a_rule_that_is_not_there():
    with pytest.raises(AttnError, match="no rule 'padding'; there are causal, window"):
        remake.switch_rule(WALK, "padding")


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "99999999999999999999"])
def test_what_is_no_seed_is_refused(text):
    with pytest.raises(AttnError, match="seed"):
        remake.with_seed(WALK, text)


# --- what cannot be carried out again says why ---


def test_a_dump_without_its_recipe(tmp_path):
    weights = np.full((1, 2, 2), 0.5)
    step = of_sentence().trace.steps["attention_weights"]
    attnctl.Trace({step.name: step}, {step.name: weights}).save(tmp_path / "w.npz")
    walk = of_file(tmp_path / "w.npz")
    assert "scaled_scores is not in this dump" in walk.node.why_not
    for attempt in (remake.add_edit, remake.with_seed, remake.switch_rule):
        with pytest.raises(AttnError, match="does not say how it was made"):
            attempt(walk, "1")


def test_an_edited_dump_is_not_edited_again(tmp_path):
    path = str(tmp_path / "edited.json")
    attnctl.run("I love AI", edits=["V=0"]).save(path)
    with pytest.raises(AttnError, match="was edited when it was made"):
        remake.add_edit(of_file(path), "1")


def test_a_dump_that_comes_to_other_numbers_is_not_taken_for_its_config(tmp_path):
    path = str(tmp_path / "wrong.json")
    trace = attnctl.run("I love AI")
    trace.arrays["scores"][0, 0, 0] += 1e-6
    trace.save(path)
    with pytest.raises(AttnError, match="other numbers"):
        remake.add_edit(of_file(path), "1")


@pytest.mark.parametrize(
    "path", [VARIANTS / "cache.json", VARIANTS / "mask.json"], ids=lambda path: path.stem
)
def test_nothing_is_drawn_where_arrays_were_given(path):
    with pytest.raises(AttnError, match="nothing is drawn"):
        remake.with_seed(of_file(path), "1")


def test_lengths_that_the_file_lacks():
    with pytest.raises(AttnError, match="key_lengths are not in the file"):
        remake.add_edit(of_file(VARIANTS / "padding.json"), "1")


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_every_step_of_every_variant_can_be_stood_on(path):
    walk = of_file(path)
    for step in walk.layer.steps:
        walk = go.to_step(walk, step)
        assert len(walk.place.cell) == walk.array.ndim
        assert walk.node.value == float(walk.array[walk.place.cell])
        rows, columns = (1, 1, *walk.array.shape)[-2:]
        last = go.move(walk, 10**6, 10**6)
        assert (last.row, last.column) == (rows - 1, columns - 1)


def test_several_traces_of_a_file(tmp_path):
    path = str(tmp_path / "s.jsonl")
    from attnctl.formats import write

    write(attnctl.run_many(["I love AI", "we do"], heads=2), path)
    walk = go.move(of_file(path), 2, 2)
    other = go.to_layer(walk, 1)
    assert (other.place.layer, other.trace.sentence, other.place.cell) == (1, "we do", (0, 1, 1))
    edited = remake.add_edit(other, "0.5")
    assert edited.layer.edits
    assert not edited.layers[0].edits
    assert go.to_layer(other, 1).place.layer == 0
    with pytest.raises(AttnError, match="there is one trace"):
        go.to_layer(WALK, 1)

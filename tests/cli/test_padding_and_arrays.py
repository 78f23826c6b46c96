"""What a shell sees of padding, layouts and masks."""

import json

import numpy as np


def test_a_padded_batch_shows_its_padding(workplace):
    done = workplace.run(
        "run",
        "I love AI",
        "the cat sat on the mat",
        "--padded",
        "--step",
        "masked_scores,attention_weights",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.count("│ [PAD]#1 │") == 2  # a row of each step
    assert "padding  padding  padding" in text
    assert text.count(" · padding · ") == 2


def test_padding_as_a_rule_of_a_config(workplace):
    (workplace.folder / "c.yaml").write_text('sentence: "a b [PAD]"\nrules: [causal, padding]\n')
    done = workplace.run("run", "-c", "c.yaml", "--json")
    dump = json.loads(done.stdout)
    assert dump["config"]["rules"] == ["causal", "padding"]
    assert [row[2] for row in dump["steps"]["attention_weights"]["data"][0]] == [0.0] * 3


def test_no_output_projection_is_said_and_output_is_there(workplace):
    done = workplace.run("run", "-c", "configs/i-love-ai.yaml", "--brief")
    assert b"no output projection" in done.stdout
    assert b"output   Y = concat" in done.stdout


def save(workplace, **arrays):
    np.savez(workplace.folder / "x.npz", **arrays)


def test_a_layout_is_asked_for_by_its_flag(workplace):
    save(workplace, **{name: np.ones((2, 4, 6)) for name in "QKV"})
    asked = workplace.run("attend", "x.npz", "--heads", "2")
    assert asked.returncode == 2
    assert asked.stderr.decode() == (
        "attnctl: Q: 2 × 4 × 6 with 2 heads may be (head, n, d) or (batch, n, heads·d); "
        "write --layout hnd or --layout bnd\n"
    )
    done = workplace.run("attend", "x.npz", "--heads", "2", "--layout", "bnd", "--step", "scores", "--json")
    assert json.loads(done.stdout)["steps"]["scores"]["shape"] == [2, 2, 4, 4]


def test_what_a_mask_is_taken_for_is_said(workplace):
    arrays = {name: np.ones((2, 2)).tolist() for name in "QKV"}
    (workplace.folder / "x.json").write_text(json.dumps({**arrays, "mask": [[1, 0], [1, 1]]}))
    done = workplace.run("attend", "x.json", "--step", "attention_weights", "--json")
    assert done.stderr.startswith(b"attnctl: note: mask holds 0 and 1 alone: 1 may attend")
    assert json.loads(done.stdout)["steps"]["attention_weights"]["data"] == [[[1.0, 0.0], [0.5, 0.5]]]


def test_a_mask_of_the_keys_alone_is_printed(workplace):
    save(workplace, **{name: np.ones((3, 2)) for name in "QKV"}, mask=np.array([True, True, False]))
    for form in ("table", "markdown"):
        done = workplace.run("attend", "x.npz", "--format", form)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"see" in done.stdout


def test_the_offset_of_lengths(workplace):
    save(workplace, **{name: np.ones((4, 1)) for name in "QKV"}, key_lengths=np.array(3))
    for flags, offset in (([], 0), (["--causal-offset", "lengths"], -1), (["--causal-offset", "2"], 2)):
        done = workplace.run("attend", "x.npz", "--causal", *flags, "--json", "--step", "scores")
        assert json.loads(done.stdout)["config"]["causal_offset"] == offset

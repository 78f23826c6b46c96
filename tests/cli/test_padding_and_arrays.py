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


def test_sinks_norms_and_an_unrotated_cache_by_flags_and_by_a_config(call, tmp_path):
    draw = np.random.RandomState(0)
    arrays = {name: draw.standard_normal((2, 3, 4)) for name in ("Q", "K", "V", "past_key", "past_value")}
    arrays |= {"sinks": draw.standard_normal(2), "q_norm.weight": np.ones(4), "k_norm.weight": np.ones(4)}
    np.savez(tmp_path / "x.npz", **arrays)
    config = "{positions: rope, qk_norm: {kind: layer, eps: 1e-3}, cache_unrotated: true, rules: [causal]}"
    (tmp_path / "c.yaml").write_text(config)
    normed = ["--qk-norm", "layer", "--qk-norm-eps", "1e-3"]
    flags = ["--causal", "--positions", "rope", *normed, "--cache-unrotated"]
    by_flags = call("attend", "x.npz", *flags, "--json")
    assert by_flags.out == call("attend", "x.npz", "-c", "c.yaml", "--json").out
    dump = json.loads(by_flags.out)
    assert (dump["config"]["cache_unrotated"], dump["config"]["qk_norm"]) == (
        True,
        {"kind": "layer", "eps": 1e-3},
    )
    assert dump["steps"]["K_rotated"]["shape"] == [2, 6, 4]
    (tmp_path / "d.json").write_text(by_flags.out)
    shown = call("show", "d.json", "--step", "sink_weights").out
    assert "rotary positions · causal · Q and K normed (layer, eps 0.001) · cache unrotated" in shown
    assert call("check", "d.json").code == 0
    assert call("check", "d.json", "--qk-norm", "rms").code == 1
    assert "LayerNorm(K)" in call("explain", "d.json", "K_normed[1,0,2]").out
    theirs = dict(np.load(tmp_path / "x.npz"))
    theirs["K_rotated"] = np.array(dump["steps"]["K_rotated"]["data"])
    theirs["attn_weights"] = np.array(dump["steps"]["attention_weights"]["data"])
    np.savez(tmp_path / "y.npz", **theirs)
    assert call("check", "y.npz", *flags).code == 0
    assert call("check", "y.npz", *flags[:-1]).code == 2  # K_rotated has rows that it should not have


def test_a_layout_is_said_for_check_and_explain_too(call, tmp_path):
    q = np.random.RandomState(0).standard_normal((1, 3, 2, 4))
    np.savez(tmp_path / "x.npz", Q=q, K=q, V=q, scores=np.einsum("bihd,bjhd->bhij", q, q))
    assert call("check", "x.npz", "--layout", "bnhd").code == 0
    found = json.loads(call("explain", "x.npz", "scores[0,1,2,0]", "--layout", "bnhd", "--json").out)
    assert found["value"] == np.einsum("bihd,bjhd->bhij", q, q)[0, 1, 2, 0]
    call("run", "I love AI", "-o", "d.json")
    assert "leave it out" in call("check", "d.json", "--layout", "bnhd").err

"""The commands that take a model: what they print, what they refuse, and their exit codes."""

import json

import numpy as np
import pytest
from checkpoints import ROOT, expected_of

import attnctl
from attnctl.api import run_model
from attnctl.cli.program import program

GPT_OSS, QWEN2, VIT, T5 = (str(ROOT / name) for name in ("gpt-oss", "qwen2", "vit", "t5"))
IDS = ["--ids", "4,5,6,7,4,5"]


@pytest.fixture
def run(capsys):
    """Run a command line: its exit code, what it printed, and what it complained of."""

    def run(*args):
        code = program([str(each) for each in args])
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("bert", ["32"]), ("roberta", ["30"]), ("llama", ["128", "1024"]), ("t5", ["128", "1024"])],
)
def test_a_trace_is_priced_for_no_more_tokens_than_the_model_takes(run, name, tokens):
    code, out, _ = run("model", ROOT / name, "--json")
    assert code == 0
    assert list(json.loads(out)["trace_bytes"]) == tokens


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (
            ["run", *IDS, "--model", GPT_OSS, "--layer", "1", "--brief"],
            ["attention_weights", " sink │", "output"],
        ),
        (["run", *IDS, "--model", GPT_OSS], ["layer 0", "layer 1", "40% or more", "add --layer"]),
        (["run", *IDS, "--model", GPT_OSS, "--json"], ['"heads": [', '"layer": 1']),
        (["run", *IDS, "--model", GPT_OSS, "--layer", "0", "--cost"], ["sink_weights", "FLOPs"]),
        (["run", *IDS, "--model", GPT_OSS, "--layer", "0", "--edit", "X=0", "--brief"], ["0.0000"]),
        (["run", *IDS, "--model", T5, "--layer", "cross.1", "--context-ids", "3,4"], ["cross-attention"]),
        (["model", GPT_OSS], ["a sink for each head", "yarn, theta 500", "2 of 4 experts", "parameters"]),
        (["model", T5], ["t5 decoder", "also attends to an encoder", "6 buckets"]),
        (["stats", "--model", GPT_OSS], ["induction", "duplicate", "previous", "sink"]),
        (["stats", "--model", GPT_OSS, *IDS], ["layer 1", "all together", "induction"]),
    ],
)
def test_what_is_shown(run, args, shown):
    code, out, err = run(*args)
    assert (code, err) == (0, "")
    assert all(each in out for each in shown)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", *IDS], "--ids: only a model has that; add --model DIR"),
        (["stats", *IDS], "--ids: only a model takes ids; add --model DIR"),
        (["run", "x", "--layer", "1"], "--layer: only a model has that"),
        (["run", *IDS, "--model", GPT_OSS, "--heads", "2"], "--heads: means nothing with --model"),
        (["run", "x", *IDS, "--model", GPT_OSS], "there is a sentence too"),
        (["run", *IDS, "--model", GPT_OSS, "--pair", "x"], "--pair: goes with one sentence"),
        (["run", *IDS, "--model", GPT_OSS, "--layer", "9"], "no layer 9; there are 2, from 0 to 1"),
        (["run", *IDS, "--model", GPT_OSS, "-o", "x.npz"], "add --layer for a trace"),
        (["run", *IDS, "--model", GPT_OSS, "--format", "csv"], "add --layer for a trace"),
        (["run", *IDS, "--model", GPT_OSS, "--step", "Q"], "--step: a map has no steps; add --layer"),
        (["run", *IDS, "--model", GPT_OSS, "--story"], "--story: a map has no steps; add --layer"),
        (["run", *IDS, "--model", GPT_OSS, "--cost"], "of which layer?"),
        (["run", "--ids", "4,x", "--model", GPT_OSS, "--layer", "0"], "--ids"),
        (["run", *IDS, "--model", VIT, "--layer", "0"], "takes no tokens"),
        (["run", *IDS, "--model", T5, "--layer", "decoder.0"], "--context: missing"),
        (["model", "."], "no config.json in it"),
        (["stats", "--model", GPT_OSS, "--rollout"], "--rollout"),
        (["stats", __file__, "--model", GPT_OSS], "a file; attnctl corpus run"),
        (["stats", "--model", GPT_OSS, "--trace", "1"], "--trace: takes dumps"),
        (["corpus", "run", "x"], "x: No such file or directory"),
        (
            ["stats", "--model", GPT_OSS, "--shard", "1/2"],
            "--shard: only a corpus has that",
        ),
    ],
)
def test_what_is_refused(run, args, said):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_layer_from_what_came_into_it(run, tmp_path):
    expected = expected_of("vit")
    np.savez(tmp_path / "in.npz", hidden=expected["hidden_1"])
    code, out, _ = run("attend", tmp_path / "in.npz", "--model", VIT, "--layer", "1", "--json")
    weights = np.array(json.loads(out)["steps"]["attention_weights"]["data"])
    assert code == 0
    np.testing.assert_allclose(weights, expected["weights_1"], rtol=1e-5, atol=1e-5)
    steps = run_model(VIT, layer=1, hidden=expected["hidden_1"], keep=["attention_weights", "Q"])[0].steps
    assert list(steps) == ["Q", "attention_weights"]
    assert run("attend", tmp_path / "in.npz", "--model", VIT)[0] == 2


@pytest.mark.slow
def test_a_dump_is_checked_against_its_model(run, tmp_path):
    dump = tmp_path / "dump.npz"
    assert run("run", *IDS, "--model", GPT_OSS, "--layer", "1", "-o", dump)[0] == 0
    assert run("check", dump)[0] == 0
    assert run("check", dump, "--model", GPT_OSS, "--layer", "1")[0] == 0
    code, out, _ = run("check", dump, "--model", GPT_OSS, "--layer", "0", "--json")
    assert (code, json.loads(out)["first"]) == (1, "X")
    assert run("check", dump, "--layer", "0")[0] == 2
    assert attnctl.check(attnctl.load(dump), model=GPT_OSS, layer=1).agrees
    with pytest.raises(attnctl.AttnError, match="model: it says what was meant; leave out settings"):
        attnctl.check(attnctl.load(dump), model=GPT_OSS, layer=1, causal=True)


@pytest.mark.slow
def test_a_log_sum_exp_under_another_name_is_held_to_the_model(run, tmp_path):
    model, path = str(ROOT / "llama"), tmp_path / "port.npz"
    (trace,) = run_model(model, ids=[3, 4, 5, 6], layer="1")
    lse = np.logaddexp.reduce(trace["masked_scores"].astype(float), axis=-1)
    for off in (0, 1):
        np.savez(path, hidden_states=trace["hidden"], q_rot=trace["Q_rotated"], lse=lse + off)
        assert run("check", path, "--model", model, "--layer", "1")[0] == off


def test_the_first_wrong_layer_is_named(run, tmp_path):
    expected = expected_of("qwen2")
    states = {name: array for name, array in expected.items() if name.startswith("hidden")}
    np.savez(tmp_path / "right.npz", **states)
    assert run("check", tmp_path / "right.npz", "--model", QWEN2)[0] == 0
    np.savez(tmp_path / "wrong.npz", **{**states, "hidden_2": states["hidden_2"] + np.float32(0.01)})
    code, out, _ = run("check", tmp_path / "wrong.npz", "--model", QWEN2)
    assert code == 1
    assert "Layer 1 is the first wrong one" in out
    told = json.loads(run("check", tmp_path / "wrong.npz", "--model", QWEN2, "--json")[1])
    assert told["first"] == 1

"""--backward and --cotangent at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnctl

LLAMA = str(Path(__file__).parents[1] / "models/checkpoints/llama")


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_gradients_are_read_back(tmp_path, call, suffix):
    path = tmp_path / f"x{suffix}"
    assert (
        call("run", "I love AI", "--backward", "--kv-heads", "1", "--heads", "2", "-o", str(path)).code == 0
    )
    again = attnctl.load(path)
    assert again.steps == attnctl.run("I love AI", backward=True, kv_heads=1, heads=2).steps
    assert attnctl.check(again).agrees
    said = call("explain", str(path), "d_Q[1,love,0]").out
    assert "d_scores[1,love,I]" in said
    assert "this reads K_shared; the gradients that it reads need V_shared, attention_weights" in said
    needed = json.loads(call("explain", str(path), "d_concat[love,0]", "--json").out)["forward"]
    assert needed == {"reads": ["W_O"], "behind": []}


def test_where_gradients_begin(tmp_path, call):
    def begun(*arguments):
        done = call("run", "I love AI", "--backward", "--json", *arguments)
        assert done.code == 0, done.err
        return np.array(json.loads(done.out)["steps"]["d_output"]["data"])

    assert (begun("--cotangent", "ones") == 1).all()
    drawn = begun()
    assert (begun("--cotangent", "drawn") == drawn).all()
    assert (begun("--seed", "1") != drawn).all()
    np.savez(tmp_path / "d.npz", mine=2 * drawn)
    np.savez(tmp_path / "other.npz", a=drawn, b=drawn)
    assert (begun("--cotangent", str(tmp_path / "d.npz")) == 2 * drawn).all()
    np.savez(tmp_path / "qkv.npz", q=np.eye(3), k=np.eye(3), v=np.eye(3), do=np.full((3, 3), 2.0))
    attend = ("attend", str(tmp_path / "qkv.npz"), "--backward", "--json", "--step", "d_head_outputs")
    np.savez(tmp_path / "named.npz", d_output=np.full((3, 3), 3.0), other=drawn)
    named = ("--cotangent", str(tmp_path / "named.npz"))
    for arguments, value in (((), 2), (("--cotangent", "ones"), 1), (named, 3)):
        found = json.loads(call(*attend, *arguments).out)["steps"]["d_head_outputs"]["data"]
        assert np.unique(found) == [value], "a file's own, unless another is asked for"
    for arguments, said in {
        ("--backward", "--cotangent", str(tmp_path / "other.npz")): "and no d_output; give the gradient",
        (
            "--backward",
            "--cotangent",
            str(tmp_path / "d.npz"),
            "--d-model",
            "2",
        ): "d_output: 3 × 4, expected",
        ("--cotangent", "ones"): "--cotangent: nothing goes back to gradients; say --backward, too",
    }.items():
        done = call("run", "I love AI", *arguments)
        assert (done.code, said in done.err) == (2, True), done.err


def test_a_layer_goes_back_at_the_command_line(call, tmp_path):
    run = ("run", "--model", LLAMA, "--ids", "1,2,3", "--backward")
    file = str(tmp_path / "x.npz")
    assert call(*run, "--layer", "1", "--seed", "3", "-o", file).code == 0
    trace = attnctl.load(file)
    assert attnctl.check(trace).agrees
    assert (trace.config["backward"], list(trace)[-1]) == (True, "d_norm_weight")
    np.savez(tmp_path / "rows.npz", hidden=trace["hidden"], do=trace["d_output"])
    attend = ("attend", str(tmp_path / "rows.npz"), "--model", LLAMA, "--layer", "1", "--backward", "-o")
    for arguments, same in (((), True), (("--cotangent", "ones"), False)):
        assert call(*attend, file, *arguments).code == 0
        assert np.array_equal(attnctl.load(file)["d_hidden"], trace["d_hidden"]) == same
    assert "d_hidden" in call(*run, "--layer", "1", "--cost").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layer", "0,1", "--backward"], "gradients are those of one layer's attention"),
        (["--backward"], "--backward: a map has no steps; add --layer"),
        (["--layer", "0", "--cotangent", "ones"], "say --backward, too"),
        (["--layer", "0", "--seed", "1"], "--seed: means nothing with --model"),
    ],
)
def test_what_has_no_gradients_says_so(call, arguments, said):
    done = call("run", "--model", LLAMA, "--ids", "1,2,3", *arguments)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.sample(2)
@pytest.mark.parametrize(("factor", "first"), [(1, None), (2, "d_Q")])
def test_gradients_of_a_port_are_held_to_its_model(call, tmp_path, factor, first):
    run = ("run", "--model", LLAMA, "--ids", "1,2,3", "--layer", "0", "--backward", "-o", "ours.npz")
    assert call(*run).code == 0
    ours = attnctl.load(tmp_path / "ours.npz")
    theirs = {"d_output": "grad_output", "d_Q": "dq", "d_K": "key_states.grad"}
    kept = ("hidden", "Q", "K", "attention_weights", "d_output", "d_Q", "d_K", "d_V")
    port = {theirs.get(name, name): ours[name] for name in kept}
    np.savez(tmp_path / "port.npz", **{**port, "dq": factor * port["dq"]})
    done = call("check", "port.npz", "--model", LLAMA, "--layer", "0", "--json")
    found = json.loads(done.out)
    assert (done.code, found["first"]) == (factor - 1, first), done.err
    judged = {name for name, step in found["steps"].items() if step["verdict"] == "agrees"}
    assert judged >= {"d_K", "d_V"}

"""Programs of torch, transformers and jax under capture."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def judged(capture, call):
    """Capture a program; its stdout, and what `check` says of each call."""

    def run(*words, into="c.npz"):
        done = capture("-o", into, *words)
        assert done.returncode == 0, done.stderr
        return done, json.loads(call("check", into, "--json").out)

    return run


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def modules(found):
    return [one["call"]["module"] for one in found]


def test_layers_of_an_encoder(torch, judged):
    """In eval mode torch has a fast path of its own, which calls no function."""
    done, found = judged("encoder.py")
    assert done.stdout == "torch.Size([2, 5, 16])\n" * 2
    assert modules(found) == ["layers.0.self_attn", "layers.1.self_attn", "MultiheadAttention"]
    assert [one["agrees"] for one in found] == [True] * 3
    assert list(found[2]["steps"])[-1] == "output"


@pytest.mark.parametrize("more", [(), ("compile",), ("train",)])
def test_a_gpt_as_people_write_it(torch, judged, more):
    _, found = judged("--backward", "nano.py", *more)
    assert [one["agrees"] for one in found] == [True] * 3
    assert [name.rpartition("transformer.")[2] for name in modules(found)] == [
        f"h.{at}.attn" for at in range(3)
    ]
    assert {one["call"]["at"] for one in found} == {"nano.py:35"}
    assert all(("d_K" in one["steps"]) == (more == ("train",)) for one in found)


def test_the_program_prints_what_it_prints_by_itself(torch, judged):
    alone = subprocess.run([sys.executable, "nano.py", "train"], capture_output=True, text=True, check=True)
    assert judged("--backward", "nano.py", "train")[0].stdout == alone.stdout


def test_a_wrong_function_in_its_place_is_named(torch, judged):
    _, found = judged("nano.py", "wrong")
    assert [one["mistake"] for one in found] == ["no-scale"] * 3


def test_gradients_are_those_of_each_argument(torch, judged):
    """One tensor for all three, and a module for torch.jit, which knows a function by what it is."""
    done, found = judged("--backward", "jit.py")
    assert done.stdout == "True\n"
    assert found["agrees"]
    assert found["steps"].keys() >= {"d_Q", "d_K", "d_V"}


def test_a_token_at_a_time(torch, judged):
    _, found = judged("decode.py")
    assert [one["agrees"] for one in found] == [True] * 6


def test_flexible_attention(torch, judged):
    done, found = judged("flexible.py")
    assert [one["agrees"] for one in found] == [True] * 4
    assert "1 call left out: a score_mod that does more than add to a score or hide it" in done.stderr


def test_a_model_of_transformers_by_two_implementations(torch, judged, call):
    pytest.importorskip("transformers")
    for name in ("eager", "sdpa"):
        _, found = judged("llama.py", name, into=f"{name}.npz")
        assert [one["agrees"] for one in found] == [True] * 6
        assert modules(found) == [f"model.layers.{at}.self_attn" for at in (0, 1)] * 3
    done = call("diff", "eager.npz", "sdpa.npz")
    assert done.code == 0


def test_jax(judged):
    pytest.importorskip("jax")
    done, found = judged("with_jax.py")
    assert [one["agrees"] for one in found] == [True] * 3
    assert "1 call left out: no numbers to read" in done.stderr

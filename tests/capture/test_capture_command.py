"""attnctl capture: the program is as it is by itself, and each call of attention in it is a trace."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnctl.verbs.capture.functions import OWN as OWN_FUNCTION
from attnctl.verbs.capture.functions import read_call

OWN = ("--function", "kernels:attend", "--function", "kernels:attend_wrongly")


def test_the_program_is_as_it_is_by_itself(capture):
    done = capture("-o", "c.npz", *OWN, "own.py", "attend", "-x", "--help", stdin="in")
    assert (done.returncode, done.stdout) == (3, "stdout -x --help in\n")
    assert done.stderr == "stderr\nattnctl: c.npz: 1 call; attnctl check c.npz judges it\n"


def test_a_child_leaves_the_file_alone_and_a_program_its_own_stderr(capture, call):
    done = capture("-o", "c.npz", *OWN, "forks.py")
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert done.stderr == "attnctl: c.npz: 2 calls; attnctl check c.npz judges them\n"
    assert call("check", "c.npz").out.startswith("2 calls agree.")


def test_a_call_is_a_trace_that_every_verb_reads(captured, call):
    captured("-o", "c.npz", *OWN, "own.py", "attend,attend")
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 4)).astype(np.float32)
    with np.load("c.npz") as file:
        assert np.array_equal(file["0/Q"], q)
        weights = np.exp(q @ k.swapaxes(-1, -2) / 2)
        assert np.allclose(file["0/output"], weights / weights.sum(-1, keepdims=True) @ v, atol=1e-6)
        header = json.loads(file["0/attnctl.json"].item())
    assert header["call"] == {
        "number": 0, "function": "attend", "at": "own.py:10", "module": "",
        "options": {}, "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    done = call("check", "c.npz")
    assert (done.code, done.out.splitlines()[0]) == (0, "2 calls agree.")
    weights = json.loads(call("attend", "c.npz[1]", "--step", "attention_weights", "--json").out)
    assert weights["steps"]["attention_weights"]["shape"] == [2, 5, 5]
    for words in (
        ["show", "c.npz"],
        ["explain", "c.npz[1]", "attention_weights[0,1,2]"],
        ["diff", "c.npz", "c.npz"],
    ):
        assert call(*words).code == 0


def test_a_wrong_call_is_named_with_its_line(captured, call):
    captured("-o", "c.npz", *OWN, "own.py", "attend,attend_wrongly,attend")
    done = call("check", "c.npz")
    assert done.code == 1
    first, *_, ending = done.out.splitlines()
    assert first == "1 of 3 calls is wrong: call 1, own.py:10."
    assert "own.py:10: the scores are not scaled: divide Q Kᵀ by np.sqrt(d_k), here √4." in done.out
    assert ending == "Why: attnctl explain 'c.npz[1]' 'output[0,0,3]'"
    found = json.loads(call("check", "c.npz", "--json").out)
    assert [one["mistake"] for one in found] == [None, "no-scale", None]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [(["--call", "0-1,3"], [0, 1, 3]), (["--call", "9"], []), (["--module", "layers.*"], [])],
)
def test_calls_are_chosen(captured, call, words, numbers):
    done = captured("-o", "c.npz", *words, *OWN, "own.py", "attend,attend,attend,attend")
    if not numbers:
        assert "attnctl: none of 4 calls of attention was kept" in done.err
        assert "attnctl/" not in done.err  # a traceback is that of the program
        return
    found = json.loads(call("check", "c.npz", "--json").out)
    assert [one["call"]["number"] for one in found] == numbers
    assert call("check", "c.npz[3]", "--json").code == 0
    assert "there are 3 traces, from 0" in call("check", "c.npz[2]").err


def test_what_a_function_of_ones_own_is_passed_is_what_is_meant(captured, call):
    captured("-o", "c.npz", *OWN, "own.py", "attend+causal,attend")
    found = json.loads(call("check", "c.npz", "--json").out)
    assert [(one["agrees"], one["call"]["options"]) for one in found] == [
        (True, {"causal": True}),
        (True, {}),
    ]
    assert "masked_scores" in found[0]["steps"]


def test_a_parameter_of_ones_own_that_may_mean_anything_says_nothing():
    q, tri = np.ones((5, 4)), np.tri(5)
    said = {"q": q, "k": q, "v": q, "scale": 8, "causal": 1, "window": 2, "dropout_p": 0.5}
    assert read_call(OWN_FUNCTION, {**said, "mask": "causal"}, q)[0].keys() == {*"QKV", "output"}
    arrays, _, config = read_call(OWN_FUNCTION, {**said, "mask": tri, "scale": 0.5}, (q, "more"))
    assert (config, arrays["mask"] is tri) == ({"scale": 0.5}, True)


def test_a_file_that_cannot_be_written_is_said(captured, call):
    Path("full.npz").symlink_to("/dev/full")
    done = captured("-o", "full.npz", *OWN, "own.py", "attend,attend")
    assert (done.code, done.err.splitlines()[-2:]) == (
        3,
        [
            "attnctl: 1 call left out: full.npz: No space left on device; nor is any after it kept",
            "attnctl: none of 2 calls of attention was kept",
        ],
    )


def test_a_function_that_is_not_there_is_said(captured):
    done = captured("-o", "c.npz", *OWN, "--function", "kernels:nope", "own.py", "attend")
    assert "attnctl: --function kernels:nope: the program has none of this name\n" in done.err


ERRORS = {
    (): "no SCRIPT; give one, or -m MODULE",
    ("no.py",): "no.py: no such file; give a program",
    ("-o", "c.json", "own.py"): "-o c.json: a capture is an .npz; write -o c.npz",
    ("-o", "d.npz", "own.py"): "-o d.npz: it is a folder; name a file, like -o d.npz/c.npz",
    ("-o", "own.py", "own.py"): "-o own.py: a capture is an .npz; write -o own.npz",
    ("--function", "own", "own.py"): "--function own: write MODULE:NAME, like my_kernels:attend",
    ("--query", "3", "own.py"): "--query: '3' is no range of queries; write it like 0:64 or -64:",
}


@pytest.mark.parametrize(("words", "message"), ERRORS.items(), ids=str)
def test_what_cannot_be_captured_is_refused(captured, words, message):
    Path("d.npz").mkdir()
    done = captured(*words)
    assert (done.code, done.out, done.err) == (2, "", f"attnctl: {message}\n")


EVIL = "\x1b[31m"
HEADERS = {
    "a call that is none": ({"call": 3}, "$.call: expected an object, found 3"),
    "a number that is a text": (
        {"call": {"number": EVIL, "at": "", "module": ""}},
        "$.call.number: expected a whole number, found ",
    ),
    "a config of no sense": (
        {"call": {"number": 0, "at": EVIL, "module": EVIL}, "config": {"scale": EVIL}},
        "$.scale: ",
    ),
}


@pytest.mark.parametrize(("header", "message"), HEADERS.values(), ids=HEADERS)
def test_a_file_that_only_looks_like_a_capture_is_refused(call, header, message):
    data = np.array(json.dumps({"schema": "attnctl/trace/1", **header}).encode())
    np.savez("c.npz", **{"0/Q": np.ones((2, 2)), "0/attnctl.json": data})
    done = call("check", "c.npz")
    assert done.code == 2
    assert message in done.err
    assert "\x1b" not in done.out + done.err


def test_of_several_calls_nothing_steers_a_terminal(call):
    header = {"schema": "attnctl/trace/1", "call": {"number": 0, "at": EVIL, "module": EVIL}}
    arrays = dict.fromkeys(["Q", "K", "V", "output"], np.ones((2, 2)))
    both = {f"{at}/{name}": array for at in "01" for name, array in arrays.items()}
    heads = {f"{at}/attnctl.json": np.array(json.dumps(header).encode()) for at in "01"}
    np.savez("c.npz", **both, **heads)
    done = call("check", "c.npz")
    assert done.code == 0
    assert "\x1b" not in done.out + done.err

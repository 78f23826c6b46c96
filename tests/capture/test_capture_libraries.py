"""The functions of libraries under capture, with small packages in the place of the real ones."""

import json
import re

import pytest


@pytest.fixture
def judged(captured, call):
    """Capture a program; what it said on stderr, and what `check` says of each call."""

    def run(*words):
        done = captured("-o", "c.npz", *words)
        assert done.code == 0, done.err
        found = json.loads(call("check", "c.npz", "--json").out)
        return done.err, [found] if isinstance(found, dict) else found

    return run


def test_a_call_has_its_line_and_its_module(judged):
    _, found = judged("layers.py")
    calls = [one["call"] for one in found]
    modules = ["layers.0.attn", "layers.1.attn", "layers.2.attn", "", ""]
    assert [call["module"] for call in calls] == modules
    assert [call["at"] for call in calls] == [*["layers.py:16"] * 3, "layers.py:45", "layers.py:46"]
    assert {call["function"] for call in calls} == {"scaled_dot_product_attention"}
    assert [one["agrees"] for one in found] == [True] * 5


def test_what_a_program_puts_in_the_place_of_a_function_is_judged(judged):
    _, found = judged("layers.py", "--swap")
    assert [one["mistake"] for one in found] == [*["no-scale"] * 3, None, None]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--module layers.1.*", [1]),
        ("--module 1.attn", [1]),
        ("--module layers.*.attn --call 0,2-9", [0, 2]),
        ("--head 1,2 --query -2:", [0, 1, 2, 3, 4]),
        ("--max-memory 6000", [3, 4]),
    ],
)
def test_what_is_kept_is_chosen(judged, words, kept):
    said, found = judged(*words.split(), "layers.py")
    assert [one["call"]["number"] for one in found] == kept
    assert all(one["agrees"] for one in found)
    assert ("3 calls left out: more memory than --max-memory allows" in said) == ("6000" in words)


def test_heads_and_queries_are_those_that_are_asked_for(judged, call):
    judged("--head", "1,2", "--query", "-2:", "layers.py")
    steps = json.loads(call("show", "c.npz[0]", "--json").out)["steps"]
    assert {name: step["shape"] for name, step in steps.items()} == {
        "Q": [2, 2, 2, 8], "K": [2, 2, 6, 8], "V": [2, 2, 6, 8], "head_outputs": [2, 2, 2, 8],
    }  # fmt: skip


def test_kernels_of_others_are_read(judged):
    said, found = judged("kernels_of_others.py")
    left = re.findall(r"1 call left out: (.*)", said)
    assert left == [
        "it is passed cache_batch_idx, which is not read",
        "it is passed query_seq_lengths, which is not read",
        "an attn_bias of the class BlockDiagonalMask",
    ]  # fmt: skip
    assert [one["agrees"] for one in found] == [True] * 6 + [None]
    assert [one["call"]["options"] for one in found[:2]] == [
        {"causal": True}, {"softmax_scale": 0.2, "causal": True},
    ]  # fmt: skip


def test_caches_and_packed_texts_are_read(judged, call):
    said, found = judged("kernels_of_serving.py")
    assert "left out" not in said
    assert [one["agrees"] for one in found] == [True] * 7
    assert "documents 0, 2, 3" in call("show", "c.npz[0]").out
    assert "key_pages[" in call("explain", "c.npz[6]", "K[1,1,3,3]").out
    for number in range(7):
        alone = call("attend", f"c.npz[{number}]", "--step", "head_outputs", "-o", "again.json")
        assert alone.code == 0, alone.err
        assert call("diff", f"c.npz[{number}]", "again.json", "--step", "head_outputs").code == 0


def test_an_output_after_dropout_is_not_judged(judged, call):
    judged("kernels_of_others.py")
    done = call("check", "c.npz")
    assert (done.code, done.out.splitlines()[0]) == (2, "6 calls agree; 1 cannot be judged.")
    assert "its output is after dropout" in done.out

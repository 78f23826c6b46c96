"""`attnctl explain` as a shell sees it."""

from __future__ import annotations

import json

import pytest


def test_from_a_run_through_a_pipe(workplace):
    done = workplace.shell(
        "attnctl run 'I love AI' --heads 2 --json | attnctl explain - 'attention_weights[0,love,AI]'"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    first, empty, cells, numbers, note = done.stdout.decode().splitlines()
    assert first == "attention_weights = softmax over keys"
    assert empty == ""
    assert cells.startswith("attention_weights[0,love,AI] = exp(scaled_scores[0,love,AI] - ")
    assert numbers.startswith("attention_weights[0,love,AI] = exp(")
    assert note.endswith(" is the maximum of the row: softmax subtracts it from every score")
    assert f"- {note.split()[0]})" in numbers


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors"])
def test_json_of_every_kind_of_dump(workplace, suffix):
    workplace.shell(f"attnctl run 'I love AI' --causal -o x.{suffix}")
    done = workplace.run("explain", f"x.{suffix}", "head_outputs[love,1]", "--json", "--depth", "3")
    found = json.loads(done.stdout)
    assert found["cell"] == "head_outputs[0,love,1]"
    assert [each["cell"] for each in found["inputs"][:2]] == ["attention_weights[0,love,I]", "V[0,I,1]"]


def test_arrays_of_others(workplace):
    workplace.shell(
        "python3 -c 'import json; print(json.dumps(dict(q=[[1.0, 2.0]], K=[[3.0, 4.0]], V=[[1.0]], "
        "scores=[[11.0]], attention_weights=[[1.0]])))' > theirs.json"
    )
    done = workplace.run("explain", "theirs.json", "scores[0,0]", "--name", "q=Q")
    assert done.stdout.decode().splitlines()[-1] == "scores[0,0,0] = 1·3 + 2·4 = 11"
    done = workplace.run("explain", "theirs.json", "scaled_scores[0,0]", "--name", "q=Q", "--scale", "0.5")
    assert done.stdout.decode().splitlines()[-2:] == [
        "scaled_scores[0,0,0] = 11·0.5 = 5.5",
        "not in this dump: computed from what is",
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scores[0,love,Ai]"], "scores: key: no token 'Ai'; did you mean AI or I?"),
        (["scoers[0]"], "no step 'scoers' in this dump; did you mean scores?"),
        (["scores[0"], "'scores[0': a place is missing, or its bracket is not closed"),
        (["scores[0,0,0]", "--causal"], "this dump says itself how each number came about"),
        (["scores[0,0,0]", "--json", "--precision", "3"], "--precision: JSON has every digit anyway"),
        (["scores[0,0,0]", "--depth", "0"], "--depth"),
    ],
)
def test_what_makes_no_sense_is_refused(workplace, args, said):
    workplace.shell("attnctl run 'I love AI' -o x.json")
    done = workplace.run("explain", "x.json", *args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()


def test_a_long_tree_into_a_pipe_that_is_closed(workplace):
    done = workplace.shell(
        "set -o pipefail; attnctl run -c configs/base-transformer.yaml -o x.npz;"
        "attnctl explain x.npz 'output[0,0]' --depth 4 | head -n 4 >/dev/null"
    )
    assert (done.returncode, done.stderr) == (141, b"")

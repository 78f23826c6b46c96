"""`--edit` as a shell sees it."""

import json

import numpy as np
import pytest


def test_a_dump_says_what_was_edited_and_can_be_run_again(workplace):
    script = """
set -e
edits="--edit attention_weights[0,love,AI]=0 --edit V[0]*=2"
attnctl run 'I love AI' --heads 2 $edits --renormalize -o a.json
jq .config a.json > again.yaml
attnctl run -c again.yaml -o b.json
attnctl diff a.json b.json --rtol 0 --atol 0
jq -c '.edits, .config.edits, .config.renormalize' b.json
"""
    done = workplace.shell(script)
    assert (done.returncode, done.stderr) == (0, b"")
    same, edits, texts, renormalize = done.stdout.splitlines()
    assert same.startswith(b"same: 214 numbers in 15 steps")
    assert json.loads(texts) == ["attention_weights[0,love,AI]=0", "V[0]*=2"]
    assert json.loads(edits) == [
        {"step": "attention_weights", "edit": "attention_weights[0,love,AI]=0"},
        {"step": "V", "edit": "V[0]*=2"},
    ]
    assert renormalize == b"true"


def test_edits_of_a_config_and_of_the_command_line(workplace):
    (workplace.folder / "c.yaml").write_text("sentence: I love AI\nedits:\n  - X[AI]=1\n  - scores=0\n")
    done = workplace.run("run", "-c", "c.yaml", "--json")
    assert json.loads(done.stdout)["config"]["edits"] == ["X[AI]=1", "scores=0"]
    done = workplace.run("run", "-c", "c.yaml", "--edit", "X[0]=2", "--json")
    assert json.loads(done.stdout)["config"]["edits"] == ["X[0]=2"]
    (workplace.folder / "c.yaml").write_text("edits: X=1\n")
    done = workplace.run("config", "check", "c.yaml")
    assert (done.returncode, b"$.edits" in done.stderr) == (2, True)


def test_a_table_says_so(workplace):
    done = workplace.run("run", "I love AI", "--edit", "attention_weights[love]=0", "--brief")
    assert "softmax over keys, edited" in done.stdout.decode()
    assert done.stderr == b""


def test_attend(workplace):
    rng = np.random.RandomState(0)
    np.savez(workplace.folder / "qkv.npz", **{name: rng.standard_normal((2, 3, 4)) for name in "QKV"})
    script = """
set -e
attnctl attend qkv.npz -o plain.npz
attnctl attend qkv.npz --edit 'head_outputs[1]=0' -o edited.json
attnctl diff plain.npz edited.json --json | jq -c '[.first, .configs]'
attnctl attend qkv.npz --edit 'head_outputs[1]=@plain.npz' --json | attnctl diff plain.npz - -q
"""
    done = workplace.shell(script)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == ["head_outputs", {"edits": {"b": ["head_outputs[1]=0"]}}]


def test_a_dump_from_a_pipe_is_patched_in(workplace):
    done = workplace.shell(
        "attnctl run 'I love AI' --seed 4 --json |"
        "attnctl run 'I love AI' --edit attention_weights=@- --edit V=@- --json |"
        "attnctl diff <(attnctl run 'I love AI' --seed 4 --json) - --step attention_weights,head_outputs"
    )
    assert (done.returncode, done.stderr) == (0, b"")


REFUSED = {
    "attention_weights[0,love,:]": "expected =, += or *= and a value after the cell",
    "nothing=0": "no step 'nothing' in this run; it has embeddings",
    "attention_weights=@nowhere.json": "nowhere.json: cannot be read: No such file or directory",
    "attention_weights=@configs/i-love-ai.yaml": "configs/i-love-ai.yaml: not a dump",
    "attention_weights[9]=0": "no head 9",
    "X=1e999": "would be inf",
}


@pytest.mark.parametrize("edit", REFUSED)
def test_what_is_refused_is_one_line_and_writes_nothing(workplace, edit):
    done = workplace.run("run", "I love AI", "--edit", edit, "-o", "out.json")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"attnctl: edit '{edit}': ")
    assert REFUSED[edit] in line
    assert not (workplace.folder / "out.json").exists()


def test_an_edit_is_explained_as_one(workplace):
    script = (
        "attnctl run 'I love AI' --edit 'attention_weights[love]=0' --json |"
        "attnctl explain - 'attention_weights[love,AI]'"
    )
    done = workplace.shell(script)
    assert done.returncode == 0
    assert b"edited: attention_weights[love]=0" in done.stdout

"""`attnctl stats` as a shell sees it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def dumps(workplace):
    workplace.shell(
        "attnctl run 'I love AI' --heads 2 -o a.json;"
        "attnctl run 'I love AI' --heads 2 --seed 1 -o b.npz;"
        "attnctl run 'I love AI' 'AI loves cats' 'AI' --heads 2 -o many.jsonl"
    )
    return workplace


def found(workplace, *args):
    done = workplace.run("stats", *args, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def test_parts_of_a_set_of_dumps_have_what_the_whole_gives(dumps):
    whole = found(dumps, "a.json", "b.npz", "many.jsonl")
    assert [dump["dump"] for dump in whole["dumps"]] == [
        "a.json",
        "b.npz",
        *(f"many.jsonl[{i}]" for i in range(3)),
    ]
    assert [dump["sentence"] for dump in whole["dumps"]][2:] == ["I love AI", "AI loves cats", "AI"]
    parts = [found(dumps, "a.json"), found(dumps, "b.npz", "many.jsonl")]
    assert [dump for part in parts for dump in part["dumps"]] == whole["dumps"]
    (first, *_) = whole["aggregate"]["heads"]
    assert first["entropy"] == first["sums"]["entropy"] / first["rows"]["entropy"]
    assert first["rows"]["entropy"] == 13


def test_a_table_from_a_pipe(dumps):
    done = dumps.shell("cat a.json | attnctl stats -")
    head, name, *rows = done.stdout.decode().splitlines()
    assert " ".join(head.split()) == "head bits keys dist prev first self same largest nearest"
    assert name == "-  I love AI"
    assert [row.split()[0] for row in rows[:2]] == ["0", "1"]


def test_csv(dumps):
    done = dumps.run("stats", "a.json", "b.npz", "--format", "csv")
    lines = done.stdout.decode().splitlines()
    groups = ("a.json", "b.npz", "all")
    assert [line.split(",")[:2] for line in lines[1:]] == [[name, head] for name in groups for head in "01"]


def test_rollout(dumps):
    rolled = found(dumps, "a.json", "b.npz", "--rollout")["rollout"]
    assert rolled["tokens"] == ["I", "love", "AI"]
    assert [sum(row) for row in rolled["data"]] == pytest.approx([1, 1, 1])
    done = dumps.run("stats", "a.json", "b.npz", "--rollout")
    assert "rollout" in done.stdout.decode()


def test_arrays_of_others(dumps):
    dumps.shell("echo '{\"attn\": [[1, 0], [0.5, 0.5]]}' > theirs.json")
    (head,) = found(dumps, "theirs.json", "--name", "attn=attention_weights")["dumps"][0]["heads"]
    assert (head["entropy"], head["self"], head["same_token"]) == (0.5, 0.75, None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no-such-file.json"], "no-such-file.json: cannot be read"),
        (
            ["a.json", "--format", "markdown"],
            "--format markdown: statistics are written as table, json or csv",
        ),
        (["a.json", "--json", "--precision", "3"], "--precision: only tables have that"),
        (["a.json", "--format", "csv", "--rollout"], "--rollout: a matrix has no place in this CSV"),
        (["a.json", "many.jsonl", "--rollout"], "layer 2: not the sentence of layer 0"),
        ([], "SOURCE"),
    ],
)
def test_what_makes_no_sense_is_refused(dumps, args, said):
    done = dumps.run("stats", *args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()

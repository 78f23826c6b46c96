"""`attnctl stats` of a corpus as a shell sees it: shards, their merge, resuming, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
from corpora import written


def test_shards_and_their_merge(run, tmp_path):
    written(tmp_path / "c.txt")
    assert run("--file", "c.txt", "-o", "whole.json") == (0, "", "")
    for number in (3, 1, 2):
        assert run("--file", "c.txt", "--shard", f"{number}/3", "-o", f"part-{number}.json") == (0, "", "")
    assert run("merge", "part-2.json", "part-3.json", "part-1.json", "-o", "merged.json") == (0, "", "")
    whole = (tmp_path / "whole.json").read_bytes()
    assert (tmp_path / "merged.json").read_bytes() == whole
    assert run("merge", "whole.json", "--json") == (0, whole.decode(), "")
    assert run("--file", "c.txt", "--json", "-o", "-") == (0, whole.decode(), "")
    assert {each.name for each in tmp_path.iterdir()} == {
        "c.txt",
        "whole.json",
        "merged.json",
        *(f"part-{number}.json" for number in (1, 2, 3)),
    }


def test_a_config_says_what_attention(run, tmp_path):
    written(tmp_path / "c.txt")
    (tmp_path / "x.yaml").write_text("heads: 2\nrules: [causal]\n")
    found = json.loads(run("--file", "c.txt", "-c", "x.yaml", "--pairs", "--json")[1])
    assert [len(layer["heads"]) for layer in found["layers"]] == [2]
    assert found["layers"][0]["pairs"][0]["heads"] == [0, 1]
    first = [
        each["key"] <= each["query"] for head in found["layers"][0]["heads"] for each in head["largest"]
    ]
    assert all(first)


def test_as_a_table_and_as_csv(run, tmp_path):
    (tmp_path / "c.txt").write_text("I love AI\n\nAI loves cats\n")
    code, table, err = run("--file", "c.txt", "--shard", "1/1", "--pairs")
    assert (code, err) == (0, "")
    lines = table.splitlines()
    assert lines[0] == "2 sentences, 6 tokens"
    assert lines[2].startswith("head  bits")
    assert run("--file", "c.txt", "--shard", "2/3")[1].startswith("0 sentences, 0 tokens; line 2 of 3")
    code, text, _ = run("--file", "c.txt", "--format", "csv")
    assert (code, [line.split(",")[:2] for line in text.splitlines()]) == (
        0,
        [["dump", "head"], ["layer 0", "0"]],
    )


def test_a_part_a_table_and_a_picture_in_one_go(run, tmp_path):
    written(tmp_path / "c.txt")
    outputs = ("-o", "part.json", "-o", "heads.csv", "-o", "heads.svg")
    assert run("--file", "c.txt", *outputs) == (0, "", "")
    assert (tmp_path / "part.json").read_text() == run("--file", "c.txt", "--json")[1]
    assert (tmp_path / "heads.csv").read_text() == run("--file", "c.txt", "--format", "csv")[1]
    assert "<svg" in (tmp_path / "heads.svg").read_text()
    (tmp_path / "heads.csv").unlink()
    assert run("--file", "c.txt", *outputs) == (0, "", "")
    assert (tmp_path / "heads.csv").exists()


def test_a_stream_that_is_open_gets_the_part(run, tmp_path):
    written(tmp_path / "c.txt")
    end, start = os.pipe()
    assert run("--file", "c.txt", "-o", f"/dev/fd/{start}") == (0, "", "")
    os.close(start)
    with os.fdopen(end) as stream:
        assert stream.read() == run("--file", "c.txt", "--json")[1]


def test_a_model_reads_a_corpus_as_attention_does(run, tmp_path, model):
    written(tmp_path / "c.txt")
    args = ("--model", model, "--file", "c.txt")
    code, whole, err = run(*args, "--json")
    assert (code, err) == (0, "")
    assert json.loads(whole)["schema"] == "attnctl/corpus/1"
    for number in (1, 2):
        assert run(*args, "--shard", f"{number}/2", "-o", f"{number}.json") == (0, "", "")
    assert run("merge", "2.json", "1.json", "--json") == (0, whole, "")
    assert run(*args, "-o", "-") == run("merge", "2.json", "1.json")


@pytest.mark.parametrize(
    "data", [b"a b\r\nc d\r\n", b"\xef\xbb\xbfa b\nc d", b"a b\n\n\nc d\n\n"], ids=["CRLF", "mark", "blank"]
)
def test_line_ends_marks_and_blank_lines_are_no_words(run, tmp_path, data):
    (tmp_path / "plain.txt").write_bytes(b"a b\nc d\n")
    (tmp_path / "c.txt").write_bytes(data)
    plain, other = (json.loads(run("--file", name, "--json")[1]) for name in ("plain.txt", "c.txt"))
    assert other["sentences"] == 2
    assert [head["sums"] for head in other["layers"][0]["heads"]] == [
        head["sums"] for head in plain["layers"][0]["heads"]
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--file", "none.txt", "-o", "p.json"], "none.txt: No such file or directory"),
        (["--file", ".", "-o", "p.json"], "Is a directory"),
        (["--file", "-", "--shard", "1/2"], "--file -: a corpus is read more than once"),
        (["--file", "c.txt", "--shard", "0/0"], "--shard: 0/0 is of no shards"),
        (["--file", "c.txt", "--shard", "8/7"], "--shard: 8/7: no such shard; they go from 1/7 to 7/7"),
        (["--file", "c.txt", "--rollout"], "--rollout: means nothing for a corpus"),
        (["--file", "c.txt", "x.json"], "SOURCE: means nothing for a corpus"),
        (["--file", "c.txt", "--trace", "1"], "--trace: means nothing for a corpus"),
        (["merge", "whole.json", "-c", "x.yaml"], "-c: merge takes parts as they are"),
        (["--file", "c.txt", "-c", "none.yaml"], "none.yaml"),
        (["--shard", "1/2"], "--shard: only a corpus has that; add --file"),
        (["--pairs", "x.json"], "--pairs: only a corpus has that; add --file"),
        (["-c", "x.yaml", "x.json"], "-c: only a sentence has that, and this is a dump"),
        (
            ["--file", "x.txt", "--model", "DIR", "--seed", "0"],
            "--seed: a model has its own attention; leave it out",
        ),
        (
            ["--model", "DIR", "we like", "--seed", "0"],
            "--seed: a model has its own attention; leave it out",
        ),
        (["--file", "c.txt", "-o", "p.json", "--precision", "3"], "--precision: only tables have that"),
        (["--file", "c.txt", "-o", "part.npz"], "part.npz"),
        (["merge", "whole.json", "-o", "whole.json"], "it is what this command reads"),
        (["--file", "c.txt", "-o", "c.txt"], "c.txt"),
        (["merge"], "merge: no PART"),
        (["merge", "none.json"], "none.json: No such file or directory"),
        (["merge", "c.txt"], "c.txt: not JSON"),
        (["merge", "whole.json", "--shard", "1/2"], "--shard: merge takes parts as they are"),
        (["merge", "whole.json", "whole.json"], "lines 1 to 6: in whole.json and in whole.json"),
        (["merge", "half.json"], "lines 4 to 6: in none of the parts"),
        (["--file", "c.txt", "-o", "no/p.json"], "no/p.json: cannot be written"),
    ],
)
def test_what_is_refused(run, tmp_path, args, said):
    written(tmp_path / "c.txt", lines=6)
    run("--file", "c.txt", "-o", "whole.json")
    run("--file", "c.txt", "--shard", "1/2", "-o", "half.json")
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err

"""`attnctl corpus` as a shell sees it: shards, their merge, resuming, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
from corpora import written


def test_shards_and_their_merge(run, tmp_path):
    written(tmp_path / "c.txt")
    assert run("run", "c.txt", "-o", "whole.json") == (0, "", "")
    for number in (3, 1, 2):
        assert run("run", "c.txt", "--shard", f"{number}/3", "-o", f"part-{number}.json") == (0, "", "")
    assert run("merge", "part-2.json", "part-3.json", "part-1.json", "-o", "merged.json") == (0, "", "")
    whole = (tmp_path / "whole.json").read_bytes()
    assert (tmp_path / "merged.json").read_bytes() == whole
    assert run("merge", "whole.json", "--json") == (0, whole.decode(), "")
    assert run("run", "c.txt", "--json", "-o", "-") == (0, whole.decode(), "")
    assert {each.name for each in tmp_path.iterdir()} == {
        "c.txt",
        "whole.json",
        "merged.json",
        *(f"part-{number}.json" for number in (1, 2, 3)),
    }


def test_a_config_says_what_attention(run, tmp_path):
    written(tmp_path / "c.txt")
    (tmp_path / "x.yaml").write_text("heads: 2\nrules: [causal]\n")
    found = json.loads(run("run", "c.txt", "-c", "x.yaml", "--pairs", "--json")[1])
    assert [len(layer["heads"]) for layer in found["layers"]] == [2]
    assert found["layers"][0]["pairs"][0]["heads"] == [0, 1]
    first = [
        each["key"] <= each["query"] for head in found["layers"][0]["heads"] for each in head["largest"]
    ]
    assert all(first)


def test_as_a_table_and_as_csv(run, tmp_path):
    (tmp_path / "c.txt").write_text("I love AI\n\nAI loves cats\n")
    code, table, err = run("run", "c.txt", "--shard", "1/1", "--pairs")
    assert (code, err) == (0, "")
    lines = table.splitlines()
    assert lines[0] == "2 sentences, 6 tokens"
    assert lines[2].startswith("head  bits")
    assert run("run", "c.txt", "--shard", "2/3")[1].startswith("0 sentences, 0 tokens; line 2 of 3")
    code, text, _ = run("run", "c.txt", "--format", "csv")
    assert (code, [line.split(",")[:2] for line in text.splitlines()]) == (
        0,
        [["dump", "head"], ["layer 0", "0"]],
    )


def test_a_part_a_table_and_a_picture_in_one_go(run, tmp_path):
    written(tmp_path / "c.txt")
    outputs = ("-o", "part.json", "-o", "heads.csv", "-o", "heads.svg")
    assert run("run", "c.txt", *outputs) == (0, "", "")
    assert (tmp_path / "part.json").read_text() == run("run", "c.txt", "--json")[1]
    assert (tmp_path / "heads.csv").read_text() == run("run", "c.txt", "--format", "csv")[1]
    assert "<svg" in (tmp_path / "heads.svg").read_text()
    (tmp_path / "heads.csv").unlink()
    assert run("run", "c.txt", *outputs) == (0, "", "")
    assert (tmp_path / "heads.csv").exists()


def test_a_stream_that_is_open_gets_the_part(run, tmp_path):
    written(tmp_path / "c.txt")
    end, start = os.pipe()
    assert run("run", "c.txt", "-o", f"/dev/fd/{start}") == (0, "", "")
    os.close(start)
    with os.fdopen(end) as stream:
        assert stream.read() == run("run", "c.txt", "--json")[1]


def test_a_model_reads_a_corpus_as_attention_does(run, tmp_path, model):
    written(tmp_path / "c.txt")
    args = ("run", "--model", model, "c.txt")
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
    plain, other = (json.loads(run("run", name, "--json")[1]) for name in ("plain.txt", "c.txt"))
    assert other["sentences"] == 2
    assert [head["sums"] for head in other["layers"][0]["heads"]] == [
        head["sums"] for head in plain["layers"][0]["heads"]
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "none.txt", "-o", "p.json"], "none.txt: No such file or directory"),
        (["run", ".", "-o", "p.json"], "Is a directory"),
        (["run", "-", "--shard", "1/2"], "-: a corpus is read more than once"),
        (["run", "c.txt", "--shard", "0/0"], "--shard: 0/0 is of no shards"),
        (["run", "c.txt", "--shard", "8/7"], "--shard: 8/7: no such shard; they go from 1/7 to 7/7"),
        (["run", "c.txt", "--rollout"], "corpus run: No such option: --rollout"),
        (["run", "c.txt", "x.json"], "corpus run: Got unexpected extra argument"),
        (["run", "c.txt", "--trace", "1"], "corpus run: No such option: --trace"),
        (["merge", "whole.json", "-c", "x.yaml"], "corpus merge: No such option: -c"),
        (["run", "c.txt", "-c", "none.yaml"], "none.yaml"),
        (["run", "--shard", "1/2"], "corpus run: Missing argument 'CORPUS'"),
        ([], "corpus: no command; there are run and merge"),
        (
            ["run", "x.txt", "--model", "DIR", "--seed", "0"],
            "--seed: a model has its own attention; leave it out",
        ),
        (["run", "c.txt", "-o", "p.json", "--precision", "3"], "--precision: only tables have that"),
        (["run", "c.txt", "-o", "part.npz"], "part.npz"),
        (["merge", "whole.json", "-o", "whole.json"], "it is what this command reads"),
        (["run", "c.txt", "-o", "c.txt"], "c.txt"),
        (["merge"], "corpus merge: Missing argument 'PART...'"),
        (["merge", "none.json"], "none.json: No such file or directory"),
        (["merge", "c.txt"], "c.txt: not JSON"),
        (["merge", "whole.json", "--shard", "1/2"], "corpus merge: No such option: --shard"),
        (["merge", "whole.json", "whole.json"], "lines 1 to 6: in whole.json and in whole.json"),
        (["merge", "half.json"], "lines 4 to 6: in none of the parts"),
        (["run", "c.txt", "-o", "no/p.json"], "no/p.json: cannot be written"),
    ],
)
def test_what_is_refused(run, tmp_path, args, said):
    written(tmp_path / "c.txt", lines=6)
    run("run", "c.txt", "-o", "whole.json")
    run("run", "c.txt", "--shard", "1/2", "-o", "half.json")
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert said in err


ELSEWHERE = "{0}: only a corpus has that; write attnctl corpus run CORPUS {0} …"
NOW = "attnctl: note: the new spelling is: {}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stats --file c.txt --pairs", "corpus run c.txt --pairs"),
        ("stats --heads 2 --file=c.txt --json", "corpus run --heads 2 c.txt --json"),
        ("stats --file c.txt --format csv", "corpus run c.txt --format csv"),
        ("stats merge 1.json 2.json", "corpus merge 1.json 2.json"),
        ("stats --format csv merge 2.json 1.json", "corpus merge --format csv 2.json 1.json"),
    ],
)
def test_the_old_words_work_and_say_the_new_ones(call, tmp_path, old, new):
    written(tmp_path / "c.txt", lines=6)
    for number in (1, 2):
        assert call("corpus", "run", "c.txt", "--shard", f"{number}/2", "-o", f"{number}.json").err == ""
    done = call(*new.split())
    assert (done.code, done.err) == (0, "")
    assert done.out
    assert call(*old.split()) == (0, done.out, NOW.format(f"attnctl {new}"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shard", "1/2"], ELSEWHERE.format("--shard")),
        (["x.json", "--pairs"], ELSEWHERE.format("--pairs")),
        (["x.json", "--on=dask"], ELSEWHERE.format("--on")),
        (["--format", "merge", "x.json"], "--format: merge is not one of"),
        (["--", "merge"], "merge: no such file"),
    ],
)
def test_stats_says_where_a_corpus_is_measured(call, words, said):
    done = call("stats", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"attnctl: {said}")

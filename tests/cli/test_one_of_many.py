# ruff: noqa: E501  (a row a line)
"""One trace of a file of several, by number or by sentence, in every verb; pairs in diff."""

import json

import pytest

VERBS = [
    ("show", ["--json"], lambda out: json.loads(out)["sentence"]),
    ("show", ["--brief"], lambda out: out.splitlines()[0]),
    ("check", ["--json"], lambda out: "I love AI too" if json.loads(out)["agrees"] else ""),
    ("stats", ["--json"], lambda out: json.loads(out)["dumps"][0]["sentence"]),
    (
        "explain",
        ["A[0,too,AI]", "--json"],
        lambda out: "I love AI " + json.loads(out)["tokens"]["query"],
    ),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("verb", "more", "sentence"), VERBS, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize(
    "which", [["s.jsonl[2]"], ["s.jsonl[-1]"], ["s.jsonl[I love AI too]"], ["s.jsonl", "--trace", "2"],
              ["s.jsonl", "--trace", "I love AI too"]],
    ids=" ".join,
)  # fmt: skip
def test_every_verb_takes_one_of_many(three, verb, more, sentence, which):
    done = three(verb, which[0], *more, *which[1:])
    assert (done.code, done.err) == (0, "")
    assert sentence(done.out) == "I love AI too"


def test_from_a_pipe(three, tmp_path):
    lines = (tmp_path / "s.jsonl").read_bytes()
    for args in (["show", "-", "--trace", "we"], ["check", "-", "--trace", "1"]):
        done = three(*args, stdin=lines)
        assert (done.code, done.err) == (0, "")


def test_a_file_of_that_name_is_meant_whole(call):
    call("run", "one thing", "two", "-o", "a[1].json")
    assert len(json.loads(call("show", "a[1].json", "--json").out)) == 2
    assert json.loads(call("show", "a[1].json[1]", "--json").out)["sentence"] == "two"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["explain", "s.jsonl", "A[0,0,0]"], "s.jsonl: 3 traces where one was expected; pick one by number, s.jsonl[0] to s.jsonl[2], or by sentence"),
        (["show", "s.jsonl[3]"], "s.jsonl[3]: there are 3 traces, from 0"),
        (["show", "s.jsonl", "--trace", "9" * 5000], "s.jsonl[999999999999999999999999999999999999999…]: there are 3 traces, from 0"),
        (["show", "s.jsonl[I love A]"], "s.jsonl: no trace of the sentence 'I love A'; did you mean I love AI or I love AI too?"),
        (["show", "none.jsonl[1]"], "none.jsonl[1]: cannot be read: No such file or directory"),
        (["diff", "s.jsonl", "s.jsonl[0]"], "s.jsonl holds 3 traces, s.jsonl[0] 1 trace; pick one of each by number from 0 or by sentence, like FILE[0]"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_is_not_there_is_refused(three, args, message):
    assert three(*args) == (2, "", f"attnctl: {message}\n")


def test_check_judges_each(three):
    done = three("check", "s.jsonl")
    first, _, *table = done.out.splitlines()
    assert (done.code, first) == (0, "3 traces agree.")
    assert [line.split("│")[3].strip() for line in table[3:6]] == ["I love AI", "we", "I love AI too"]
    done = three("check", "s.jsonl", "--heads", "2", "--causal", "--json")
    found = json.loads(done.out)
    assert (done.code, [one["agrees"] for one in found]) == (1, [False, True, False])


def test_diff_compares_pairs(three):
    three("run", "I love AI", "we", "I love AI too", "--heads", "2", "--seed", "1", "-o", "t.jsonl")
    same = three("diff", "s.jsonl", "s.jsonl", "--json")
    assert (same.code, [each["same"] for each in json.loads(same.out)]) == (0, [True] * 3)
    other = three("diff", "s.jsonl", "t.jsonl")
    assert other.code == 1
    assert [line for line in other.out.splitlines() if line.startswith("pair")] == [
        "pair 0", "pair 1", "pair 2",
    ]  # fmt: skip
    one = three("diff", "s.jsonl", "t.jsonl", "--trace", "1", "--json")
    assert (one.code, json.loads(one.out)["same"]) == (1, False)


def test_the_file_of_the_trace_is_not_overwritten(three, tmp_path):
    before = (tmp_path / "s.jsonl").read_bytes()
    done = three("show", "s.jsonl[1]", "-o", "s.jsonl")
    message = "attnctl: -o s.jsonl: it is what this command reads; give another name\n"
    assert done == (2, "", message)
    assert (tmp_path / "s.jsonl").read_bytes() == before

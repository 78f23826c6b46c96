"""Flags against configs, the environment and each other; where output goes."""

import json

import pytest

CONFIGS = {
    "alibi.yaml": "positions: alibi\n",
    "rope.yaml": "positions: {rope: {theta: 500, dims: 2}}\n",
    "both.yaml": "positions: rope\nrules: [alibi]\n",
    "lower.yaml": "tokenizer: {split: words, lowercase: true}\n",
}


def rope(theta=10000.0, **more):
    return {"rope": {"theta": theta, "interleaved": False, **more}}


@pytest.mark.parametrize(
    ("args", "positions", "rules"),
    [
        (["-c", "alibi.yaml"], "none", ["alibi"]),
        (["-c", "alibi.yaml", "--positions", "none"], "none", []),
        (["-c", "alibi.yaml", "--positions", "rope"], rope(), []),
        (["-c", "alibi.yaml", "--positions", "alibi"], "none", ["alibi"]),
        (["-c", "rope.yaml", "--positions", "alibi"], "none", ["alibi"]),
        (["-c", "both.yaml"], rope(), ["alibi"]),
        (["-c", "both.yaml", "--positions", "none"], "none", []),
        (["-c", "both.yaml", "--heads", "2"], rope(), ["alibi"]),
        (["-c", "rope.yaml", "--theta", "7"], rope(7.0, dims=2), []),
        (["-c", "rope.yaml", "--positions", "rope", "--theta", "7"], rope(7.0), []),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_flags_beat_the_positions_of_a_config(call, tmp_path, args, positions, rules):
    for name, text in CONFIGS.items():
        (tmp_path / name).write_text(text)
    config = json.loads(call("run", "I love AI", *args, "--step", "X", "--json").out)["config"]
    assert (config["positions"], config["rules"]) == (positions, rules)


def test_theta_needs_rotary_positions(call, tmp_path):
    (tmp_path / "alibi.yaml").write_text(CONFIGS["alibi.yaml"])
    for args in ([], ["-c", "alibi.yaml"], ["--positions", "sinusoidal"]):
        done = call("run", "I love AI", *args, "--theta", "7")
        assert done == (2, "", "attnctl: --theta: only rotary positions have that; add --positions rope\n")


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        ([], ["Cats", "chase", "mice."]),
        (["--tokenizer", "words"], ["Cats", "chase", "mice", "."]),
        (["--tokenizer", "words", "--lowercase"], ["cats", "chase", "mice", "."]),
        (["--lowercase"], ["cats", "chase", "mice."]),
        (["--tokenizer", "characters"], list("Cats chase mice.")),
        (["-c", "lower.yaml", "--tokenizer", "whitespace"], ["cats", "chase", "mice."]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_the_tokenizer_has_flags(call, tmp_path, args, tokens):
    (tmp_path / "lower.yaml").write_text(CONFIGS["lower.yaml"])
    assert json.loads(call("run", "Cats chase mice.", *args, "--json").out)["tokens"] == tokens


DIGITS = "1" * 5000


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "option",
    [
        *(f"--{name}={value}" for name in ("heads", "kv-heads", "d-model", "head", "window",
                                           "seed", "precision", "rotary-dims", "causal-offset")
          for value in ("-1" if name != "causal-offset" else "-" + DIGITS, DIGITS, "", "x", "1e3", "٣")),
        "--head=0-", "--head=-3", "--head=3-1", "--head=0-99999999999", "--head=0--1", "--head=0-1-2",
        "--head=" + "0-9999," * 9000 + "0",
        "--window=1,2,3", f"--window=0,{DIGITS}", "--max-memory=-1", f"--max-memory={DIGITS}",
    ],
    ids=lambda option: option[:24],
)  # fmt: skip
def test_numbers_that_are_none_are_refused(call, option):
    done = call("run", "I love AI", option)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"attnctl: {option.partition('=')[0]}: ")
    assert len(done.err) < 300


@pytest.mark.parametrize(
    ("heads", "shown"), [("0-1", [0, 1]), ("1-3", [1, 2, 3]), ("3,0-1", [3, 0, 1]), ("1,0-2", [1, 0, 2])]
)
def test_a_range_of_heads(call, heads, shown):
    done = call("run", "I love AI", "--heads", "4", "--step", "scores", "--head", heads, COLUMNS="200")
    assert [int(each[0]) for each in done.out.split("─ head ")[1:]] == shown


def test_json_and_another_format_contradict(call):
    call("run", "I love AI", "-o", "a.json")
    for command in (["run", "I"], ["show", "a.json"], ["stats", "a.json"], ["run", "I", "--cost"]):
        done = call(*command, "--json", "--format", "csv")
        message = "--json and --format csv: one output, two formats; leave one of them out"
        assert done == (2, "", f"attnctl: {message}\n")
        assert call(*command, "--json", "--format", "json").code == 0


@pytest.mark.parametrize(
    ("command", "wanted", "start"),
    [
        (["run", "I"], "csv", "step,"),
        (["run", "I"], "npz", "I\n"),
        (["run", "I", "--format", "json"], "csv", "{"),
        (["run", "I", "--json"], "csv", "{"),
        (["run", "I", "--cost"], "csv", "╭"),
        (["run", "I", "--cost"], "json", '{"steps"'),
        (["stats", "a.json"], "markdown", "head"),
        (["stats", "a.json"], "jsonl", "head"),
        (["stats", "a.json"], "csv", "dump"),
    ],
    ids=str,
)
def test_a_format_of_the_environment_that_a_command_cannot_do_is_left_aside(call, command, wanted, start):
    call("run", "I love AI", "-o", "a.json")
    done = call(*command, ATTNCTL_FORMAT=wanted)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(start)


def test_a_format_of_the_environment_that_nobody_knows_is_named(call):
    done = call("run", "I", ATTNCTL_FORMAT="xml")
    message = "ATTNCTL_FORMAT: 'xml' is no format; use table, json, jsonl, csv or markdown"
    assert done == (2, "", f"attnctl: {message}\n")


def test_a_dash_is_stdout(call, tmp_path):
    plain = call("run", "I love AI")
    assert call("run", "I love AI", "-o", "-") == plain
    assert call("run", "I love AI", "-o", "a.json", "-o", "-") == plain
    assert json.loads((tmp_path / "a.json").read_text())["sentence"] == "I love AI"
    assert call("run", "I love AI", "-o", "-", "--json").out == call("run", "I love AI", "--json").out
    assert call("config", "init", "-o", "-") == call("config", "init")
    assert not (tmp_path / "-").exists()


HOSTILE = "a\u202eb\x9b31m"


@pytest.mark.parametrize(
    "command",
    [
        ["check", "a.json", "--json"],
        ["diff", "a.json", "a.json", "--json"],
        ["stats", "a.json", "--json"],
        ["explain", "a.json", "attention_weights[0,0,0]", "--json"],
        ["show", "a.json", "--json"],
    ],
    ids=" ".join,
)
def test_no_json_steers_a_terminal(call, tmp_path, command):
    call("run", HOSTILE, "-o", "a.json")
    dump = json.loads((tmp_path / "a.json").read_text())
    dump["steps"]["attention_weights"]["data"][0][0][0] = 0.5
    dump["config"][HOSTILE] = dump["steps"]["scores"]["formula"] = HOSTILE
    (tmp_path / "a.json").write_text(json.dumps(dump))
    done = call(*command)
    assert done.code in {0, 1}
    assert not set(done.out) & {"\u202e", "\x9b"}
    json.loads(done.out)


def test_explain_runs_a_sentence(call):
    call("run", "I love AI", "--heads", "2", "-o", "a.json")
    dump = call("explain", "a.json", "A[1,love,AI]")
    assert call("explain", "I love AI", "--heads", "2", "A[1,love,AI]") == dump
    both = call("explain", "I love AI", "--heads", "2", "A[love,AI]")
    assert both.code == 0
    assert both.out == call("explain", "a.json", "A[0,love,AI]").out + "\n" + dump.out
    cells = json.loads(call("explain", "a.json", "A[love,AI]", "--json").out)
    assert [each["cell"] for each in cells] == [f"attention_weights[{h},love,AI]" for h in (0, 1)]
    seeded = call("explain", "I love AI", "--seed", "3", "A[love,AI]")
    assert (seeded.code, seeded.out) != (0, call("explain", "I love AI", "A[love,AI]").out)


FLAGS = ("--lowercase", "--seed")
SENTENCE = "and this is a sentence: there is no file of that name"


def test_explain_says_what_only_a_sentence_has(call):
    call("run", "I love AI", "-o", "a.json")
    done = call("explain", "a.json", "--seed", "3", "--lowercase", "A[love,AI]")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"attnctl: {flag}: only a sentence has that, and this is a dump"
        for flag in ("--lowercase", "--seed")
    ]
    done = call("explain", "I love AI", "--trace", "1", "A[love,AI]")
    assert done == (2, "", f"attnctl: --trace: only a dump has that, {SENTENCE}\n")
    for missing in ("none.json", "./none", "none.npz[1]"):
        assert "cannot be read" in call("explain", missing, "A[love,AI]").err


@pytest.mark.parametrize("verb", ["check", "diff"])
def test_full_leaves_nothing_out(call, verb):
    words = " ".join(f"a-rather-long-word-{i}" for i in range(12))
    call("run", words, "--heads", "2", "-o", "a.json")
    call("run", words, "--heads", "2", "--seed", "1", "-o", "b.json")
    files = ["a.json"] if verb == "check" else ["a.json", "b.json"]
    narrow = call(verb, *files, FORCE_COLOR="1", TERM="dumb", COLUMNS="40")
    full = call(verb, *files, "--full", FORCE_COLOR="1", TERM="dumb", COLUMNS="40")
    assert full.code == narrow.code
    assert full.out == call(verb, *files, FORCE_COLOR="1", TERM="dumb", COLUMNS="400").out or (
        max(map(len, full.out.splitlines())) > 40
    )


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_ends_at_newlines_only(call, tmp_path, end):
    sentences = ["a\u2028b", "c\x0cd\x0be", "f\x85g"]
    (tmp_path / "s.txt").write_bytes("".join(each + end for each in sentences).encode())
    done = call("run", "--file", "s.txt", "--json")
    assert [each["sentence"] for each in json.loads(done.out)] == sentences

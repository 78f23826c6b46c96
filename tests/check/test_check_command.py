"""`attnctl check` as a shell sees it."""

import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import planted as own
import pytest
from processor import on_any_processor

from attnctl.cli.program import program

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dump of ours, one with a changed number, and files of another program."""
    folder = tmp_path_factory.mktemp("dumps")
    ours = folder / "ours.json"
    assert program(["run", "the cat saw the dog", "--heads", "2", "--causal", "-o", str(ours)]) == 0
    dump = json.loads(ours.read_text())
    dump["steps"]["attention_weights"]["data"][0][4][3] += 0.02
    (folder / "changed.json").write_text(json.dumps(dump))
    for name, kind, mistake in (
        ("right.npz", own.CAUSAL, None),
        ("unscaled.npz", own.CAUSAL, "no-scale"),
        ("nan.npz", own.BLIND, "nan-where-nothing-is-seen"),
    ):
        with np.errstate(all="ignore"):
            np.savez(folder / name, **own.attend(kind, mistake))
    parts = own.attend(own.CAUSAL, "no-scale")
    theirs = {
        "query": parts["Q"],
        "key": parts["K"],
        "probs": parts["attention_weights"],
        "junk": np.ones(3),
    }
    np.savez(folder / "theirs.npz", **theirs)
    both = {**parts, "concat": own.merge(parts["head_outputs"], "heads-merged-wrong")}
    del both["output"]
    np.savez(folder / "both.npz", **both)
    np.savez(folder / "little.npz", Q=parts["Q"], V=parts["V"])
    part = own.attend(own.CAUSAL)
    np.savez(folder / "part.npz", **{name: part[name] for name in ("scaled_scores", "attention_weights")})
    (folder / "meant.yaml").write_text("heads: 2\nrules: [causal]\n")
    return folder


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def check(folder, monkeypatch):
    """Run `attnctl check` in this process."""
    monkeypatch.chdir(folder)
    for name in {"FORCE_COLOR", "NO_COLOR", "COLUMNS", "COLORTERM", "TERM"} & set(os.environ):
        monkeypatch.delenv(name)

    def run(args, encoding="utf-8", stdin=None, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        err = io.StringIO()
        code = program(["check", *args.split()], stdin=stdin, stdout=out, stderr=err)
        out.flush()
        return Done(code, out.buffer.getvalue().decode(encoding), err.getvalue())

    return run


EXITS = [
    ("ours.json", 0),
    ("right.npz --heads 2 --causal", 0),
    ("unscaled.npz --heads 2 --causal", 1),
    ("unscaled.npz --heads 2 --causal --scale 1", 0),
    ("unscaled.npz --heads 2 --causal --atol 100", 0),
    ("right.npz --heads 2", 1),  # it agrees with --causal
    ("part.npz --causal", 2),  # scaled_scores is there, and nothing that it was computed from
    ("right.npz --heads 3", 2),
    ("changed.json", 1),
    ("changed.json --rtol 0.15", 0),
    ("changed.json --rtol 0.01", 1),
    ("changed.json --decimals 2", 1),
    ("changed.json --decimals 1", 2),
    ("ours.json --rtol 0 --atol 0", 0),
    ("ours.json --window 1", 1),
    ("nan.npz", 1),
    ("theirs.npz", 1),
    ("theirs.npz --causal", 1),
    ("theirs.npz --layer 3", 2),
    ("ours.json --layer 0", 2),
    ("theirs.npz --name query=Q --name key=K --name probs=attention_weights --causal", 1),
    ("little.npz", 2),
    ("no-such-file", 2),
    ("configs/i-love-ai.yaml", 2),
    ("/dev/null", 2),
    ("", 2),
    ("ours.json --rtol -1", 2),
    ("ours.json --atol nan", 2),
    ("ours.json --decimals 3 --atol 1", 2),
    ("ours.json --decimals 99", 2),
    ("ours.json --quiet --json", 2),
    ("ours.json --name a=b", 2),
    ("ours.json --theta 3", 2),
]
CANNOT_TELL = {"part.npz --causal", "changed.json --decimals 1"}
"""Those with a report, though it is not certain."""


@pytest.mark.parametrize(("args", "code"), EXITS, ids=[args for args, _ in EXITS])
def test_exit_codes(check, args, code):
    done = check(args)
    assert done.code == code, done.out + done.err
    told = code < 2 or args in CANNOT_TELL
    assert bool(done.out) == told
    assert bool(done.err) != told


@pytest.mark.sample(4)
@pytest.mark.parametrize(("args", "code"), [each for each in EXITS if "--quiet" not in each[0]])
def test_quiet_leaves_the_exit_code(check, args, code):
    quiet = check(f"{args} -q")
    assert (quiet.code, quiet.out) == (code, "")


TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1"}
PICTURES = {
    "agrees-80": ("ours.json", {**TERMINAL, "COLUMNS": "80"}),
    "changed-80": ("changed.json", {**TERMINAL, "COLUMNS": "80"}),
    "changed-140": ("changed.json", {**TERMINAL, "COLUMNS": "140"}),
    "changed-ascii": ("changed.json", {"encoding": "ascii"}),
    "both-pipe": ("both.npz --heads 2 --causal", {}),
    "nan-pipe": ("nan.npz", {}),
    "theirs-pipe": ("theirs.npz --name query=Q --name key=K --name probs=attention_weights --causal", {}),
    "colours": ("changed.json", {"FORCE_COLOR": "1", "COLUMNS": "80", "COLORTERM": "truecolor"}),
}
"""Run this file to write the golden files anew, then read the diff."""


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_printed(check, name):
    args, environ = PICTURES[name]
    shown = check(args, **environ).out
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(shown)
    assert on_any_processor(shown) == on_any_processor(path.read_text())
    if "COLUMNS" in environ and name != "colours":
        assert max(map(len, shown.splitlines())) <= int(environ["COLUMNS"])


def test_every_picture_is_of_a_case():
    assert {path.stem for path in GOLDEN.iterdir()} == set(PICTURES)


def test_json(check):
    done = check("both.npz --heads 2 --causal --json")
    found = json.loads(done.out, parse_constant=pytest.fail)
    assert list(found) == [
        "agrees", "first", "mistake", "largest_difference", "at", "cell", "words", "fix", "also", "hint",
        "then", "steps", "unknown", "cannot_tell", "not_filled", "notes",
        "reading", "unasked", "presumed",
    ]  # fmt: skip
    assert (found["agrees"], found["first"], found["mistake"]) == (False, "scaled_scores", "no-scale")
    assert found["fix"] == "divide Q Kᵀ by np.sqrt(d_k), here √5"
    assert found["cell"] == "scaled_scores[{},{},{}]".format(*found["at"])
    assert found["largest_difference"] == found["steps"]["scaled_scores"]["largest_difference"]
    assert [(each["step"], each["mistake"]) for each in found["then"]] == [("concat", "heads-merged-wrong")]
    assert found["steps"]["Q"].pop("allowed") < 1e-13
    assert found["steps"]["Q"] == {
        "verdict": "agrees", "largest_difference": 0.0, "at": [0, 0, 0], "differing": 0, "of": 60,
    }  # fmt: skip
    fine = json.loads(check("ours.json --json").out)
    assert (fine["agrees"], fine["first"], fine["mistake"], fine["at"]) == (True, None, None, None)


def test_a_nan_is_a_string_in_json(check):
    found = json.loads(check("nan.npz --json").out, parse_constant=pytest.fail)
    assert (found["mistake"], found["largest_difference"]) == ("nan-where-nothing-is-seen", "NaN")
    assert found["steps"]["attention_weights"]["found"] == "NaN"


def test_what_cannot_be_told_is_said_with_what_to_record(check):
    done = check("part.npz --causal --json")
    found = json.loads(done.out)
    assert (done.code, found["agrees"], found["first"]) == (2, None, None)
    (step,) = found["cannot_tell"]
    assert (step["step"], step["words"]) == ("scaled_scores", "nothing says how it came about")
    assert "scaled_scores cannot be judged: nothing says how" in check("part.npz --causal").out


@pytest.mark.parametrize("name", ["right.npz", "unscaled.npz"])
def test_a_dump_comes_from_a_pipe_in_any_format(check, folder, name):
    stdin = io.TextIOWrapper(io.BytesIO((folder / name).read_bytes()))
    piped = check("- --heads 2 --causal --json", stdin=stdin)
    assert piped == check(f"{name} --heads 2 --causal --json")


def test_a_config_says_what_was_intended(check):
    assert check("right.npz -c meant.yaml").code == 0
    assert check("unscaled.npz -c meant.yaml").code == 1
    assert check("unscaled.npz -c meant.yaml --scale 1").code == 0


def test_the_wrong_cell_can_be_explained(workplace):
    script = (
        "attnctl run 'I love AI' --json |"
        " jq '.steps.scores.data[0][1][2] += 1' > x.json\n"
        "cell=$(attnctl check x.json --json | jq -r .cell); echo $cell\n"
        "attnctl run 'I love AI' --json | attnctl explain - \"$cell\" --json | jq .value\n"
        "attnctl check x.json --json | jq .steps.scores.expected"
    )
    cell, first, second = workplace.shell(script).stdout.decode().split()
    assert cell == "scores[0,love,AI]"
    assert float(first) == pytest.approx(float(second), rel=1e-12)


def test_hostile_tokens_reach_the_screen_as_text(workplace):
    workplace.run("run", "[red]x \x1b[31mI \u202elove :smile:", "-o", "x.json")
    dump = json.loads((workplace.folder / "x.json").read_text())
    dump["steps"]["scores"]["data"][0][1][2] += 1
    (workplace.folder / "x.json").write_text(json.dumps(dump))
    shown = workplace.run("check", "x.json").stdout.decode()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[head 0, \\x1b[31mI, \\u202elove]" in shown


def test_a_program_with_two_bugs_is_found_out_and_then_mended(workplace):
    buggy = (workplace.folder / "samples" / "attention_with_bugs.py").read_text()
    mended = buggy.replace("(heads, n, -1))", "(n, heads, -1)).swapaxes(0, 1)")
    mended = mended.replace("np.sqrt(d_model)", "np.sqrt(d_model / heads)")
    found = []
    for text in (buggy, mended):
        (workplace.folder / "attention.py").write_text(text)
        script = "python attention.py && attnctl check dump.npz --heads 2 --causal --json"
        found.append(json.loads(workplace.shell(script).stdout))
    assert found[0]["mistake"] == "heads-split-wrong"
    assert found[0]["then"][0]["mistake"] == "scale-by-sqrt-d_model"
    assert found[1]["agrees"]


def test_a_causal_mask_that_only_the_weights_show_is_judged_with_it_and_said(workplace):
    workplace.shell("python samples/attention_with_bugs.py")
    found = workplace.shell("attnctl check dump.npz")
    assert found.returncode == 1
    shown = found.stdout.decode()
    assert "(heads-split-wrong)" in shown
    assert "(scale-by-sqrt-d_model)" in shown
    said = "Judged with --causal: attention_weights is 0 for every later key. Say --causal to ask for it."
    assert said in shown
    assert "No known mistake" not in shown
    assert shown.endswith("Why: attnctl explain dump.npz 'attention_weights[1,4,3]' --causal\n")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no mistake even with the mask", "not a causal mask"])
def test_a_mask_that_explains_nothing_is_not_presumed(workplace, case):
    workplace.shell("python samples/attention_with_bugs.py")
    arrays = dict(np.load(workplace.folder / "dump.npz"))
    weights = arrays["attention_weights"].copy()
    if case == "not a causal mask":
        weights[0, 0, 4] = 1e-9
    else:
        weights[weights > 0] = np.random.default_rng(1).random(int((weights > 0).sum()))
    np.savez(workplace.folder / "other.npz", **{**arrays, "attention_weights": weights})
    report = json.loads(workplace.run("check", "other.npz", "--json").stdout)
    assert (report["mistake"], report["presumed"]) == (None, None)


if __name__ == "__main__":
    os.environ["WRITE_GOLDEN"] = "1"
    sys.exit(pytest.main([__file__, "-k", "test_what_is_printed"]))

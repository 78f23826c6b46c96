"""`attnctl diff` as a shell sees it."""

import json
import os
import shutil

import pytest

from attnctl.cli.program import program


def run(workplace, args, file):
    done = workplace.shell(f"attnctl run {args} -o {file}")
    assert (done.returncode, done.stdout) == (0, b"")


DUMPS = {
    "two.json": "",
    "two.npz": "",
    "causal.safetensors": "--causal",
    "wide.json": "--d-k 3 --step Q,K",
    "single.json": "--dtype float32",
}


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for name, args in DUMPS.items():
        command = ["run", "I love AI", "--heads", "2", *args.split(), "-o", str(folder / name)]
        assert program(command) == 0
    return folder


@pytest.fixture
def dumps(workplace, made_once):
    shutil.copytree(made_once, workplace.folder, dirs_exist_ok=True)
    return workplace


EXITS = [
    ("two.json two.npz", 0),
    ("two.json two.json --rtol 0 --atol 0", 0),
    ("two.json causal.safetensors", 1),
    ("two.json causal.safetensors --step scores,X", 0),
    ("two.json causal.safetensors --rtol 0 --atol 10", 0),
    ("two.json single.json", 0),
    ("two.json single.json --rtol 1e-9 --atol 0", 1),
    ("two.json wide.json", 2),
    ("two.json causal.safetensors --step masked_scores", 2),
    ("two.json no-such-file", 2),
    ("two.json configs/i-love-ai.yaml", 1),
    ("two.json /dev/null", 2),
    ("two.json", 2),
    ("- -", 2),
    ("two.json two.npz --rtol -1", 2),
    ("two.json two.npz --atol nan", 2),
    ("two.json two.npz --rtol inf", 2),
    ("two.json two.npz --quiet --json", 2),
    ("two.json two.npz --step ''", 2),
]


@pytest.mark.parametrize(("args", "code"), EXITS, ids=[args for args, _ in EXITS])
def test_exit_codes(dumps, args, code):
    done = dumps.shell(f"attnctl diff {args}")
    assert done.returncode == code
    assert bool(done.stdout) == (code < 2)
    assert bool(done.stderr) == (code == 2)
    quiet = dumps.shell(f"attnctl diff {args} -q")
    assert (quiet.returncode, quiet.stdout) == (code, b"")


def test_the_same_is_one_line(dumps):
    done = dumps.run("diff", "two.json", "two.npz")
    assert done.stdout.decode() == "same: 214 numbers in 15 steps, bit-for-bit identical\n"


def test_json(dumps):
    done = dumps.run("diff", "two.json", "causal.safetensors", "--json")
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (found["same"], found["first"]) == (False, "attention_weights")
    assert found["steps"]["scores"] == {
        "max_abs": 0.0, "max_rel": 0.0, "at": None, "differing": 0, "of": 18, "max_rel_at": None,
        "hidden_in_a": 0, "hidden_in_b": 0, "nan": 0, "cell": None, "a": None, "b": None,
    }  # fmt: skip
    weights = found["steps"]["attention_weights"]
    assert (weights["at"], weights["cell"]) == ([0, 0, 0], "attention_weights[0,I,I]")
    assert weights["max_abs"] == weights["b"] - weights["a"] == 1 - weights["a"]
    assert (weights["differing"], weights["of"], weights["max_rel"]) == (12, 18, "Infinity")
    assert (found["only_in_a"], found["only_in_b"]) == ([], ["masked_scores"])
    assert found["configs"] == {"rules": {"a": [], "b": ["causal"]}}
    assert found["left_out"] == {"a": [], "b": []}
    assert found["skipped"] == {}
    assert found["split"]["head_outputs"][1]["parts"]["attended_elsewhere"]["share"] == pytest.approx(1)
    change = found["split"]["output"]
    assert sum(part["share"] for part in change["parts"].values()) == pytest.approx(1, abs=1e-12)
    assert change["a"] + sum(change["terms"].values()) == pytest.approx(change["b"], abs=1e-12)


def test_hidden_scores_are_equal_and_hidden_ones_on_one_side_are_told(workplace):
    run(workplace, "'I love AI' --window 1,1", "a.json")
    run(workplace, "'I love AI' --window 1,0", "b.json")
    found = json.loads(workplace.shell("attnctl diff a.json b.json --json").stdout)["steps"][
        "masked_scores"
    ]
    assert (found["max_abs"], found["b"], found["at"]) == ("Infinity", "-Infinity", [0, 0, 1])
    assert (found["differing"], found["hidden_in_a"], found["hidden_in_b"]) == (2, 0, 2)
    shown = workplace.shell("attnctl diff a.json b.json").stdout.decode()
    assert "masked_scores: 2 hidden (-∞) in B only" in shown
    assert workplace.shell("attnctl diff a.json a.json").returncode == 0


def test_the_cell_that_differs_most_can_be_explained(dumps):
    script = (
        "cell=$(attnctl diff two.json causal.safetensors --json | jq -r .steps.output.cell)\n"
        'attnctl explain two.json "$cell" --json | jq .value\n'
        "attnctl diff two.json causal.safetensors --json | jq .steps.output.a"
    )
    first, second = dumps.shell(script).stdout.split()
    assert first == second


def test_process_substitution(workplace):
    done = workplace.shell(
        "attnctl diff <(attnctl run 'I love AI' --json) <(attnctl run 'I love AI' --heads 2 --json)"
    )
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == [
        "differ: scores is the first of 6 that differ (15 steps compared)",
        "config: heads: 1 → 2",
    ]
    assert done.stderr == b""


def test_stdin_on_either_side(dumps):
    for args in ("- two.npz", "two.npz -"):
        assert dumps.shell(f"cat two.json | attnctl diff {args}").returncode == 0
        assert dumps.shell(f"cat two.npz | attnctl diff {args}").returncode == 0


def test_a_file_of_someone_else(workplace):
    run(workplace, "'I love AI' --heads 2", "ours.json")
    script = """
import json, sys
import numpy as np
steps = {name: np.array(step["data"]) for name, step in json.load(open("ours.json"))["steps"].items()}
e = np.exp(steps["scaled_scores"])
kernel = {"attention_weights": e / e.sum(-2, keepdims=True), "V": steps["V"]}
kernel["head_outputs"] = kernel["attention_weights"] @ kernel["V"]
np.savez("kernel.npz", **kernel)
"""
    (workplace.folder / "kernel.py").write_text(script)
    workplace.shell("python kernel.py")
    done = workplace.run("diff", "ours.json", "kernel.npz", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["first"], found["steps"]["V"]["differing"]) == (
        1,
        "attention_weights",
        0,
    )
    assert list(found["split"]) == ["head_outputs"]


def test_a_pipe_gets_no_colours_and_a_terminal_does(dumps):
    args = ("diff", "two.json", "causal.safetensors")
    assert b"\x1b" not in dumps.run(*args).stdout
    assert b"\x1b[" in dumps.run(*args, FORCE_COLOR="1").stdout
    assert b"\x1b" not in dumps.run(*args, FORCE_COLOR="0").stdout


def test_hostile_tokens_reach_the_screen_as_text(workplace):
    words = "[red]x \x1b[31mI \u202elove :smile: [/red]"
    for seed in "01":
        workplace.run("run", words, "--seed", seed, "-o", f"{seed}.json")
    shown = workplace.run("diff", "0.json", "1.json").stdout.decode()
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_head_of_a_pipe_ends_quietly(dumps):
    done = dumps.shell("attnctl diff two.json causal.safetensors | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[-1] in {b"1", b"141"}
    assert done.stderr == b""


@pytest.fixture
def repository(workplace):
    git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_PAGER": "cat"}
    who = "-c user.name=a -c user.email=a@example.org"
    workplace.environ.update(git)
    script = f"""
set -e
git init -q .
attnctl run 'I love AI' --heads 2 -o golden.json && git add golden.json && git {who} commit -qm one
attnctl run 'I love AI' --heads 2 --causal -o golden.json && cp golden.json added.json
git add added.json golden.json
"""
    assert workplace.shell(script).stderr == b""
    return workplace


def test_as_a_git_difftool(repository):
    done = repository.shell("git difftool -y --extcmd 'attnctl diff' HEAD -- golden.json")
    assert done.stdout.startswith(b"differ: attention_weights is the first of 4 that differ")
    trusted = repository.shell(
        "git difftool -y --trust-exit-code --extcmd 'attnctl diff -q' HEAD -- golden.json"
    )
    assert trusted.returncode != 0
    configured = (
        'git config difftool.attnctl.cmd \'attnctl diff "$LOCAL" "$REMOTE"\'\n'
        "git difftool -y -t attnctl HEAD -- golden.json"
    )
    assert repository.shell(configured).stdout == done.stdout


def test_a_file_that_was_added_is_told(repository):
    done = repository.shell("git difftool -y --extcmd 'attnctl diff' HEAD -- added.json")
    assert b"/dev/null: no dump on this side" in done.stderr


GATE = "attnctl run 'I love AI' --heads 2 {} --json | attnctl diff golden.json - || exit 1\necho fine"


def test_as_a_gate(workplace):
    run(workplace, "'I love AI' --heads 2", "golden.json")
    passed = workplace.shell(GATE.format(""))
    assert (passed.returncode, passed.stdout.splitlines()[-1]) == (0, b"fine")
    stopped = workplace.shell(GATE.format("--softcap 1"))
    assert stopped.returncode == 1
    assert b'config: rules: [] \xe2\x86\x92 [{"softcap": 1.0}]' in stopped.stdout

"""What is installed has the examples, and the schema that configs name is where they name it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.listing import list_meanings
from attnctl.drawing.screen.output import plain_text
from attnctl.inputs.config.examples import example_names, example_summary
from attnctl.inputs.config.form import json_schema

ROOT = Path(__file__).parent.parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"), key=lambda path: path.stem)


def test_every_config_is_an_example_with_a_word_about_it(call):
    assert example_names() == [path.stem for path in CONFIGS]
    lines = call("examples").out.splitlines()
    assert [line.split()[0] for line in lines] == example_names()
    assert all(
        example_summary(name) and example_summary(name) in line
        for name, line in zip(example_names(), lines, strict=True)
    )


def test_the_word_about_an_example_is_a_whole_sentence(call):
    assert example_summary("gradients-by-hand").endswith(
        "with equal scores, so that each weight is a half."
    )
    assert all(example_summary(name).endswith(".") for name in example_names())


def test_the_list_fits_a_terminal():
    lines = list(plain_text(list_meanings({"one": "a b c d", "three": "e"}, Screen(19, fits=True))))
    assert lines == ["one    a b c d", "three  e"]
    lines = list(plain_text(list_meanings({"one": "aaaaa bbbbbb cccccc"}, Screen(18, fits=True))))
    assert lines == ["one  aaaaa bbbbbb", "     cccccc"]


def test_an_example_is_printed_as_it_is_and_runs(call, tmp_path):
    for path in CONFIGS:
        done = call("examples", path.stem)
        assert (done.code, done.out, done.err) == (0, path.read_text(), "")
    assert call("examples", "india-is-great", "-o", "mine.yaml").code == 0
    mine = call("run", "-c", "mine.yaml", "--json")
    assert mine.code == 0
    assert call("run", "-c", "example:india-is-great", "--json") == mine
    assert json.loads((tmp_path / "attnctl.schema.json").read_text()) == json_schema()


@pytest.mark.parametrize("args", [["examples", "nothing"], ["run", "-c", "example:nothing"]], ids=" ".join)
def test_an_example_that_there_is_not_is_refused_with_the_others(call, args):
    done = call(*args)
    *known, last = example_names()
    there = f"there are {', '.join(known)} and {last}"
    assert done == (2, "", f"attnctl: no example 'nothing'; {there}\n")


def test_the_configs_have_their_schema_beside_them():
    """Every run of the tests writes it (tests/generated.py)."""
    assert json.loads((ROOT / "configs" / "attnctl.schema.json").read_text()) == json_schema()
    for path in CONFIGS:
        assert path.read_text().startswith("# yaml-language-server: $schema=attnctl.schema.json\n")


def test_config_init_writes_the_schema_beside_the_config(call, tmp_path):
    (tmp_path / "sub").mkdir()
    assert call("config", "init", "I love AI", "-o", "sub/c.yaml").code == 0
    assert json.loads((tmp_path / "sub" / "attnctl.schema.json").read_text()) == json_schema()
    assert not (tmp_path / "attnctl.schema.json").exists()


@pytest.mark.parametrize("target", ["d.yaml", "sub/d.yaml", "other/d.yaml", "sub/deep/d.yaml"])
def test_config_init_keeps_relative_files_right(call, tmp_path, target):
    for folder in ("sub/deep", "other"):
        (tmp_path / folder).mkdir(parents=True)
    assert call("run", "I love AI", "--seed", "5", "-o", "sub/w.npz").code == 0
    (tmp_path / "sub" / "c.yaml").write_text(
        "sentence: I love AI\nembeddings: identity\nd_model: 3\nweights:\n"
        f"  W_Q: {{file: ../q.npz}}\n  W_K: {{file: {tmp_path}/q.npz}}\n  W_V: {{file: ./deep/q.npz}}\n"
    )
    for name in ("q.npz", "sub/deep/q.npz"):
        np.savez(tmp_path / name, q=np.eye(3))
    before = call("run", "-c", "sub/c.yaml", "--format", "csv")
    assert before.code == 0
    assert call("config", "init", "-c", "sub/c.yaml", "-o", target).code == 0
    assert call("run", "-c", target, "--format", "csv") == before
    assert f"{tmp_path}/q.npz" in (tmp_path / target).read_text()


def test_config_init_keeps_a_relative_file_of_weights_right(call, tmp_path):
    (tmp_path / "sub").mkdir()
    call("run", "I love AI", "--seed", "5", "-o", "sub/w.npz")
    (tmp_path / "sub" / "c.yaml").write_text("sentence: I love AI\nweights: {file: w.npz}\n")
    assert call("config", "init", "-c", "sub/c.yaml", "-o", "sub/d.yaml").code == 0
    weights = call("run", "-c", "sub/d.yaml", "--step", "W_Q", "--format", "csv")
    assert weights == call("run", "I love AI", "--seed", "5", "--step", "W_Q", "--format", "csv")


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("{file: w.npz}", "c.yaml:1 $.weights.file: no W_Q, W_K, W_V, W_O, W_gate or bias in w.npz"),
        ("{W_Q: {file: w.npz}}", "c.yaml:1 $.weights.W_Q: several arrays in w.npz; name one of a, b"),
        (
            "{W_Q: {file: w.npz, name: c}}",
            "c.yaml:1 $.weights.W_Q: no array 'c' in w.npz; name one of a, b",
        ),
    ],
)
def test_a_file_without_what_is_asked_of_it_says_what_it_has(call, tmp_path, weights, said):
    np.savez(tmp_path / "w.npz", a=np.eye(4), b=np.eye(4))
    (tmp_path / "c.yaml").write_text(f"weights: {weights}\n")
    done = call("run", "I love AI", "-c", "c.yaml")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.slow
def test_the_wheel_has_the_examples(tmp_path):
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    installed = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-m", "attnctl", "run", "-c", "example:india-is-great", "--json"],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["sentence"] == "India is great"
    assert not list((tmp_path / "site" / "attnctl").rglob("README.md")), "for people with the source"
    lessons = tmp_path / "site" / "attnctl" / "lessons"
    assert {path.name for path in lessons.iterdir()} == {
        path.name for path in (ROOT / "attnctl" / "lessons").iterdir()
    }
    assert {path.stem for path in (tmp_path / "site" / "attnctl" / "examples").glob("*.yaml")} == set(
        example_names()
    )

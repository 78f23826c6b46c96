"""attnctl conform as a shell sees it: exit codes, JSON, JUnit, claims, and failing cases run again."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import attnctl
from attnctl.verbs.conform.declared import ARRAYS

KERNELS = Path(__file__).parent.parent / "conform" / "kernels_here.py"
QUICK = ("--quick", "--dtype", "float64", "--feature", "attention")


def target(name):
    return f"{KERNELS}:{name}"


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("bad", 1), ("not_float64", 2)])
def test_exit_codes(call, name, code):
    done = call("conform", target(name), *QUICK)
    assert done.code == code
    assert done.err == ""
    assert {0: "It conforms", 1: "no-scale", 2: "Nothing was run"}[code] in done.out


def test_json_and_junit_say_the_same(call, tmp_path):
    done = call("conform", target("bad"), *QUICK, "--feature", "softcap", "--json", "--junit", "out.xml")
    data = json.loads(done.out)
    assert done.code == 1
    assert data["agrees"] is False
    assert data["target"] == target("bad")
    assert data["conventions"] == {"causal corner": "top-left"}
    failed, skipped = data["features"]
    assert (failed["feature"], failed["status"], failed["mistake"]) == ("attention", "failed", "no-scale")
    assert (failed["cases"], failed["failed"], skipped["failed"]) == (12, 10, 0)  # one key; scores of 0
    suite = ET.parse(tmp_path / "out.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    assert [each.get("name") for each in suite] == ["attention", "softcap"]
    assert suite[0][0].get("type") == "no-scale"
    assert failed["replay"] in suite[0][0].text
    assert suite[1][0].get("message") == skipped["explanation"]


def test_a_failing_case_is_small_saved_and_replayed(call, tmp_path):
    data = json.loads(call("conform", target("bad"), *QUICK, "--json", "--save", "cases").out)
    replay = shlex.split(data["features"][0]["replay"])
    assert replay[:3] == ["attnctl", "conform", target("bad")]
    (path,) = (tmp_path / "cases").iterdir()
    assert replay[3:] == ["--replay", f"cases/{path.name}"]
    trace = attnctl.load(path)
    assert trace["Q"].shape[:2] == (1, 1)
    assert max(trace["Q"].shape + trace["K"].shape) <= 2
    again = call(*replay[1:], "--json")
    assert again.code == 1
    (one,) = json.loads(again.out)["features"]
    assert (one["feature"], one["cases"], one["mistake"]) == ("attention", 1, "no-scale")
    assert call("conform", target("good"), "--replay", f"cases/{path.name}").code == 0
    report = attnctl.check(trace)
    assert report.mistake == "no-scale"


@pytest.mark.usefixtures("_unexplained")
def test_a_case_saved_from_python_says_the_whole_command(call, tmp_path):
    found = attnctl.conform(
        target("bad"),
        features=["attention"],
        dtypes=["float32"],
        quick=True,
        timeout=30,
        save=tmp_path,
    )
    replay = shlex.split(found.wrong[0].failure.replay)
    assert replay[:6] == ["attnctl", "conform", target("bad"), "--timeout", "30", "--replay"]
    assert call(*replay[1:]).code == 1


@pytest.mark.slow
def test_a_replay_says_what_the_report_said(call):
    """Of two queries alone another mistake might fit."""
    words = ("--quick", "--dtype", "float64", "--feature", "attention", "--feature", "lengths", "--json")
    data = json.loads(call("conform", target("single"), *words).out)
    for each in data["features"]:
        again = json.loads(call(*shlex.split(each["replay"])[1:], "--json").out)["features"][0]
        assert (again["mistake"], again["explanation"]) == (each["mistake"], each["explanation"])


@pytest.mark.slow
def test_a_second_output_is_declared(call, tmp_path):
    words = ("conform", target("with_wrong_sum"), "--quick", "--dtype", "float64", "--feature", "causal")
    done = call(*words, "--returns", "output,logsumexp")
    assert done.code == 1
    assert "extra-output: causal, in float64" in done.out
    assert "--returns output,logsumexp --replay" in done.out
    (tmp_path / "claims.yaml").write_text("returns: [output, logsumexp]\n")
    assert call(*words, "--claims", "claims.yaml").code == 1
    assert call(*words, "--returns", "output,-").code == 0
    assert "did you mean logsumexp?" in call(*words, "--returns", "output,logsumex").err


def test_what_is_no_saved_case_is_refused(call, tmp_path):
    call("run", "I love AI", "-o", "run.json")
    done = call("conform", target("good"), "--replay", "run.json")
    assert done.code == 2
    assert "run.json: no case of attnctl conform" in done.err


@pytest.mark.usefixtures("_unexplained")
def test_what_is_known_to_fail_is_no_failure(call, tmp_path):
    (tmp_path / "known.yaml").write_text("attention: no scale yet\n")
    asked = ("conform", target("bad"), *QUICK, "--xfail", "known.yaml")
    done = call(*asked, "--junit", "out.xml", "-o", "out.json", "-o", "-")
    data = json.loads((tmp_path / "out.json").read_text())
    assert (done.code, data["agrees"]) == (0, True)
    (known,) = data["features"]
    assert (known["status"], known["known"]) == ("xfail", "no scale yet")
    assert (
        "It conforms but for what is known to fail, attention: 12 of 12 cases, longest 129 keys."
        in done.out
    )
    assert ET.parse(tmp_path / "out.xml").getroot()[0].get("failures") == "0"
    (tmp_path / "known.yaml").write_text("attention: {types: [float32], why: no scale yet}\n")
    assert call(*asked).code == 1


def test_a_claim_makes_a_skip_a_failure(call, tmp_path):
    words = ("conform", target("same_lengths"), *QUICK, "--feature", "lengths")
    assert call(*words).code == 0
    (tmp_path / "claims.yaml").write_text("features: [lengths]\n")
    done = call(*words, "--claims", "claims.yaml")
    assert done.code == 1
    assert "It raises ValueError: q and k must have one shape (" in done.out


def test_a_convention_is_failed_only_where_it_is_declared(call, tmp_path):
    words = ("conform", target("bottom_right"), *QUICK, "--feature", "conventions", "--feature", "causal")
    assert call(*words).code == 0
    (tmp_path / "claims.yaml").write_text("conventions: {causal corner: top-left}\n")
    done = call(*words, "--claims", "claims.yaml")
    assert done.code == 1
    assert "Causal corner is declared top-left and found bottom-right." in done.out


def words_for_types(name):
    feature = "causal" if "causal" in name else "attention"
    return (
        "conform",
        target(name),
        *QUICK[:1],
        "--dtype",
        "float16",
        "--feature",
        "conventions",
        "--feature",
        feature,
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("answers_wide", "float64"),
        ("widens_with_causal", "the inputs' or float64"),
        ("widens_some", "the inputs' or float64"),
    ],
)
def test_the_type_of_the_output_is_said(call, name, found):
    done = call(*words_for_types(name))
    assert done.code == 0
    assert f"Convention: output type: {found} (float16)." in done.out


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("answers_wide", "float64"),
        ("widens_with_causal", "the inputs' or float64"),
    ],
)
def test_the_type_of_the_output_is_held_to_what_is_declared(call, tmp_path, name, found):
    words = words_for_types(name)
    (tmp_path / "claims.yaml").write_text('conventions: {output type: "the inputs\'"}\n')
    done = call(*words, "--claims", "claims.yaml")
    assert done.code == 1
    assert f"Output type is declared the inputs' and found {found}." in done.out
    (tmp_path / "claims.yaml").write_text("conventions: {output type: float64}\n")
    assert call(*words, "--claims", "claims.yaml").code == int("causal" in name)


def test_what_its_claims_leave_out_is_skipped(call, tmp_path):
    (tmp_path / "claims.yaml").write_text("without: [causal]\n")
    words = ("conform", target("ignores"), *QUICK, "--feature", "causal")
    assert call(*words).code == 1
    done = call(*words, "--claims", "claims.yaml")
    assert done.code == 0
    assert "its claims say that it does not have it" in done.out


@pytest.mark.parametrize(
    ("flag", "text", "problems"),
    [
        ("--claims", "features: lengths\n", ["f.yaml:1 $.features: lengths is not a list"]),
        ("--claims", "features: [lengths, casual]\n", ["f.yaml:1 $.features[1]", "did you mean causal?"]),
        ("--claims", "\nfeature: [lengths]\n", ["f.yaml:2 $.feature", "did you mean features?"]),
        ("--claims", "conventions:\n  causal corner: left\n", ["f.yaml:2", "did you mean top-left?"]),
        (
            "--claims",
            "conventions:\n  corner: left\n",
            ["$.conventions.corner: unknown key; did you mean causal"],
        ),
        ("--claims", "- a\n", ["f.yaml:1 $: a list is not a mapping"]),
        ("--claims", "returns: logsumexp\n", ["f.yaml:1 $.returns: the output comes first"]),
        ("--claims", "returns: [output, lse]\n", ["f.yaml:1 $.returns[1]"]),
        ("--claims", "a: [\n", ["f.yaml:"]),
        ("--xfail", "causal:\n", ["f.yaml:1 $.causal: say why"]),
        ("--xfail", "causal: [1]\n", ["f.yaml:1 $.causal: expected why"]),
        (
            "--xfail",
            "causal: {why: a, types: [float8]}\nx: y\n",
            ["f.yaml:1 $.causal.types[0]", "f.yaml:2 $.x"],
        ),
        ("--xfail", "causal: {why: a, typ: b}\n", ["did you mean types?"]),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(call, tmp_path, flag, text, problems):
    (tmp_path / "f.yaml").write_text(text)
    done = call("conform", target("good"), flag, "f.yaml")
    assert (done.code, done.out) == (2, "")
    assert all(each in done.err for each in problems), done.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "no TARGET"),
        (["a:b", "c:d"], "c:d: one TARGET at a time"),
        (["kernel"], "kernel: not a target"),
        (["none.py:f"], "none.py: no such file"),
        (["x:f", "--claims", "none.yaml"], "none.yaml"),
        (["x:f", "--feature", "casual", "--dtype", "f8"], "did you mean causal?"),
        (["--framework", "torch", "--", "cat", "{in}", "{out}"], "a command reads a file"),
        (["--", "cat", "{in}"], "write {in} and {out}"),
        (["--", "no-such-program", "{in}", "{out}"], "no-such-program: it cannot be run"),
        (["x:f", "--map", "a"], "--map: 'a' is not THEIRS=OURS"),
    ],
)
def test_what_is_asked_wrongly_is_refused(call, words, problem):
    done = call("conform", *words)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


@pytest.mark.slow
def test_a_case_of_what_is_always_on_is_replayed_with_it(call, tmp_path):
    (tmp_path / "k.py").write_text(
        "import attnctl\n"
        "def f(q, k, v):\n"
        "    trace = attnctl.attend({'Q': q, 'K': k, 'V': v}, causal=True, softcap=0.7)\n"
        "    return trace['head_outputs']\n"
    )
    words = ("conform", "k.py:f", "--quick", "--dtype", "float64", "--feature", "attention", "--causal")
    done = call(*words, "--softcap", "0.8", "--json")
    (failed,) = json.loads(done.out)["features"]
    assert (done.code, failed["mistake"]) == (1, "softcap-other"), done.out
    replay = failed["replay"].split()
    assert "--softcap" not in replay  # the file holds it
    again = call(*replay[1:], "--json")
    assert [each["mistake"] for each in json.loads(again.out)["features"]] == ["softcap-other"]
    assert call(*words, "--softcap", "0.7").code == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--positions", "sinusoidal"], "--positions: such positions are added to X"),
        (["--heads", "4", "--kv-heads", "3"], "--kv-heads: 3 cannot be shared by 4 heads"),
        (["--theta", "100"], "--theta: only rotary positions have that"),
        (["--head-sizes", "64,x"], "--head-sizes: x is not a whole number"),
        (["--multiple-of", "0"], "--multiple-of: 0 is too small"),
        (["--layout", "bhnd:bhdn"], "--layout: "),
        (["--mask-shape", "mn"], "--mask-shape: "),
    ],
)
def test_what_has_no_meaning_is_refused(call, words, problem):
    done = call("conform", target("good"), *words)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("always: {causl: true}", "f.yaml:1 $.always.causl: unknown key; did you mean causal?"),
        ("always:\n  scale: x", "f.yaml:2 $.always.scale: "),
        ("head_sizes: [64, 0]", "f.yaml:1 $.head_sizes[1]: 0 is too small"),
        ("mask_shap: nm", "did you mean mask_shape?"),
    ],
)
def test_what_is_wrong_in_claims_is_said_with_its_line(call, tmp_path, text, problem):
    (tmp_path / "f.yaml").write_text(text + "\n")
    done = call("conform", target("good"), "--claims", "f.yaml")
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


SCRIPT = """
import sys
import numpy as np
q, k, v = (np.load(sys.argv[1])[name] for name in "QKV")
if q.shape != k.shape: sys.exit("one length only")
s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
e = np.exp(s - s.max(-1, keepdims=True))
np.savez(sys.argv[2], out=e / e.sum(-1, keepdims=True) @ v)
"""


@pytest.mark.slow
def test_a_command_refuses_by_its_exit_code(call, tmp_path):
    (tmp_path / "k.py").write_text(SCRIPT)
    words = ("--quick", "--dtype", "float32", "--feature", "lengths", "--feature", "large scores", "--json")
    done = call("conform", *words, "--", sys.executable, "k.py", "{in}", "{out}")
    lengths, large = json.loads(done.out)["features"]
    assert (done.code, lengths["status"], large["status"]) == (0, "skipped", "passed")
    assert lengths["explanation"] == "refused: it ended with 1: one length only"


def test_every_declaration_is_an_option_and_a_claim(call):
    words = call("conform", "--help-all").out
    for setting in ARRAYS.values():
        assert setting.flag.name in words

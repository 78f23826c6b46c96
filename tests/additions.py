"""The rule and the op of CONTRIBUTING, registered in this process and taken everywhere.

A script: tables are read when they are imported, so it registers first and imports afterwards.
"""

import io
import json
import re
import sys
import types
from pathlib import Path

import numpy as np

CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"


def snippet(name):
    """The code block under a marker of CONTRIBUTING."""
    found = re.search(
        rf"<!-- {name} -->\n```python\n(.*?)^```$", CONTRIBUTING.read_text(), re.DOTALL | re.MULTILINE
    )
    return found[1]


def module(name, code, **names):
    """A module made of code."""
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made
    exec(compile(code, name, "exec"), vars(made))
    return made


def shell(*args, stdin=""):
    """The command line: exit code and standard output."""
    from attnctl.cli.program import program

    out, source = (io.TextIOWrapper(io.BytesIO(text.encode()), write_through=True) for text in ("", stdin))
    code = int(program(args, stdin=source, stdout=out, stderr=io.StringIO()))
    out.flush()
    return code, out.buffer.getvalue().decode()


SENTENCE = "the cat sat on the mat"


def rule():
    """Block-local attention by config, flag and keyword, and through every verb."""
    import attnctl.rules as room

    kind = module("attnctl.rules.block_local", snippet("rule")).BlockLocal
    room.RULES[kind.name] = kind

    import attnctl

    mask = np.arange(6)[:, None] // 4 == np.arange(6) // 4
    expected = attnctl.run(SENTENCE, mask=mask.tolist(), heads=2)["attention_weights"]
    by_keyword = attnctl.run(SENTENCE, block_local=4, heads=2)
    Path("c.yaml").write_text(f"sentence: {SENTENCE}\nheads: 2\nrules: [{{block_local: 4}}]\n")
    assert shell("run", "-c", "c.yaml", "-o", "config.json")[0] == 0
    assert shell("run", SENTENCE, "--heads", "2", "--block-local", "4", "-o", "flag.npz")[0] == 0
    for trace in (by_keyword, attnctl.load("config.json"), attnctl.load("flag.npz")):
        np.testing.assert_array_equal(trace["attention_weights"], expected)
        assert trace.config["rules"] == [{"block_local": 4}]

    code, schema = shell("config", "schema")
    assert code == 0
    assert "block_local" in schema
    assert "--block-local N" in shell("run", "--help")[1]
    assert "block_local: 4" in shell("config", "init", "-c", "c.yaml")[1]
    code, shown = shell("show", "flag.npz")
    assert code == 0
    assert "block_local 4" in shown
    assert shown.count("block_local") > 8  # in the headline, and in each hidden cell
    assert "hidden by block_local" in shell("explain", "config.json", "masked_scores[0,0,5]")[1]
    assert shell("check", "flag.npz")[0] == 0
    assert shell("check", "flag.npz", "--block-local", "3")[0] == 1
    assert shell("diff", "flag.npz", "config.json")[0] == 0
    assert shell("stats", "flag.npz", "--json")[0] == 0
    assert "masked_scores" in shell("run", SENTENCE, "--block-local", "4", "--cost")[1]
    assert shell("run", SENTENCE, "--block-local", "0")[0] == 2

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(2, 1500, 4) for name in "QKV"}
    whole = attnctl.attend(arrays, block_local=37)
    tiled = attnctl.attend(arrays, block_local=37, keep=["head_outputs"])
    np.testing.assert_allclose(tiled["head_outputs"], whole["head_outputs"], atol=1e-13)


def op():
    """Root-mean-square norms of Q and K, read by what follows and known to every verb."""
    from attnctl import derivation, names, ops

    made = module("attnctl.ops.units", snippet("op")).RootMeanSquare
    ops.RootMeanSquare = made
    rows = [eval(row, vars(names)) for row in snippet("rows").splitlines()]
    added = {each.name: each for each in rows}
    before, after = list(names.TABLE), {}
    for name in before:
        after[name] = names.TABLE[name]
        after |= added if name == "V" else {}
    names.TABLE.clear()
    names.TABLE.update(after)
    lines = module("attnctl.units", snippet("lines"), **vars(derivation), RootMeanSquare=made).norms
    at = derivation.PARTS.index(derivation.projections) + 1
    derivation.PARTS = (*derivation.PARTS[:at], lines, *derivation.PARTS[at:])

    import attnctl

    def normed(x):
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)

    for options in ([], ["--positions", "rope"], ["--causal", "--heads", "2"]):
        assert shell("run", SENTENCE, *options, "-o", "op.json")[0] == 0
        assert shell("run", SENTENCE, *options, "-o", "op.npz")[0] == 0
        trace = attnctl.load("op.json")
        np.testing.assert_allclose(trace["Q_unit"], normed(trace["Q"]), atol=1e-12)
        reader = "Q_rotated" if "rope" in options else "scores"
        assert trace.steps[reader].inputs[0] == "Q_unit"
        assert shell("diff", "op.json", "op.npz")[0] == 0
        assert shell("check", "op.npz")[0] == 0
        assert shell("stats", "op.npz")[0] == 0
        code, told = shell("explain", "op.json", "Q_unit[0,cat,1]", "--json")
        assert code == 0
        value = json.loads(told)
        np.testing.assert_allclose(eval(value["expression"], {"sqrt": np.sqrt}), value["value"])
        assert "Q_unit" in shell("run", SENTENCE, *options, "--cost")[1]

    broken = json.loads(Path("op.json").read_text())
    broken["steps"]["K_unit"]["data"][0][0][0] += 0.5
    Path("broken.json").write_text(json.dumps(broken))
    code, report = shell("check", "broken.json", "--json")
    assert (code, json.loads(report)["first"]) == (1, "K_unit")

    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(1, 1500, 4) for name in "QKV"}
    whole = attnctl.attend(arrays)
    tiled = attnctl.attend(arrays, keep=["head_outputs"])
    np.testing.assert_allclose(tiled["head_outputs"], whole["head_outputs"], atol=1e-13)
    scores = normed(arrays["Q"]) @ normed(arrays["K"]).swapaxes(-1, -2)
    np.testing.assert_allclose(whole["scores"], scores, atol=1e-12)

    foreign = {name: np.asarray(whole[name]) for name in ("Q", "K", "V", "Q_unit", "scores")}
    foreign["Q_unit"] = foreign["Q_unit"] * 1.5
    report = attnctl.check(foreign)
    assert report.first == "Q_unit", report.to_dict()


if __name__ == "__main__":
    {"rule": rule, "op": op}[sys.argv[1]]()

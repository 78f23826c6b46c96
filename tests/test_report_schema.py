"""What conform and mutants print as JSON has the form that the schema in configs/ says."""

import json
from pathlib import Path

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).parent.parent / "configs" / "reports.schema.json").read_text())

KERNEL = """
import numpy as np

def attention(q, k, v, causal=False):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** FACTOR
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v
"""

COMMANDS = {
    "right": (
        "-0.5",
        ["conform", "kernel.py:attention", "--quick", "--dtype", "float32", "--feature", "attention"],
    ),
    "wrong": (
        "-1",
        [
            "conform",
            "kernel.py:attention",
            "--quick",
            "--feature",
            "causal",
            "--features",
            "invariants",
            "--dtype",
            "float32",
        ],
    ),
    "survivors": ("", ["mutants", "--rtol", "1e-2", "--shape", "2,2,9,8"]),
    "none": ("", ["mutants", "--rtol", "1e-9", "--dtype", "float64", "--shape", "2,2,9,8"]),
    "own test": ("", ["mutants", "--json", "--", "true", "{kernel}"]),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_report_has_its_form(call, tmp_path, case):
    factor, command = COMMANDS[case]
    (tmp_path / "kernel.py").write_text(KERNEL.replace("FACTOR", factor or "0"))
    done = call(*command, *([] if "--json" in command else ["--json"]))
    assert done.code in {0, 1}, done.err
    report = json.loads(done.out)
    jsonschema.validate(report, SCHEMA)
    if command[0] == "conform":
        assert report["covered"]["shapes"]
        assert set(report["covered"]["dtypes"]) == {feature["dtype"] for feature in report["features"]}


def test_another_form_is_refused():
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "attnctl.conform/2"}, SCHEMA)

"""A check as SARIF: what the standard requires, and the region of each line that is wrong."""

import json
from pathlib import Path

import pytest

HOMEWORK = Path(__file__).parent / "homework"


@pytest.fixture
def results(call, tmp_path):
    def run(*words):
        done = call("check", *words, "-o", tmp_path / "found.sarif")
        log = json.loads((tmp_path / "found.sarif").read_text())
        assert log["version"] == "2.1.0"
        (only,) = log["runs"]
        driver = only["tool"]["driver"]
        assert (driver["name"], only["columnKind"]) == ("attnctl", "unicodeCodePoints")
        known = {rule["id"] for rule in driver["rules"]}
        assert known == {result["ruleId"] for result in only["results"]}
        assert all(result["message"]["text"] and result["locations"] for result in only["results"])
        return done, only["results"]

    return run


@pytest.mark.usefixtures("in_process")
def test_a_wrong_line_has_its_region(results):
    path = HOMEWORK / "over_queries.py"
    done, (result,) = results(path)
    assert (done.code, result["level"], result["ruleId"]) == (1, "error", "softmax-over-queries")
    (location,) = result["locations"]
    where = location["physicalLocation"]
    assert where["artifactLocation"] == {"uri": str(path)}
    assert where["region"] == {"startLine": 18, "startColumn": 12, "endLine": 18, "endColumn": 48}
    assert "softmax runs over queries: use axis=-1." in result["message"]["text"]


@pytest.mark.usefixtures("in_process")
def test_each_attention_that_is_wrong_is_a_result(results):
    _, found = results(HOMEWORK / "cache_top_left.py")
    assert {result["ruleId"] for result in found} == {"causal-aligned-wrong"}
    assert len(found) > 1


@pytest.mark.usefixtures("in_process")
def test_a_right_program_has_none(results):
    done, found = results(HOMEWORK / "right_einsum.py")
    assert (done.code, found) == (0, [])


@pytest.mark.usefixtures("in_process")
def test_numbers_without_a_program_have_a_step_and_no_region(results, tmp_path):
    dump = {
        "Q": [[1.0, 0.0], [0.0, 1.0]],
        "K": [[1.0, 2.0], [0.0, 1.0]],
        "scores": [[1.0, 0.0], [2.0, 2.0]],
    }
    (tmp_path / "d.json").write_text(json.dumps(dump))
    _, (result,) = results(tmp_path / "d.json")
    (location,) = result["locations"]
    assert location == {"logicalLocations": [{"name": "scores", "kind": "variable"}]}

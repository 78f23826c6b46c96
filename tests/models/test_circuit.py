"""The circuit that is built by hand: its two heads are found, and none in the broken copy."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.settings import Settings
from attnctl.verbs.models.heads import battery

CIRCUIT = runpy.run_path(str(Path(__file__).parents[2] / "samples" / "circuit" / "make.py"))
IDS = [5, 11, 42, 7, 5, 11, 42, 7, 5]


@pytest.mark.parametrize("broken", [False, True])
def test_its_heads_are_found(broken, tmp_path):
    CIRCUIT["write"](tmp_path, CIRCUIT["tensors"](broken=broken))
    found = attnctl.effect(model=tmp_path, ids=IDS, between=(11, 42), direct=True)
    right, expected = 0 if broken else found.difference, np.zeros((2, 4))
    expected[0, 1] = expected[1, 2] = -right
    np.testing.assert_allclose(found.effect, expected, atol=1e-4)
    assert found.is_changed == (not broken)
    assert found.direct["heads"][1][2] == pytest.approx(right, abs=1e-4)
    (trace,) = attnctl.run_model(tmp_path, ids=IDS, next=1)
    assert (trace.header["next"]["tokens"][0]["id"] == 11) == (not broken)
    names = {
        (head.layer, head.head): head.names
        for head in battery(str(tmp_path), 60, Settings(dtype="float32"))
    }
    other = {(1, 2): ["duplicate"]} if broken else {(0, 1): ["previous"], (1, 2): ["induction"]}
    assert {place: kinds for place, kinds in names.items() if kinds} == other


def test_stats_of_ids_are_those_of_each_layer(tmp_path, call):
    CIRCUIT["write"](tmp_path, CIRCUIT["tensors"](broken=False))
    of_ids = json.loads(
        call("stats", "--model", str(tmp_path), "--ids", ",".join(map(str, IDS)), "--json").out
    )
    layers = attnctl.run_model(tmp_path, ids=IDS, layer="all", dtype="float32")
    for found, trace in zip(of_ids["dumps"], layers, strict=True):
        assert found["heads"] == attnctl.stats(trace).to_dict()["heads"]

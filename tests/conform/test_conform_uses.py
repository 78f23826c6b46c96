"""Mistakes in decode, sizes, ranges, caches and pages are found, each in its feature."""

from __future__ import annotations

import json
import time

import pytest
import serving
from serving_right import RIGHT as ODD
from serving_table import FAULTS, RIGHT, drop_one_more_than_blocks, make

import attnctl

TYPES = ("float32",)

KERNEL = """
import numpy as np

def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v
"""


def conform(kernel, *features, **more):
    return attnctl.conform(kernel, quick=True, dtypes=TYPES, features=features, **more)


@pytest.mark.sample(4)
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_in_the_feature_that_it_is_of(fault):
    found = conform(make(fault), fault.feature)
    assert found.agrees is False, str(found)


@pytest.mark.parametrize("kernel", RIGHT)
def test_right_ones_are_not_accused(kernel):
    found = conform(RIGHT[kernel], "decode")
    assert found.agrees is True, str(found)


def test_a_function_without_a_cache_has_no_decode():
    def attention(q, k, v):
        return v

    (decode,) = conform(attention, "decode").features
    assert (decode.status, decode.reason) == (
        "skipped",
        "it takes no cache, and causal does not end at the last key",
    )


def test_the_verdict_says_how_far_the_cases_went():
    found = conform(serving.dense(), "attention", "sinks", "many keys")
    assert "cases, longest 4,097 keys, largest sink 12, no dropout. Each" in str(found)
    assert "Not tried: dropout_p: what is left out at random is not known." in found.notes


def test_a_slow_function_is_not_called_with_many_keys():
    def attention(q, k, v):
        time.sleep(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * 8e-6)
        return serving.attend(serving.begin(q, k, v, past=0, first=0, asked={})).astype(q.dtype)

    found = conform(attention, "attention", "many keys")
    assert found.agrees is True, str(found)
    assert "many keys: 1 of its cases is not run: a call would take longer than 4 s" in str(found)


@pytest.mark.usefixtures("_unexplained")
def test_blocks_of_other_sizes_are_said():
    kernel = serving.dense(drop_one_more_than_blocks(40))
    usual = conform(kernel, "block boundaries")
    said = conform(kernel, "block boundaries", block_sizes=[40])
    assert (usual.agrees, said.agrees) == (True, False)


def test_sizes_of_blocks_are_read(call, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    words = ["--quick", "--dtype", "float32", "--feature", "block boundaries", "--json"]
    done = call("conform", "kernel.py:attention", *words, "--block-sizes", "7,20")
    keys = {shape[4] for shape in json.loads(done.out)["covered"]["shapes"]}
    assert {6, 7, 8, 19, 20, 21, 45} <= keys
    refused = call("conform", "kernel.py:attention", "--block-sizes", "0")
    assert refused.code == 2
    assert "block-sizes" in refused.err


@pytest.mark.sample(5)
@pytest.mark.parametrize("kernel", ODD)
def test_a_right_one_with_an_odd_convention_is_not_accused(kernel):
    found = conform(ODD[kernel])
    assert found.agrees is True, str(found)


@pytest.mark.slow
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_full_suite_finds_it_too(fault):
    found = attnctl.conform(make(fault), dtypes=TYPES, features=[fault.feature])
    assert found.agrees is False, str(found)


def test_there_are_as_many_as_are_promised():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert len(ODD) >= 20

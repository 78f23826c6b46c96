"""Mistakes in decode, sizes, ranges, caches and pages are found, each in its feature."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import serving
from serving_more import MORE
from serving_right import RIGHT as ODD
from serving_table import FAULTS, RIGHT, drop_one_more_than_blocks, make

import attnctl

TYPES = ("float32",)
README = Path(__file__).parents[2] / "samples" / "conform" / "README.md"

KERNEL = """
import numpy as np

def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v
"""


def conform(kernel, *features, **more):
    return attnctl.conform(kernel, quick=True, dtypes=TYPES, features=features, **more)


@pytest.mark.sample(10)
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize("fault", [*FAULTS, *MORE], ids=lambda fault: fault.name)
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


@pytest.mark.sample(10)
@pytest.mark.parametrize("kernel", ODD)
def test_a_right_one_with_an_odd_convention_is_not_accused(kernel):
    found = conform(ODD[kernel])
    assert found.agrees is True, str(found)


@pytest.mark.slow
@pytest.mark.thinned(3)  # each is found in one type above
@pytest.mark.usefixtures("_unexplained")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_full_suite_finds_it_too(fault):
    found = attnctl.conform(make(fault), dtypes=TYPES, features=[fault.feature])
    assert found.agrees is False, str(found)


def test_there_are_as_many_as_are_promised():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert len({fault.name for fault in [*FAULTS, *MORE]}) == len(FAULTS) + len(MORE) >= 80
    assert len(ODD) >= 20

    said = README.read_text()
    assert f"there are {len(FAULTS) + len(MORE)} more wrong kernels" in said
    assert f"{len(ODD)} right ones with odd conventions" in said


# --- trees of guesses, and prompts in two calls ---


def mask_read_as_a_prefix(q, k, v, mask=None, past_key=None, past_value=None):
    """Each token sees as many keys as its row of the mask has, which are taken to be the first."""
    k, v = (x if past is None else np.concatenate([past, x], axis=2) for past, x in
            ((past_key, k), (past_value, v)))  # fmt: skip
    if mask is not None and past_key is not None:
        counts = mask.sum(axis=-1, keepdims=True)
        mask = np.arange(k.shape[2]) < counts
    call = serving.begin(q, k, v, past=0, first=0, asked={"mask": mask})
    return serving.attend(call).astype(q.dtype)


def mask_as_it_is(q, k, v, mask=None, past_key=None, past_value=None):
    k, v = (x if past is None else np.concatenate([past, x], axis=2) for past, x in
            ((past_key, k), (past_value, v)))  # fmt: skip
    return serving.attend(serving.begin(q, k, v, past=0, first=0, asked={"mask": mask})).astype(q.dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kernel", "agrees"), [(mask_read_as_a_prefix, False), (mask_as_it_is, True)])
def test_trees_of_guesses(kernel, agrees):
    found = conform(kernel, "decode")
    assert found.agrees is agrees, str(found)
    (decode,) = found.features
    trees = [case for case in decode.ran if case.option_values.get("mask") == "tree"]
    assert trees
    if not agrees:
        assert "mask" in str(decode.failure.case)


def prompts(wrong=False, cached=True):
    """A kernel that, where it is wrong, scales a second part by the keys that are new."""

    def run(q, k, v, causal, past):
        call = serving.begin(q, k, v, past=past, first=k.shape[2] - q.shape[2], asked={"causal": causal})
        if wrong and q.shape[2] < k.shape[2]:
            call = replace(call, scale=call.scale * (1 + 0.01 * q.shape[2] / k.shape[2]))
        return serving.attend(call).astype(q.dtype)

    def with_cache(q, k, v, causal=False, past_key=None, past_value=None):
        if past_key is None:
            return run(q, k, v, causal, 0)
        k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
        return run(q, k, v, causal, past_key.shape[2])

    def without(q, k, v, causal=False):
        return run(q, k, v, causal, 0)

    return with_cache if cached else without


PREFILL = "prefill in two calls"


@pytest.mark.parametrize("cached", [True, False])
def test_a_prompt_in_two_calls_is_that_in_one(cached):
    right, wrong = (conform(prompts(wrong, cached), PREFILL) for wrong in (False, True))
    assert right.agrees is True, str(right)
    assert [each.feature for each in wrong.wrong] == [PREFILL], str(wrong)
    assert wrong.wrong[0].failure.mistake == "prefill-parts"


def test_a_prompt_whose_last_query_is_not_beside_its_last_key_has_no_second_part():
    def top_left(q, k, v, causal=False):
        call = serving.begin(q, k, v, past=0, first=0, asked={"causal": causal})
        return serving.attend(call).astype(q.dtype)

    (prefill,) = conform(top_left, PREFILL).features
    assert prefill.status == "skipped"

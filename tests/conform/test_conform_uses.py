"""Mistakes in decode, sizes, ranges, caches and pages are found, each in its feature."""

from __future__ import annotations

import pytest
from serving_table import FAULTS, RIGHT, make

import attnctl

TYPES = ("float32",)


def conform(kernel, *features, **more):
    return attnctl.conform(kernel, quick=True, dtypes=TYPES, features=features, **more)


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

"""Functions of jax are compiled whole in a quick run, as far as can be; its setting is left as it was."""

from __future__ import annotations

import numpy as np
import pytest

from attnctl.verbs.conform.call import TargetCall
from attnctl.verbs.conform.invoke import Framework, invoke

jax = pytest.importorskip("jax")
Q = np.arange(24.0).reshape(1, 2, 3, 4)


def call_of(dtype="float32", **keywords):
    return TargetCall(inputs=(Q, Q, Q), keywords=keywords, dtype=dtype, numbers=Q.size)


def test_a_function_is_read_once_for_every_size_and_every_constant():
    read = []

    def attention(q, k, v, causal=False, bias=None):
        read.append(causal)
        return q * 2 if causal else q + bias

    whole = Framework("jax", whole=True)
    bias = np.ones((3, 4))
    for keywords in ({"bias": bias}, {"bias": bias}, {"causal": True}, {"causal": True}):
        answer = invoke(attention, call_of(**keywords), whole)
        expected = Q * 2 if keywords.get("causal") else Q + 1
        assert answer.error == ""
        np.testing.assert_array_equal(answer.output(), expected)
    assert read == [False, True]


def test_what_asks_its_arrays_for_numbers_is_called_as_it_is():
    read = []

    def attention(q, k, v):
        read.append(type(q).__name__)
        return q * 3 if float(q.sum()) > 0 else q

    for _ in range(2):
        answer = invoke(attention, call_of(), Framework("jax", whole=True))
        np.testing.assert_array_equal(answer.output(), Q * 3)
    assert read[1:] == ["ArrayImpl", "ArrayImpl"]  # it is compiled once, in vain


def test_a_type_that_is_only_taken_op_by_op_leaves_others_compiled():
    read = []

    def attention(q, k, v):
        read.append(q.dtype.name)
        if q.dtype.name == "float16" and isinstance(q, jax.core.Tracer):
            raise ValueError("not on this processor")
        return q

    for dtype in ("float16", "float32", "float16", "float32"):
        assert invoke(attention, call_of(dtype), Framework("jax", whole=True)).error == ""
    assert read == ["float16", "float16", "float32", "float16"]


def test_what_it_raises_is_what_it_raises_as_it_is():
    def attention(q, k, v):
        raise ValueError("no such size")

    answer = invoke(attention, call_of(), Framework("jax", whole=True))
    assert (answer.error, answer.message) == ("ValueError", "no such size")


def test_calls_that_are_made_again_run_anew():
    draw = np.random.default_rng(0)

    def attention(q, k, v):
        return q + draw.uniform()  # which compiled whole would be one number for ever

    again = TargetCall(inputs=(Q, Q, Q), keywords={}, dtype="float32", numbers=Q.size, times=3, seconds=9)
    assert not invoke(attention, again, Framework("jax", whole=True)).same


def test_numbers_of_64_bits_are_for_float64_alone():
    types = []

    def attention(q, k, v, key_lengths):
        types.append((q.dtype.name, key_lengths.dtype.name))
        return q

    before = jax.config.read("jax_enable_x64")
    lengths = np.array([3])
    for dtype in ("float64", "float32", "bfloat16"):
        assert invoke(attention, call_of(dtype, key_lengths=lengths), Framework("jax")).error == ""
    assert types == [("float64", "int64"), ("float32", "int32"), ("bfloat16", "int32")]
    assert jax.config.read("jax_enable_x64") == before

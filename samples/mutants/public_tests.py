"""What three public tests hold attention to, written anew: python public_tests.py NAME KERNEL.

Inputs, sizes and tolerances are theirs; the reference is in float64, and there is no GPU. The gradients,
and the log-sum-exp of the first, are left out.
"""

import runpy
import sys

import numpy as np


def course(rng):
    """stanford-cs336/assignment2-systems, tests/test_attention.py: one shape, without causal on a CPU."""
    return rng.standard_normal((3, 4, 128, 64)).astype(np.float32), {}, {"rtol": 1e-2, "atol": 1e-2}


def minimal(rng):
    """tspeterkim/flash-attention-minimal, bench.py (Apache-2.0)."""
    return rng.standard_normal((3, 16, 12, 64, 64)).astype(np.float32), {}, {"rtol": 0, "atol": 1e-2}


def tutorial(rng):
    """triton-lang/triton, python/tutorials/06-fused-attention.py (MIT), its scale of 0.5 put into Q."""
    arrays = 0.5 * rng.standard_normal((3, 1, 2, 1024, 64))
    arrays[0] *= 0.5 * 8
    return arrays.astype(np.float16), {"causal": True}, {"rtol": 0, "atol": 1e-2}


def attention(q, k, v, causal=False):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(q.shape[-2], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


name, kernel = sys.argv[1:]
(q, k, v), options, close = globals()[name](np.random.RandomState(0))
found = runpy.run_path(kernel)["attention"](q, k, v, **options)
right = attention(*(x.astype(np.float64) for x in (q, k, v)), **options)
np.testing.assert_allclose(found.astype(np.float64), right, **close)

"""Stanford CS336, assignment 1: `run_scaled_dot_product_attention(Q, K, V, mask)` of tests/adapters.py.

    pip install attnctl && pytest test_cs336.py

A wrong hand-in fails with what is wrong: "the scores are divided by d_k rather than its root".
"""

import numpy as np
import pytest
from adapters import run_scaled_dot_product_attention

from attnctl.testing import assert_attention

try:
    from torch import tensor
except ImportError:  # a hand-in in NumPy
    tensor = np.asarray


@pytest.mark.parametrize("shape", [(1, 1, 4, 8), (2, 3, 12, 16)])
@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention(shape, masked):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for _ in range(3))
    mask = np.tril(np.ones((shape[-2],) * 2, dtype=bool)) if masked else None
    out = run_scaled_dot_product_attention(*map(tensor, (q, k, v)), None if mask is None else tensor(mask))
    given = {} if mask is None else {"mask": np.broadcast_to(mask, (*shape[:-1], shape[-2]))}
    assert_attention({"Q": q, "K": k, "V": v, "head_outputs": np.asarray(out), **given})

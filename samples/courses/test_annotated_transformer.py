"""The Annotated Transformer: `attention(query, key, value, mask=None, dropout=None)`, with its weights.

    pip install attnctl && pytest test_annotated_transformer.py

Both are held, so that a hand-in is told whether its softmax or its sum is wrong.
"""

import numpy as np
import pytest
from the_annotated_transformer import attention

from attnctl.testing import assert_attention

try:
    from torch import tensor
except ImportError:  # a hand-in in NumPy
    tensor = np.asarray


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked):
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((2, 4, 10, 16)) for _ in range(3))
    mask = np.tril(np.ones((1, 1, 10, 10), dtype=bool)) if masked else None
    out, p_attn = attention(*map(tensor, (query, key, value)), mask=None if mask is None else tensor(mask))
    given = {} if mask is None else {"mask": np.broadcast_to(mask, (2, 4, 10, 10))}
    recorded = {"attention_weights": np.asarray(p_attn), "head_outputs": np.asarray(out)}
    assert_attention({"Q": query, "K": key, "V": value, **recorded, **given})

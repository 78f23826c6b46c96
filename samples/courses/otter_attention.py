"""Otter-Grader: a test file of a notebook's `attention(q, k, v)`, as tests/attention.py."""

from otter.test_files import test_case

OK_FORMAT = False

name = "attention"
points = 2


@test_case()
def test_attention(attention):
    import numpy as np

    from attnctl.testing import assert_attention

    q, k, v = np.random.default_rng(2).standard_normal((3, 1, 8, 4))
    assert_attention({"Q": q, "K": k, "V": v, "head_outputs": attention(q, k, v)})

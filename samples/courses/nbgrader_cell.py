# nbgrader: an autograder cell below the cell in which attention(q, k, v) is to be written.
import numpy as np

from attnctl.testing import assert_attention

q, k, v = np.random.default_rng(3).standard_normal((3, 1, 8, 4))
assert attention(q, k, v).shape == (1, 8, 4), "one row of d_v numbers for each query"  # noqa: F821
### BEGIN HIDDEN TESTS
assert_attention({"Q": q, "K": k, "V": v, "head_outputs": attention(q, k, v)})  # noqa: F821
### END HIDDEN TESTS

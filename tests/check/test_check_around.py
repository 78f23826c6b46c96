"""What stands around an attention: a residual that takes what its norm gave."""

import json

import pytest

BLOCKS = """import numpy as np

rng = np.random.default_rng(90)
n, d = 6, 8


def normed(rows):
    rows = rows - rows.mean(-1, keepdims=True)
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5)


def attention(rows, w_q, w_k, w_v):
    q, k, v = rows @ w_q, rows @ w_k, rows @ w_v
    scores = q @ k.T / np.sqrt(d)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


x = rng.normal(size=(n, d)) * 2 + 1
for _ in range(2):
    weights = rng.normal(size=(3, d, d)) / 3
    wide, narrow = rng.normal(size=(d, 3 * d)), rng.normal(size=(3 * d, d))
    {block}
print(x.round(3))
"""

PRE_NORM = """x = x + attention(normed(x), *weights)
    x = x + np.maximum(normed(x) @ wide, 0) @ narrow / 9"""
POST_NORM = """x = normed(x + attention(x, *weights))
    x = normed(x + np.maximum(x @ wide, 0) @ narrow / 9)"""
OF_NORMED = """x = normed(x)
    x = x + attention(x, *weights)
    x = x + np.maximum(normed(x) @ wide, 0) @ narrow / 9"""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("block", "line"), [(PRE_NORM, None), (POST_NORM, None), (OF_NORMED, 24)])
def test_a_residual_goes_on_with_what_came_before_the_norm(call, tmp_path, block, line):
    (tmp_path / "p.py").write_text(BLOCKS.format(block=block))
    done = call("check", "p.py", "--json")
    reports = json.loads(done.out)
    assert done.code == (0 if line is None else 1)
    broken = [sentence for report in reports for sentence in report.get("broken", ())]
    assert all(sentence.startswith(f"p.py:{line}:9: ") for sentence in broken)
    assert bool(broken) == (line is not None)

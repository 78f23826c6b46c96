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


HEADS = """import numpy as np

rng = np.random.default_rng(91)


class Head:
    def __init__(self, d, width):
        self.weights = rng.normal(size=(3, d, width))

    def __call__(self, x):
        q, k, v = (x @ weight for weight in self.weights)
        scores = q @ k.T / np.sqrt(q.shape[-1])
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


heads = {heads}
x = rng.normal(size=(5, 6))
print(np.concatenate([head(x) for head in heads], axis=-1).round(3))
"""

CACHE = """import numpy as np

rng = np.random.default_rng(92)
w_q, w_k, w_v = rng.normal(size=(3, 4, 4))


def step(x, {parameters}):
    keys.append(x @ w_k)
    values.append(x @ w_v)
    scores = np.stack(keys) @ (x @ w_q) / 2
    e = np.exp(scores - scores.max())
    return e / e.sum() @ np.stack(values)


for text in rng.normal(size=(2, 3, 4)):
    {of_text}
    print([step(x, {given}).round(3) for x in text])
"""

OF_EACH = {
    "parameters": "keys, values",
    "begin": "",
    "of_text": "keys, values = [], []",
    "given": "keys, values",
}
OF_ALL = {"parameters": "keys=[], values=[]", "begin": "", "of_text": "", "given": ""}

AROUND = {
    "heads of their own": (HEADS.format(heads="[Head(6, 3) for _ in range(2)]"), None),
    "one head": (HEADS.format(heads="[Head(6, 3)] * 2"), "p.py:17:9: all heads are one and the same"),
    "a cache of each": (CACHE.format(**OF_EACH), None),
    "a cache of all": (CACHE.format(**OF_ALL), "p.py:7:18: keys is one list for all calls"),
}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("what", AROUND)
def test_what_is_made_once_where_there_should_be_several(call, tmp_path, what):
    text, expected = AROUND[what]
    (tmp_path / "p.py").write_text(text)
    done = call("check", "p.py", "--json")
    reports = json.loads(done.out)
    reports = reports if isinstance(reports, list) else [reports]
    broken = [sentence for report in reports for sentence in report.get("broken", ())]
    assert done.code == (0 if expected is None else 1), done.out
    assert all(sentence.startswith(expected or "nothing") for sentence in broken)
    assert bool(broken) == (expected is not None)


@pytest.mark.usefixtures("in_process")
def test_what_stands_around_is_on_the_page_and_in_sarif(call, tmp_path):
    text, _ = AROUND["one head"]
    (tmp_path / "p.py").write_text(text)
    call("check", "p.py", "-o", "p.html")
    page = (tmp_path / "p.html").read_text("utf-8")
    assert '<p class="where">p.py:17:9</p><p class="what">All heads are one and the same' in page
    call("check", "p.py", "-o", "p.sarif")
    (result,) = json.loads((tmp_path / "p.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "around-attention"
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 17, "startColumn": 9}

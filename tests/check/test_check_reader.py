"""Programs are judged by what they compute: a name never accuses, and every attention is judged."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

BEGIN = "import numpy as np\nr = np.random.RandomState(5)\nx = r.normal(size=(6, 8))\n"
WEIGHTS = "wq, wk, wv, wo = (r.normal(size=(8, 8)) for _ in range(4))\nq, k, v = x @ wq, x @ wk, x @ wv\n"
SOFTMAX = (
    "def soft(z):\n    z = np.exp(z - z.max(-1, keepdims=True))\n    return z / z.sum(-1, keepdims=True)\n"
)
PROJECTED = BEGIN + WEIGHTS + SOFTMAX

RIGHT = {
    "masked before it is scaled, true where hidden": (
        "mask = np.triu(np.ones((6, 6), bool), 1)\nscores = np.where(mask, -1e9, q @ k.T)\n"
        "scores = scores / np.sqrt(8)\nout = soft(scores) @ v\n"
    ),
    "names that mislead": (
        "weights = q @ k.T\nmask = weights / 8**0.5\noutput = soft(mask)\nscores = output @ v\n"
    ),
    "Q and K called as the other": "a = soft(k @ q.T / 8**0.5)\nout = a @ v @ wo\n",
    "divided by the sums at the end": (
        "e = np.exp(q @ k.T / 8**0.5)\nout = (e @ v) / e.sum(1, keepdims=True) @ wo\n"
    ),
    "query by query": (
        "rows = []\nfor i in range(6):\n    s = q[i] @ k.T / 8**0.5\n    e = np.exp(s - s.max())\n"
        "    rows.append(e / e.sum() @ v)\nout = np.stack(rows) @ wo\n"
    ),
    "a loop over heads": (
        "heads = []\nfor h in range(2):\n    c = slice(4 * h, 4 * h + 4)\n"
        "    heads.append(soft(q[:, c] @ k[:, c].T / 2) @ v[:, c])\nout = np.concatenate(heads, -1) @ wo\n"
    ),
    "softmax in place": (
        "s = q @ k.T / 8**0.5\nfor i in range(6):\n    s[i] = np.exp(s[i] - s[i].max())\n"
        "    s[i] /= s[i].sum()\nout = s @ v\n"
    ),
    "powers of two": (
        "s = q @ k.T * 8**-0.5 * np.log2(np.e)\ne = np.exp2(s - s.max(-1, keepdims=True))\n"
        "out = e / e.sum(-1, keepdims=True) @ v\n"
    ),
    "rotary positions by hand": (
        "def turn(t):\n    angle = np.outer(np.arange(6), 10000.0 ** (-np.arange(4) / 4))\n"
        "    a, b = t[:, :4], t[:, 4:]\n    c, s = np.cos(angle), np.sin(angle)\n"
        "    return np.concatenate([a * c - b * s, b * c + a * s], -1)\n"
        "out = soft(turn(q) @ turn(k).T / 8**0.5) @ v\n"
    ),
    "a cache that grows": (
        "K, V, outs = np.zeros((0, 8)), np.zeros((0, 8)), []\nfor t in range(6):\n"
        "    K, V = np.vstack([K, x[t : t + 1] @ wk]), np.vstack([V, x[t : t + 1] @ wv])\n"
        "    outs.append(soft(x[t : t + 1] @ wq @ K.T / 8**0.5) @ V)\nout = np.concatenate(outs) @ wo\n"
    ),
    "a question": "name = input()\nout = soft(q @ k.T / 8**0.5) @ v\n",
    "einsum of three": "a = soft(q @ k.T / 8**0.5)\nout = np.einsum('nm,md,de->ne', a, v, wo)\n",
}


class Fault(NamedTuple):
    text: str
    line: str
    """What stands in the line that is shown."""
    mistake: str


IN_HEADS = (
    "heads = []\nfor h in range(2):\n    c = slice(4 * h, 4 * h + 4)\n"
    "    heads.append(soft(q[:, c] @ k[:, c].T / 2) @ v[:, c])\n"
)
INVERTED = (
    "mask = np.triu(np.ones((6, 6), bool), 1)\ns = q @ k.T / 8**0.5\ns = np.where(mask, s, -1e9)\n"
    "out = soft(s) @ v\n"
)
IN_LISTS = (
    "s = [[sum(a * b for a, b in zip(u, w)) / 6**0.5 for w in k.tolist()] for u in q.tolist()]\n"
    "out = soft(np.array(s)) @ v\n"
)
SECOND = "one = soft(q @ k.T / 8**0.5) @ v\ntwo = soft(q @ k.T) @ v\n"

WRONG = {
    "the second call": Fault(SECOND, "two = ", "no-scale"),
    "a mask in the wrong sense": Fault(INVERTED, "np.where(mask, s", "mask-inverted"),
    "V with the weight of K": Fault(
        "v = x @ wk\nout = soft(q @ k.T / 8**0.5) @ v\n", "v = x @ wk", "projection-mixed-up"
    ),
    "W_O that is never read": Fault(
        f"{IN_HEADS}out = np.concatenate(heads, -1)\n", "out = np.conc", "output-projection-missing"
    ),
    "scaled by the root of the length, in lists": Fault(IN_LISTS, "s = [[sum", "scale-other"),
}


def judge(call, text, *words):
    Path("p.py").write_text(PROJECTED + text)
    done = call("check", "p.py", "--json", *words)
    return done, json.loads(done.out) if done.out else None


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("habit", RIGHT)
def test_a_right_program_agrees_whatever_its_habit(call, habit):
    done, report = judge(call, RIGHT[habit])
    assert done.code == 0, (report, done.err)


@pytest.mark.usefixtures("in_process")
@pytest.mark.sample(2)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_shown_where_it_is_made(call, what):
    text, expected, mistake = WRONG[what]
    done, report = judge(call, text)
    reports = report if isinstance(report, list) else [report]
    (wrong,) = [each for each in reports if not each["agrees"]]
    assert (done.code, wrong["mistake"]) == (1, mistake), wrong
    assert expected in (PROJECTED + text).splitlines()[wrong["line"] - 1]


@pytest.mark.usefixtures("in_process")
def test_what_cannot_be_judged_is_said(call):
    windows = (
        "q, k, v = (r.normal(size=(2, 3, 4, 5, 6)) for _ in range(3))\n"
        "out = soft(q @ k.swapaxes(-1, -2) / 6**0.5) @ v\n"
    )
    done, _ = judge(call, windows)
    assert (done.code, "none judged" in done.err) == (2, True)


def test_a_name_is_refused_for_a_program(call):
    Path("p.py").write_text(PROJECTED + RIGHT["names that mislead"])
    done = call("check", "p.py", "--name", "weights=scores")
    assert (done.code, done.err.startswith("attnctl: --name: a program is read by what it computes")) == (
        2,
        True,
    )


OF_TORCH = {
    "a module whose batch comes first and that is not told": Fault(
        "attend = nn.MultiheadAttention(8, 2)\nout, _ = attend(h, h, h)\nprint(out.mean(1).shape)\n",
        "nn.MultiheadAttention(8, 2)",
        "batch-first",
    ),
    "dropout that goes on after eval": Fault(
        "model = nn.Linear(8, 8)\nmodel.eval()\na = F.softmax(h @ h.mT / 8**0.5, -1)\n"
        "a = F.dropout(a, 0.4)\nout = a @ h\n",
        "F.dropout",
        None,
    ),
    "a weight of torch that is not transposed": Fault(
        "wq, wk, wv, wo = (nn.Linear(8, 8, bias=False) for _ in range(4))\n"
        "q, k, v = h @ wq.weight.T, h @ wk.weight.T, h @ wv.weight.T\n"
        "out = F.softmax(q @ k.mT / 8**0.5, -1) @ v @ wo.weight\n",
        "wo.weight",
        "weight-transposed",
    ),
    "weights of torch in NumPy, none of which is transposed": Fault(
        "parts = [nn.Linear(8, 8) for _ in range(4)]\n"
        "pairs = [(part.weight.numpy(), part.bias.numpy()) for part in parts]\n"
        "def dense(rows, pair):\n    return rows @ pair[0] + pair[1]\n"
        "q, k, v = (dense(h[0].numpy(), pair) for pair in pairs[:3])\n"
        "a = torch.softmax(torch.from_numpy(q @ k.T) / 8**0.5, -1).numpy()\nout = dense(a @ v, pairs[3])\n",
        "rows @ pair[0]",
        "weight-transposed",
    ),
    "a mask whose result nothing reads": Fault(
        "short = torch.tensor([5, 3, 4])\nis_word = torch.arange(5)[None] < short[:, None]\n"
        "s = h @ nn.Linear(8, 8)(h).mT / 8**0.5\ns.masked_fill(~is_word[:, None], -1e9)\n"
        "out = F.softmax(s, -1) @ h\n",
        "s.masked_fill",
        "mask-ignored",
    ),
    "masks of other sentences for heads": Fault(
        "text = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 1, 1, 2, 2]])\n"
        "other = text[:, :, None] != text[:, None]\n"
        "attend = nn.MultiheadAttention(8, 2, batch_first=True).eval()\n"
        "out, _ = attend(h, h, h, attn_mask=other.repeat(2, 1, 1))\n",
        "attend(h, h, h, attn_mask",
        None,
    ),
}
OF_TORCH_RIGHT = {
    "dropout while it trains": (
        "part = nn.Linear(8, 24)\n"
        "def attend(is_training):\n"
        "    q, k, v = part(h).chunk(3, -1)\n"
        "    share = 0.1 if is_training else 0.0\n"
        "    return F.scaled_dot_product_attention(q, k, v, dropout_p=share, is_causal=True)\n"
        "attend(True)\nattend(False)\n"
    ),
    "one more token for groups of heads": (
        "wq, wk, wv = torch.randn(8, 8), torch.randn(8, 4), torch.randn(8, 4)\n"
        "def heads(rows, n):\n    return rows.unflatten(-1, (n, 2)).transpose(1, 2)\n"
        "k, v = heads(h @ wk, 2), heads(h @ wv, 2)\n"
        "F.scaled_dot_product_attention(heads(h @ wq, 4), k, v, is_causal=True, enable_gqa=True)\n"
        "new = torch.randn(3, 1, 8)\n"
        "k, v = torch.cat([k, heads(new @ wk, 2)], 2), torch.cat([v, heads(new @ wv, 2)], 2)\n"
        "F.scaled_dot_product_attention(heads(new @ wq, 4), k, v, enable_gqa=True)\n"
    ),
}
WITH_TORCH = (
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\ntorch.manual_seed(4)\n"
    "torch.set_grad_enabled(False)\nh = torch.randn(3, 5, 8)\n"
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", OF_TORCH)
def test_what_is_wrong_with_torch_is_shown_where_it_is_made(call, what):
    pytest.importorskip("torch")
    text, expected, mistake = OF_TORCH[what]
    Path("p.py").write_text(WITH_TORCH + text)
    done = call("check", "p.py", "--json")
    report = json.loads(done.out)
    assert (done.code, report["mistake"]) == (1, mistake), report
    assert expected in (WITH_TORCH + text).splitlines()[report["line"] - 1]


@pytest.mark.parametrize("what", OF_TORCH_RIGHT)
def test_what_is_right_with_torch_agrees(call, what):
    pytest.importorskip("torch")
    Path("p.py").write_text(WITH_TORCH + OF_TORCH_RIGHT[what])
    done = call("check", "p.py", "--causal")
    assert done.code == 0, done.out + done.err


OF_JAX = """import jax
from jax import numpy as jnp

def head(x, wq, wk, wv):
    q, k, v = x @ wq, x @ wk, x @ wv
    return jax.nn.softmax(q @ k.T {scale}) @ v

x, *weights = (jax.random.normal(key, (2, 5, 5)) for key in jax.random.split(jax.random.key(0), 4))
heads = jax.vmap(head, in_axes=(None, 0, 0, 0), out_axes=1)
print(jax.vmap(heads, in_axes=(0, None, None, None))(x, *weights).shape)
"""


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(("scale", "code"), [("/ 5**0.5", 0), ("* 5**0.5", 1)])
def test_what_jax_maps_is_judged_member_by_member(call, scale, code):
    pytest.importorskip("jax")
    Path("p.py").write_text(OF_JAX.format(scale=scale))
    done = call("check", "p.py", "--json")
    reports = json.loads(done.out)
    assert (done.code, len(reports)) == (code, 2), reports  # two members, of two heads each
    assert {report["line"] for report in reports if not report["agrees"]} == ({6} if code else set())

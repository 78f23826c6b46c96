"""The planted kernels are what the table says: right ones give the oracle's numbers, wrong ones do not."""

import ast

import numpy as np
import oracle
import pytest
from conform_table import KERNELS, RIGHT, WRONG


def written(module):
    """The public functions of a file of kernels."""
    tree = ast.parse((KERNELS / f"{module}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("module", sorted({wrong.target.split(":")[0] for wrong in WRONG}))
def test_the_table_names_functions_that_are_there(module):
    named = [wrong.target.split(":")[1] for wrong in WRONG if wrong.target.startswith(f"{module}:")]
    assert set(named) <= set(written(module))
    assert len(named) == len(set(named))


def test_there_are_as_many_as_are_promised():
    assert {right.name for right in RIGHT} == set(written("right"))
    assert len(RIGHT) >= 10
    assert len(WRONG) >= 45
    assert sum(wrong.mistake is not None for wrong in WRONG) >= 45


def drawn(kv_heads=2):
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((2, 2, 5, 4)),
        rng.standard_normal((2, kv_heads, 7, 4)),
        rng.standard_normal((2, kv_heads, 7, 3)),
    )


def expected(q, k, v, **kind):
    """The oracle's head outputs, member by member."""
    members = zip(q.tolist(), k.tolist(), v.tolist(), strict=True)
    given = ({"Q": a, "K": b, "V": c} for a, b, c in members)
    return np.array([oracle.attend(each, oracle.Kind(**kind))["head_outputs"] for each in given])


@pytest.fixture
def right(monkeypatch):
    monkeypatch.syspath_prepend(KERNELS)
    import right

    return right


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_right_kernels_are_right(kernel, kv_heads, right):
    q, k, v = drawn(kv_heads)
    layout = kernel.options[1] if kernel.options else "bhnd"
    call = getattr(right, kernel.name)
    if kernel.name == "no_batch":
        got = np.array([call(*member) for member in zip(q, k, v, strict=True)])
    elif layout in {"bnhd", "flash"}:
        got = call(*(x.swapaxes(1, 2) for x in (q, k, v))).swapaxes(1, 2)
    else:
        told = {"enable_gqa": True} if layout == "sdpa" else {}
        got = call(q, k, v, **told)
    np.testing.assert_allclose(got[0] if isinstance(got, tuple) else got, expected(q, k, v), rtol=1e-12)


RULES = [
    ({"causal": True}, {"causal": True}),
    ({"causal": True, "window": (2, 0)}, {"causal": True, "window": (2, 0)}),
    ({"softcap": 0.7, "scale": 0.9}, {"softcap": 0.7, "scale": 0.9}),
    ({"alibi_slopes": np.array([1 / 16, 1 / 256])}, {"alibi": True}),
    ({"key_lengths": np.array([4, 4])}, {"length": 4}),
]


@pytest.mark.parametrize(("given", "kind"), RULES)
def test_the_kernel_of_every_rule_is_right(given, kind, right):
    q, k, v = drawn()
    np.testing.assert_allclose(right.everything(q, k, v, **given), expected(q, k, v, **kind), rtol=1e-12)

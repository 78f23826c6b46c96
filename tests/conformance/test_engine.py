"""`attend --engine torch`: head outputs by torch's own kernel, which are ours to rounding, or a refusal."""

import sys

import numpy as np
import pytest

import attnctl
from attnctl.base.errors import AttnError

GIVEN = ["Q", "K", "V", "mask", "bias"]
KEEP = ["Q", "K", "V", "head_outputs"]


def arrays(*, batch=(), heads=4, kv_heads=2, queries=70, keys=90, mask=False, bias=False, dtype="float64"):
    draw = np.random.RandomState(queries + keys)
    made = {
        "Q": draw.standard_normal((*batch, heads, queries, 16)),
        "K": draw.standard_normal((*batch, kv_heads, keys, 16)),
        "V": draw.standard_normal((*batch, kv_heads, keys, 16)),
    }
    if bias:
        made["bias"] = draw.standard_normal((heads, queries, keys))
    found = {name: array.astype(dtype) for name, array in made.items()}
    if mask:
        found["mask"] = draw.random_sample((*batch, *(1,) * len(batch), queries, keys)) > 0.7
        found["mask"][..., 3, :] = False  # a query that sees nothing
    return found


CASES = {
    "all": (arrays(), {}),
    "square, causal": (arrays(keys=70), {"causal": True}),
    "causal, keys in a cache": (arrays(), {"causal": True, "causal_offset": 20}),
    "causal, blind queries": (arrays(queries=90, keys=70), {"causal": True, "causal_offset": -20}),
    "window": (arrays(keys=70), {"causal": True, "window": 9}),
    "documents": (arrays(keys=70), {"documents": [0] * 30 + [1] * 40}),
    "ALiBi": (arrays(keys=70, kv_heads=4), {"causal": True, "positions": "alibi"}),
    "mask": (arrays(mask=True), {}),
    "bias and mask": (arrays(mask=True, bias=True), {"scale": 0.3}),
    "batch": (arrays(batch=(3,), mask=True), {}),
    "batch, all": (arrays(batch=(3,)), {}),
    "rotary": (arrays(keys=70), {"positions": {"rope": {"theta": 100.0}}, "causal": True}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_are_ours_to_rounding(case, dtype):
    pytest.importorskip("torch")
    given, options = CASES[case]
    options = {**options, "dtype": dtype}
    ours = attnctl.attend(given, keep=KEEP, **options)
    theirs = attnctl.attend(given, keep=KEEP, engine="torch", **options)

    unit = np.finfo(dtype).eps
    np.testing.assert_allclose(theirs["head_outputs"], ours["head_outputs"], rtol=64 * unit, atol=64 * unit)
    assert theirs.header.get("empty_rows") == ours.header.get("empty_rows")
    assert theirs["head_outputs"].dtype == dtype
    assert theirs.header["notes"] == ["Head outputs are those of torch's scaled_dot_product_attention."]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_check_agrees_with_them(case):
    pytest.importorskip("torch")
    given, options = CASES[case]
    keep = [*KEEP, *(name for name in GIVEN if name in given)]
    trace = attnctl.attend(given, keep=[*dict.fromkeys(keep)], engine="torch", dtype="float32", **options)
    assert attnctl.check(trace).agrees


def test_gradients_start_from_them():
    pytest.importorskip("torch")
    given = arrays(keys=70)
    keep = ["d_Q", "d_K", "d_V"]
    ours = attnctl.attend(given, keep=keep, causal=True, backward=True)
    theirs = attnctl.attend(given, keep=keep, causal=True, backward=True, engine="torch")
    for name in keep:
        np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-12, atol=1e-13)


REFUSED = {
    "all steps are asked for, and scaled_dot_product_attention gives the output alone": {"keep": None},
    "attention_weights are asked for": {"keep": ["attention_weights"]},
    "logsumexp are asked for": {"keep": ["logsumexp"], "logsumexp": True},
    "scaled_dot_product_attention has no softcapped_scores": {"softcap": 5.0},
    "numbers in float16, expected float32 or float64": {"dtype": "float16"},
    "edits change steps inside of the kernel": {"edits": ["V=0"]},
}


@pytest.mark.parametrize("said", REFUSED, ids=str)
def test_what_torch_has_not_is_refused(said):
    options = {"keep": ["head_outputs"], **REFUSED[said]}
    with pytest.raises(AttnError, match=f"^--engine torch: {said}"):
        attnctl.attend(arrays(), engine="torch", **options)


def test_numbers_that_overflow_are_refused():
    given = {name: array * 1e200 for name, array in arrays().items()}
    with pytest.raises(AttnError, match="numbers so large that scores overflow"):
        attnctl.attend(given, keep=["head_outputs"], engine="torch")


def test_without_torch_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AttnError, match=r"^--engine torch: torch is not installed; pip install torch"):
        attnctl.attend(arrays(), keep=["head_outputs"], engine="torch")


def test_another_engine_is_refused():
    with pytest.raises(AttnError, match=r'^engine: "numba", expected "torch" or None$'):
        attnctl.attend(arrays(), engine="numba")

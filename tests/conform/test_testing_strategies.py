"""Hypothesis strategies for people's own tests: they draw attention, and find what is wrong."""

import sys

import numpy as np
import pytest
from conform_table import KERNELS
from hypothesis import HealthCheck, Phase, assume, find, given, settings

import attnctl.testing
from attnctl.testing import strategies

RULED = ("causal", "window", "softcap", "scale")
UNSHRUNK = settings(max_examples=2000, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def right():
    sys.path.insert(0, str(KERNELS))
    import right

    yield right
    sys.path.remove(str(KERNELS))


def beside(case):
    return {name: array for name, array in case.arrays.items() if name not in "QKV"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_right_kernel_is_held_to_every_case(dtype, right):
    @FEW
    @given(strategies.inputs(None, strategies.rules(*RULED), dtype=dtype, beside=strategies.ARRAYS))
    def law(case):
        output = right.everything(case.q, case.k, case.v, **beside(case), **case.options)
        assert output.dtype == case.q.dtype == np.dtype(dtype)
        assert case.hold(output).agrees

    law()


def test_expected_is_the_oracle_s_own_arithmetic(right):
    @FEW
    @given(strategies.inputs(strategies.shapes(most_keys=9), strategies.rules(*RULED), beside=("cache",)))
    def law(case):
        output = right.everything(case.q, case.k, case.v, **beside(case), **case.options)
        np.testing.assert_allclose(case.expected(), output, rtol=1e-9, atol=1e-12)

    law()


def without(rule):
    """A kernel that does not know this rule."""

    def kernel(right, case):
        options = {name: value for name, value in case.options.items() if name != rule}
        return right.everything(case.q, case.k, case.v, **beside(case), **options)

    return kernel


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("rule", "kernel"),
    [
        *((rule, without(rule)) for rule in RULED),
        (None, lambda right, case: np.zeros_like(case.expected())),
        (None, lambda right, case: np.full_like(case.expected(), np.nan)),
    ],
)
def test_a_wrong_kernel_is_found(rule, kernel, right):
    sizes = strategies.shapes(most_keys=9, most_queries=9, most_heads=2, most_columns=8)

    @settings(FEW, max_examples=100, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    @given(strategies.inputs(sizes, strategies.rules(*filter(None, [rule]))))
    def law(case):
        case.hold(kernel(right, case))

    with pytest.raises(AssertionError):
        law()


def test_the_message_is_the_report():
    @settings(FEW, max_examples=1)
    @given(strategies.inputs(strategies.shapes(most_keys=9), strategies.rules()))
    def law(case):
        with pytest.raises(AssertionError, match="head_outputs is the first wrong step"):
            case.hold(case.expected() + 1)

    law()


def test_options_of_the_one_who_asks_overrule(right):
    sizes = strategies.shapes(most_queries=4, most_keys=9).filter(lambda s: s.queries < s.keys)

    @FEW
    @given(strategies.inputs(sizes, strategies.rules("causal")))
    def law(case):
        assume("causal" in case.options)
        output = right.bottom_right(case.q, case.k, case.v, causal=True)
        assert case.hold(output, causal_offset=case.k.shape[2] - case.q.shape[2]).agrees

    law()


def test_shapes_keep_their_bounds_and_reach_the_ends_of_blocks():
    bounds = {"most_batch": 2, "most_heads": 4, "most_queries": 17, "most_keys": 64, "most_columns": 5}

    @FEW
    @given(strategies.shapes(**bounds))
    def law(shape):
        assert shape.batch <= 2
        assert shape.heads <= 4
        assert shape.heads % shape.kv_heads == 0
        assert max(shape.d_k, shape.d_v) <= 5
        assert (shape.queries <= 17, shape.keys <= 64) == (True, True)

    law()


@pytest.mark.parametrize("keys", [1, 15, 16, 17])
def test_shapes_reach_the_ends_of_blocks(keys):
    find(strategies.shapes(), lambda shape: shape.keys == keys, settings=UNSHRUNK)


@FEW
@given(strategies.shapes(square=True, grouped=False))
def test_shapes_may_be_square_and_without_groups(shape):
    assert (shape.queries, shape.heads) == (shape.keys, shape.kv_heads)


@pytest.mark.parametrize("name", strategies.RULES)
def test_every_rule_is_an_option_of_attend(name):
    small = strategies.shapes(most_batch=1, most_heads=2, most_queries=3, most_keys=3, most_columns=4)
    drawn = strategies.inputs(small, strategies.rules(name))
    case = find(drawn, lambda each: each.options, settings=UNSHRUNK)
    assert list(case.options) == [name]
    assert np.isfinite(case.expected()).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: strategies.rules("casual"), "'casual' is no rule; there are causal, window"),
        (lambda: strategies.inputs(beside=("masks",)), "'masks' is no array of attention; there are mask"),
    ],
)
def test_unknown_names_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        find(make(), lambda _: True)


def test_without_hypothesis_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "attnctl.testing.strategies")
    monkeypatch.delattr(attnctl.testing, "strategies")
    with pytest.raises(ImportError, match="needs Hypothesis; pip install hypothesis"):
        from attnctl.testing import strategies as again  # noqa: F401

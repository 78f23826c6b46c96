"""Rows held together to what is true of them at any rounding: sums that are off by less than any number."""

import numpy as np
import programs
import pytest

import attnctl
from attnctl.math import ops

N, HEADS = 64, 4


def scores(causal=True, spread=1.0, seed=0):
    s = spread * np.random.default_rng(seed).standard_normal((HEADS, N, N))
    return np.where(np.tri(N, dtype=bool), s, -np.inf) if causal else s


def grown(s, dtype):
    s = s.astype(programs.working(dtype))
    return np.exp(s - s.max(axis=-1, keepdims=True))


def share(e, by):
    return e / by


def exact(s, dtype):
    e = grown(s, dtype)
    return e / e.sum(axis=-1, keepdims=True)


def each_step_rounded(s, dtype):
    keep, wide = programs.kept(dtype), programs.working(dtype)
    e = keep(grown(keep(s), dtype)).astype(wide)
    return e / keep(e.sum(axis=-1, keepdims=True)).astype(wide)


def by_the_reciprocal(s, dtype):
    keep, wide = programs.kept(dtype), programs.working(dtype)
    e = keep(grown(s, dtype)).astype(wide)
    return e * keep(1 / e.sum(axis=-1, keepdims=True)).astype(wide)


def by_the_logarithm(s, dtype):
    top = s.astype(programs.working(dtype)).max(axis=-1, keepdims=True)
    return np.exp(s.astype(top.dtype) - (top + np.log(grown(s, dtype).sum(axis=-1, keepdims=True))))


def one_after_another(s, dtype):
    e = grown(s, dtype)
    return e / np.cumsum(e, axis=-1)[..., -1:]


RIGHT = [exact, each_step_rounded, by_the_reciprocal, by_the_logarithm, one_after_another]


def with_epsilon(epsilon):
    return lambda s, dtype: (e := grown(s, dtype)) / (e.sum(axis=-1, keepdims=True) + epsilon)


def multiplied(factor):
    return lambda s, dtype: exact(s, dtype) * factor


def raised(offset):
    return lambda s, dtype: np.where(np.isneginf(s), 0, exact(s, dtype) + offset)


def drifting(part):
    def program(s, dtype):
        return exact(s, dtype) * (1 + part * np.linspace(-1, 1, N)[:, None])

    return program


WRONG = {
    "epsilon": (with_epsilon, "softmax-epsilon"),
    "factor": (lambda part: multiplied(1 - part), "constant-factor"),
    "offset": (lambda part: raised(part / 16), None),
    "drift": (drifting, None),
}

SHOWN = {"float64": 1e-5, "float32": 1e-5, "float16": 5e-4, "bfloat16": 4e-3}
"""What of a row may be lost at least that its type shows."""


def report(weights, s, dtype):
    keep = programs.kept(dtype)
    given = {"masked_scores" if np.isneginf(s).any() else "scaled_scores": keep(s)}
    return attnctl.check(
        {**given, "attention_weights": keep(weights)}, heads=HEADS, causal=np.isneginf(s).any()
    )


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", programs.DTYPES)
@pytest.mark.parametrize("program", RIGHT)
@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 10.0])
def test_rows_of_right_programs_are_not_accused(program, dtype, spread):
    for causal in (False, True):
        s = programs.kept(dtype)(scores(causal, spread)).astype(float)
        assert report(program(s, dtype), s, dtype).agrees is not False


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", programs.DTYPES)
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("times", [1, 10])
def test_rows_that_are_off_together_are_wrong(monkeypatch, what, dtype, times):
    plant, mistake = WRONG[what]
    if not mistake:  # all that may be tried would be
        monkeypatch.setattr("attnctl.verbs.check.search.MOST_FITTED", 1_000_000)
        monkeypatch.setattr("attnctl.verbs.check.search.MOST_TRIED", 1_000_000)
    s = programs.kept(dtype)(scores()).astype(float)
    found = report(plant(times * SHOWN[dtype])(s, dtype), s, dtype)
    step = found.steps["attention_weights"]
    assert found.first == "attention_weights"
    assert step.broken
    if mistake:
        assert mistake in {found.mistake, *found.findings[0].also}
    if not step.gap.differing:
        assert f"Its {HEADS * N} rows sum to" in str(found).replace("\n  ", " ")
        assert "though each number by itself is within rounding" in str(found).replace("\n  ", " ")
        assert found.to_dict()["steps"]["attention_weights"]["rows"] == str(step.broken)


def test_a_row_with_one_key_gives_it_everything():
    """Only the first row of each head tells: 1 / (1 + 0.0006) is not 1 in any type, and was not rounded."""
    s = scores().astype(np.float16).astype(float)
    assert report(with_epsilon(6e-4)(s, "float16"), s, "float16").mistake == "softmax-epsilon"


@pytest.mark.parametrize(
    "op", [kind for kind in ops.OPS.values() if kind.invariants is not ops.Op.invariants]
)
def test_invariants_are_of_rows_that_see_something(op):
    s = scores()
    s[0, 0] = -np.inf
    (invariant,) = op().invariants(op().apply(s))
    assert np.allclose(invariant.found, invariant.right)
    assert np.broadcast_to(invariant.right, (HEADS, N))[0, 0] == 0

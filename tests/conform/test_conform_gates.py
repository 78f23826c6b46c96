"""attnctl's own honesty: what each rule of tolerance must pass and must catch, in every type.

A table of right programs and of wrong ones as people write them, none of which shares code with the
reference. A wrong one that passes in one type is a gate that does not hold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnctl.evidence.precision import BFLOAT16, DTYPES, round_to
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.judge import expect, judge_answer
from attnctl.verbs.conform.options import make_problem
from attnctl.verbs.conform.profile import TYPES, TargetProfile

PRECISIONS = {**DTYPES, "bfloat16": BFLOAT16}

PLAIN = Case(batch=2, heads=2, kv_heads=2, queries=40, keys=40, d_k=16, d_v=16)
SMALL = replace(PLAIN, d_k=8, d_v=8)


def keep(dtype):
    """Rounds to the type."""
    return lambda x: round_to(np.asarray(x, dtype=np.float64), PRECISIONS[dtype])


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def scores(q, k):
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


# --- right ---


def exact(q, k, v, r):
    return r(softmax(scores(q, k)) @ v)


def every_step_rounded(q, k, v, r):
    s = r(r(q @ np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1]))
    e = r(np.exp(r(s - s.max(axis=-1, keepdims=True))))
    return r(r(e / e.sum(axis=-1, keepdims=True)) @ v)


def weights_rounded(q, k, v, r):
    """P in the type, the sum kept wide, as matrix units want it."""
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return r(r(e) @ v / e.sum(axis=-1, keepdims=True))


def scaled_queries(q, k, v, r):
    """Q is scaled, and rounded, before the product."""
    return r(softmax(r(q / np.sqrt(q.shape[-1])) @ np.swapaxes(k, -1, -2)) @ v)


def online(q, k, v, r, block=8, *, rescaled=True):
    top, total, out = -np.inf, 0.0, 0.0
    s = scores(q, k)
    for j in range(0, k.shape[-2], block):
        part = s[..., j : j + block]
        new = np.maximum(top, part.max(axis=-1, keepdims=True))
        p, old = np.exp(part - new), np.exp(top - new)
        total = total * old + p.sum(axis=-1, keepdims=True)
        out = (out * old if rescaled else out) + r(p) @ v[..., j : j + block, :]
        top = new
    return r(out / total)


RIGHT = {
    "exact": exact,
    "every step rounded": every_step_rounded,
    "weights rounded": weights_rounded,
    "scaled queries": scaled_queries,
    "online": online,
}


# --- wrong ---


def noisy(part):
    def kernel(q, k, v, r):
        out = softmax(scores(q, k)) @ v
        return r(out * (1 + part * np.random.RandomState(0).standard_normal(out.shape)))

    return kernel


WRONG = {
    "zeros": lambda q, k, v, r: np.zeros((*q.shape[:-1], v.shape[-1])),
    "mean of V": lambda q, k, v, r: r(np.broadcast_to(v.mean(axis=-2, keepdims=True), v.shape)),
    "NaN": lambda q, k, v, r: np.full(v.shape, np.nan),
    "one NaN": lambda q, k, v, r: with_one(exact(q, k, v, r), np.nan),
    "one infinity": lambda q, k, v, r: with_one(exact(q, k, v, r), np.inf),
    "one zero": lambda q, k, v, r: with_one(exact(q, k, v, r), 0.0),
    "noise of 3 %": noisy(0.03),
    "scale 1/√(d + 1)": lambda q, k, v, r: r(
        softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1] + 1)) @ v
    ),
    "maximum not rescaled": lambda q, k, v, r: online(q, k, v, r, rescaled=False),
    "last key dropped": lambda q, k, v, r: r(softmax(scores(q, k[..., :-1, :])) @ v[..., :-1, :]),
    "a sum in 8 bits": lambda q, k, v, r: r(round_to(softmax(scores(q, k)), replace(BFLOAT16, bits=5)) @ v),
    "heads in other order": lambda q, k, v, r: exact(q, k, v, r)[:, ::-1],
    "batch in other order": lambda q, k, v, r: exact(q, k, v, r)[::-1],
}


def with_one(output, value):
    """One number of all is another; not one that was near 0."""
    output = output.copy()
    output.flat[np.abs(output).argmax()] = value
    return output


def judgement(kernel, case):
    problem = make_problem(case, TargetProfile())
    q, k, v = (problem.arrays[name] for name in "QKV")
    with np.errstate(all="ignore"):
        output = kernel(q, k, v, keep(case.dtype))
    return judge_answer(expect(problem), Answer((output,)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_pass_in_every_type(name, dtype, seed):
    worst = 0.0
    for case in (
        PLAIN,
        SMALL,
        replace(PLAIN, magnitude=2.0),
        replace(PLAIN, keys=3),
        replace(SMALL, d_v=3),
    ):
        found = judgement(RIGHT[name], replace(case, dtype=dtype, seed=seed))
        worst = max(worst, found.ratio)
    assert worst <= 1, worst


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_fail_in_every_type(name, dtype):
    found = [judgement(WRONG[name], replace(case, dtype=dtype)) for case in (PLAIN, SMALL)]
    assert not all(each.right for each in found), [each.ratio for each in found]
    assert all(each.words for each in found if not each.right)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wrong", ["zeros", "NaN", "one NaN", "mean of V"])
def test_garbage_never_passes_in_any_case_that_is_evidence(wrong, dtype):
    for fill in ("random", "identity", "who"):
        for n in (2, 9, 40):
            case = replace(PLAIN, dtype=dtype, fill=fill, queries=n, keys=n)
            if fill == "who" and wrong == "mean of V":
                continue  # with Q = 0 it is what attention gives
            assert not judgement(WRONG[wrong], case).right, (fill, n)


@pytest.mark.parametrize("dtype", TYPES)
def test_large_scores_are_exact_in_every_type(dtype):
    """Scores of ±1e4: the output is one row of V, and a few units of rounding are all that is allowed."""
    case = replace(PLAIN, dtype=dtype, fill="large")
    wanted = expect(make_problem(case, TargetProfile()))
    assert np.abs(wanted.steps["scaled_scores"].value).max() > 9000
    values = make_problem(case, TargetProfile()).arrays["V"]
    meant = (7 * np.arange(40) + 3) % 40
    np.testing.assert_array_equal(wanted.outputs["head_outputs"].value, values[..., meant, :])
    size = np.abs(values).max()
    assert wanted.outputs["head_outputs"].allowed.max() <= 64 * PRECISIONS[dtype].unit * size
    assert judgement(every_step_rounded, case).right


@pytest.mark.parametrize("dtype", TYPES)
def test_a_case_that_rounding_hides_is_no_evidence(dtype):
    """Scores that are large and all but the same: rounding puts them in any order."""
    case = replace(PLAIN, dtype=dtype)
    problem = make_problem(case, TargetProfile())
    height = 2.0 ** (PRECISIONS[dtype].bits / 2 + 1)
    for name in "QK":
        problem.arrays[name] = problem.in_type(height + problem.arrays[name] / height)
    wanted = expect(problem)
    assert not judge_answer(wanted, Answer((wanted.outputs["head_outputs"].value,))).shows
    plain = expect(make_problem(case, TargetProfile()))
    assert judge_answer(plain, Answer((plain.outputs["head_outputs"].value,))).shows


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ((), "returns no array"),
        ((None,), "returns no array"),
        ((np.zeros((2, 2, 40)),), "shape [2, 2, 40], not [2, 2, 40, 16]"),
        ((np.zeros((2, 2, 16, 40)),), "shape"),
        ((np.zeros((0, 2, 40, 16)),), "shape"),
        ((np.zeros((2, 2, 40, 16), dtype=bool),), "type bool"),
    ],
)
def test_what_is_no_output_never_passes(output, words):
    found = judge_answer(expect(make_problem(PLAIN, TargetProfile())), Answer(output))
    assert not found.right
    assert words in found.words

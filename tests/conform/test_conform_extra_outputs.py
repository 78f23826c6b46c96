"""What comes behind the output: declared, recognised or said, and what a wrong log-sum-exp is."""

from __future__ import annotations

import json

import kernels_here as kernels
import numpy as np
import pytest

import attnctl

DECLARED = ("output", "logsumexp")


def returning(make):
    """A kernel that returns its output and what is made of its scores, in the type of Q."""

    def kernel(q, k, v, causal=False):
        s = kernels.scores(q, k).astype(np.float64)
        s = np.where(np.tri(*s.shape[-2:]), s, -np.inf) if causal else s
        return kernels.softmax(s) @ v, make(s).astype(q.dtype)

    return kernel


def natural(s):
    top = s.max(-1)
    return top + np.log(np.exp(s - top[..., None]).sum(-1))


def without_maximum(s):
    return np.log(np.exp(s - s.max(-1, keepdims=True)).sum(-1))


WRONG = {
    "in base 2": (lambda s: natural(s) / np.log(2), "lse-base", "it is in base 2"),
    "without its maximum": (without_maximum, "lse-without-maximum", "the maximum of each row is left out"),
}


def conform(kernel, *only, dtypes=("float32",), **more):
    return attnctl.conform(kernel, quick=True, features=only or ("attention",), dtypes=dtypes, **more)


@pytest.mark.parametrize(("make", "mistake", "words"), WRONG.values(), ids=WRONG)
def test_a_declared_log_sum_exp_that_is_none_is_found_by_name(make, mistake, words):
    (result,) = conform(returning(make), returns=DECLARED).features
    assert (result.status, result.failure.mistake) == ("failed", mistake)
    assert words in result.failure.explanation


def test_one_that_is_known_and_not_declared_is_said():
    (note,) = conform(returning(lambda s: natural(s) / np.log(2))).notes
    assert note == (
        "Output 1 looks like the log-sum-exp in base 2 and is not judged; "
        "--returns output,logsumexp2 declares it."
    )


def test_what_is_unknown_altogether_is_said():
    squares = conform(returning(np.square)).notes[0]
    assert squares == "Output 1, of shape [2, 3, 12, 12], is not known and not judged."


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("make", "returns"),
    [
        (natural, DECLARED),
        (lambda s: natural(s)[..., None], DECLARED),
        (lambda s: natural(s).reshape(-1, s.shape[-2]), DECLARED),
        (lambda s: natural(s) / np.log(2), ("output", "logsumexp2")),
        (kernels.softmax, ("output", "attention_weights")),
        (lambda s: s, ("output", "masked_scores")),
        (lambda s: s, None),
        (np.sin, ("output", "-")),
    ],
)
def test_a_right_one_passes_in_every_type(dtype, make, returns):
    found = conform(returning(make), "attention", "causal", dtypes=(dtype,), returns=returns)
    assert found.agrees is True, str(found)


def test_one_that_is_not_there_is_found():
    found = conform(kernels.good, returns=DECLARED)
    assert found.features[0].failure.words == "the output is right, but output 1 is not there"


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ["option", "claims"])
def test_it_is_declared_by_an_option_or_in_claims(tmp_path, how):
    claims = tmp_path / "claims.yaml"
    claims.write_text("returns: [output, logsumexp]\n")
    given = {"returns": DECLARED} if how == "option" else {"claims": claims}
    found = conform(kernels.with_wrong_sum, "causal", **given)
    assert found.features[0].failure.mistake == "extra-output"
    assert json.loads(json.dumps(found.to_dict()))["agrees"] is False


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        (("output", "logsumex"), "did you mean logsumexp?"),
        (("logsumexp", "output"), "the output comes first"),
    ],
)
def test_what_cannot_be_declared_is_refused(returns, words):
    with pytest.raises(attnctl.AttnError, match=r".") as caught:
        conform(kernels.good, returns=returns)
    assert words in str(caught.value)

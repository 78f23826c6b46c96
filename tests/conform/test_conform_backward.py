"""Backward passes: right ones are never accused, wrong ones are found by name."""

import inspect
import json
import re
import shlex
import sys

import numpy as np
import pytest
from conform_table import KERNELS

import attnctl
from attnctl.base.errors import AttnError
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import COTANGENT, GRADIENTS, Case
from attnctl.verbs.conform.judge import expect, judge_answer
from attnctl.verbs.conform.options import make_problem
from attnctl.verbs.conform.profile import TargetProfile

TYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    monkeypatch.syspath_prepend(KERNELS)


def rounding(dtype):
    import backward

    return backward.bfloat16 if dtype == "bfloat16" else lambda x: x.astype(dtype).astype(x.dtype)


def kernel(name, dtype):
    import backward

    if hasattr(backward, name):
        return getattr(backward, name)
    return backward.make(**{"near": rounding(dtype)} if name.startswith("rounded") else {}, **WAYS[name])


WAYS = {
    "of log-sum-exp": {},
    "softmax again": {"way": "softmax again"},
    "delta of weights": {"way": "delta over keys of a row"},
    "base 2": {"way": "base 2"},
    "in blocks": {"block": 8},
    "rounded factors": {},
    "rounded factors, in blocks": {"block": 16},
    "rounded in every step": {"way": "every step"},
}
NAMES = [*WAYS, "two_loops", "by_einsum", "of_delta"]


def conform(back, *features, dtype="float32", **more):
    import backward

    given = {"dtypes": [dtype], "features": features, "quick": True, **more}
    return attnctl.conform(backward.forward, backward=back, **given)


@pytest.mark.sample(44)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_right_backward_pass_is_not_accused(name, dtype):
    found = conform(kernel(name, dtype), "attention", "causal", "scale", "random", dtype=dtype)
    assert found.agrees, str(found)
    attention = found.features[0]
    assert set(attention.ratios) == {"head_outputs", "d_Q", "d_K", "d_V"}


MISTAKES = {
    "no delta": "backward-no-delta",
    "delta over keys": "backward-delta-over-keys",
    "not masked": "backward-not-masked",
    "not scaled": "backward-not-scaled",
    "scaled twice": "backward-scaled-twice",
    "groups not summed": "backward-groups-not-summed",
    "scores not transposed": "backward-scores-not-transposed",
    "weights not transposed": "backward-weights-not-transposed",
    "no slope": "backward-softcap-slope",
    "no sum": "backward-no-logsumexp",
    "base 2 read as e": "backward-logsumexp-base-2",
    "last block dropped": "backward-last-block-dropped",
    "only dV wrong": None,
    "dQ five times": None,
    "dV of rolled rows": None,
    "dK and dV exchanged": None,
}
WHERE = {"not masked": "causal", "groups not summed": "grouped heads", "no slope": "softcap"}


@pytest.mark.sample(36)
@pytest.mark.thinned(2, "dtype")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_backward_pass_is_found_by_name(mistake, dtype):
    import backward

    found = conform(backward.make(mistake=mistake), WHERE.get(mistake, "attention"), dtype=dtype)
    assert found.agrees is False
    assert {each.failure.mistake for each in found.wrong} == {MISTAKES[mistake]}, str(found)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "layout"), [("tokens_first", "bnhd"), ("packed", "bhnd")], ids=["tokens first", "packed"]
)
def test_the_layout_of_a_backward_pass_alone_is_found_out(name, layout):
    import backward

    found = attnctl.conform(
        getattr(backward, name),
        backward=True,
        dtypes=["float16"],
        features=["d_v ≠ d_k", "attention", "other heads moved"],
        quick=True,
    )
    assert found.agrees, str(found)
    assert found.features[-1].status == "skipped"  # it has no output
    assert found.conventions["layout"] == layout
    assert set(found.features[0].ratios) == {"d_Q", "d_K", "d_V"}


def differing(every, by):
    """A right backward pass of which every so many calls are off by so much."""
    import backward

    right, calls = backward.make(), iter(range(10**9))

    def back(d_output, q, k, v, output, logsumexp):
        d_q, *rest = right(d_output, q, k, v, output, logsumexp)
        return (d_q * q.dtype.type(1 + by * (next(calls) % every == 1)), *rest)

    return back


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("by", "claims", "status"),
    [(1e-7, "", "differs"), (1e-7, "deterministic: true\n", "failed"), (1e-2, "", "failed")],
    ids=["in the last place", "claimed deterministic", "wrong now and then"],
)
def test_gradients_may_differ_from_call_to_call_by_rounding_alone(by, claims, status, tmp_path):
    (tmp_path / "claims.yaml").write_text(claims or "features: []\n")
    found = conform(
        differing(50, by), "repeatable", "repeatable gradients", claims=tmp_path / "claims.yaml"
    )
    assert [each.status for each in found.features] == ["passed", status]
    assert found.agrees is (status == "differs")
    assert re.search(r"other bits in \d of 227 calls", str(found))


@pytest.mark.slow
def test_gradients_that_an_empty_row_spoils_are_a_convention(tmp_path):
    import backward

    found = conform(backward.make(), "random")
    assert found.conventions["gradients of rows that see nothing"] == "NaN"
    (tmp_path / "claims.yaml").write_text("conventions: {gradients of rows that see nothing: zeros}\n")
    declared = conform(backward.make(), "random", claims=tmp_path / "claims.yaml")
    assert declared.agrees is False
    assert declared.features[0].failure.mistake == "nan-output"


def without_delta(n):
    """Gradients that leave delta out, in bfloat16, beside those that are right."""
    import backward

    case = Case("bfloat16", batch=1, heads=1, kv_heads=1, queries=n, keys=n, d_k=64, d_v=64)
    problem = make_problem(case, TargetProfile(), outputs=GRADIENTS)
    values = problem.plan.run()
    handed = [values[name] for name in (COTANGENT, "Q", "K", "V", "head_outputs", "logsumexp")]
    found = backward.make(near=backward.bfloat16, mistake="no delta")(*handed)
    return problem, values, found


@pytest.mark.slow
def test_what_passes_one_percent_of_nearly_all_elements_is_found():
    """At n = 2048 most numbers without delta are within 1e-2 of the right ones."""
    problem, values, found = without_delta(2048)
    near = [
        np.isclose(each, values[name], 1e-2, 1e-2).mean()
        for each, name in zip(found, GRADIENTS, strict=True)
    ]
    assert min(near) > 0.94
    judgement = judge_answer(expect(problem), Answer(gradients=found))
    assert judgement.output == "d_Q"
    assert judgement.ratios["d_Q"] > 2
    assert judgement.ratios["d_V"] < 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d_q, d_k, d_v: (d_q, d_k), "returns no array of real numbers for the gradient d_V"),
        (lambda d_q, d_k, d_v: (2 * d_q, d_k, 0 * d_v), "; d_V is wrong, too"),
        (lambda d_q, d_k, d_v: (d_q, None, d_v), "returns no array of real numbers for the gradient d_K"),
        (
            lambda d_q, d_k, d_v: (d_q, d_k[:, :1], d_v),
            "d_K has the shape [2, 1, 40, 16], not [2, 2, 40, 16]",
        ),
        (lambda d_q, d_k, d_v: (d_q, d_k, d_v * np.nan), "the gradient d_V is nan at [0, 0, 0, 0]"),
        (lambda d_q, d_k, d_v: (0 * d_q, d_k, d_v), "the gradient d_Q is 0 at"),
    ],
    ids=["two", "two wrong", "None", "shape", "NaN", "zeros"],
)
def test_what_is_no_gradient_never_passes(change, words):
    case = Case("float32", queries=40, keys=40, d_k=16, d_v=16)
    problem = make_problem(case, TargetProfile(), outputs=GRADIENTS)
    right = [problem.plan.run()[name] for name in GRADIENTS]
    wanted = expect(problem)
    assert judge_answer(wanted, Answer(gradients=tuple(right))).right
    found = judge_answer(wanted, Answer(gradients=change(*right)))
    assert not found.right
    assert words in found.words


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["into_buffers", "of_weights"])
def test_gradients_come_back_in_the_ways_of_kernels(name):
    import backward

    found = conform(getattr(backward, name), "grouped heads", "memory layouts")
    assert found.agrees, str(found)
    grouped, layouts = found.features
    assert (layouts.cases, set(layouts.ratios)) == (7, {"head_outputs", "d_Q", "d_K", "d_V"})
    assert (name == "of_weights") == ("not summed" in grouped.reason or not grouped.cases)


@pytest.mark.sample(2)
@pytest.mark.parametrize("named", [False, True], ids=["a tuple", "by name"])
def test_gradients_by_more_than_q_k_and_v_are_said_not_to_be_judged(named):
    import backward

    def back(**given):
        found = backward.with_bias(**given)
        return dict(zip(("dq", "dk", "dv", "d_bias"), found, strict=True)) if named else found

    back.__signature__ = inspect.signature(backward.with_bias)
    given = {"dtypes": ["float32"], "features": ["bias"], "quick": True}
    found = attnctl.conform(back, backward=True, **given)
    assert found.agrees, str(found)
    assert any("Not judged: by bias; attnctl check" in note for note in found.notes)


def test_groups_that_are_claimed_are_summed(tmp_path):
    import backward

    (tmp_path / "claims.yaml").write_text("features: [grouped heads]")
    found = conform(backward.of_weights, "grouped heads", claims=tmp_path / "claims.yaml")
    assert found.agrees is False


@pytest.mark.slow
def test_a_mask_forward_alone_is_named_where_delta_is_of_the_weights():
    import backward

    given = {"dtypes": ["float32"], "features": ["mask"], "quick": True}
    found = attnctl.conform(backward.hidden_forward, backward=backward.seen_again, **given)
    assert found.wrong[0].failure.mistake == "backward-not-masked"


@pytest.mark.slow
def test_rounding_alone_is_called_no_factor_and_no_mystery():
    """Scores rounded to float16, with a log-sum-exp of those that are not, beside peaked rows."""
    import backward

    def back(d_output, q, k, v, output, logsumexp):
        scores = (q @ backward.t(k) * q.dtype.type(q.shape[-1] ** -0.5)).astype(np.float16)
        p = np.exp(scores - logsumexp[..., None])
        delta = (d_output.astype(np.float32) * output).sum(-1, keepdims=True)
        d_s = p * (d_output @ backward.t(v) - delta) * q.shape[-1] ** -0.5
        return d_s @ k, backward.t(d_s) @ q, backward.t(p) @ d_output

    found = conform(back, "attention", dtype="float16")
    assert [each.failure.mistake for each in found.wrong] in (["low-precision"], ["too-much-rounding"])


TORCH_FORMS = {
    "attention": None,
    "Attention": None,
    "layer": None,
    "with_sinks": None,
    "scaled_in_place": "inputs-changed",
}


@pytest.mark.parametrize(("name", "mistake"), TORCH_FORMS.items())
def test_the_forms_of_torch_are_called_and_their_gradients_held(name, mistake):
    pytest.importorskip("torch")
    import torch_forms

    found = attnctl.conform(
        getattr(torch_forms, name), framework="torch", backward=True, dtypes=["float32"], quick=True,
        features=["memory layouts", "inputs kept"],
    )  # fmt: skip
    assert [each.failure.mistake for each in found.wrong] == ([mistake] if mistake else []), str(found)
    assert set(found.features[0].ratios) == {"head_outputs", "d_Q", "d_K", "d_V"}


def test_where_nothing_gives_gradients_it_says_so():
    import backward

    with pytest.raises(AttnError, match="nothing gives gradients; say --framework torch or jax"):
        attnctl.conform(backward.forward, backward=True)
    with pytest.raises(AttnError, match="it takes no d_output; a backward pass takes by name"):
        attnctl.conform(backward.forward, backward=backward.forward)


@pytest.mark.slow
def test_the_shell_takes_a_backward_pass_and_says_which_gradient_is_wrong(call, tmp_path):
    sample = KERNELS.parents[2] / "samples" / "conform" / "backward_with_bug.py"
    options = ["--quick", "--dtype", "float32", "--feature", "attention", "--json", "--save", str(tmp_path)]
    done = call("conform", f"{sample}:attention", "--backward", f"{sample}:backward", *options)
    assert done.code == 1
    (feature,) = json.loads(done.out)["features"]
    assert feature["mistake"] == "backward-no-delta"
    assert feature["ratios"]["d_V"] < 1 < feature["ratios"]["d_K"]
    saved = attnctl.load(next(tmp_path.glob("*.npz")))
    assert {"d_head_outputs", "d_Q", "d_K", "d_V", "head_outputs"} <= set(saved)
    assert [each.mistake for each in attnctl.check(saved).findings] == ["backward-no-delta"]
    assert call(*shlex.split(feature["replay"])[1:]).code == 1


PROGRAM = """
import sys
import numpy as np
sys.path.insert(0, {kernels!r})
import backward
x = dict(np.load(sys.argv[1]))
assert (x["Q"].dtype, x["logsumexp"].dtype) == (np.float16, np.float32)
d_q, d_k, d_v = backward.make()(*(x[name] for name in ("d_output", "Q", "K", "V", "output", "logsumexp")))
np.savez(sys.argv[2], dv=d_v, dk=d_k, dq=d_q)
"""


@pytest.mark.slow
def test_a_program_finds_what_it_takes_in_its_file_and_writes_gradients_there(call, tmp_path):
    (tmp_path / "back.py").write_text(PROGRAM.format(kernels=str(KERNELS)))
    options = ["--quick", "--dtype", "float16", "--feature", "d_v ≠ d_k", "--json"]
    done = call("conform", "--backward", *options, "--", sys.executable, "back.py", "{in}", "{out}")
    (feature,) = json.loads(done.out)["features"]
    assert (done.code, feature["cases"], set(feature["ratios"])) == (0, 5, {"d_Q", "d_K", "d_V"})


@pytest.mark.slow
def test_the_layout_is_told_by_the_output_where_gradients_are_wrong():
    import backward

    def turned(function):
        """Of (batch, n, head, d), with a log-sum-exp by head."""

        def call(*arrays):
            found = function(*(np.swapaxes(x, 1, 2) if x.ndim == 4 else x for x in arrays))
            several = found if isinstance(found, tuple) else (found,)
            back = tuple(np.swapaxes(x, 1, 2) for x in several)
            return back if len(back) > 1 else back[0]

        return call

    right, wrong = turned(backward.forward), turned(backward.make(mistake="not scaled"))
    found = attnctl.conform(
        lambda q, k, v, *_: right(q, k, v),
        backward=lambda d_output, q, k, v, output, lse, *_: wrong(d_output, q, k, v, output, lse),
        dtypes=["float32"],
        features=["attention"],
        quick=True,
    )
    assert found.conventions["layout"] == "bnhd"
    assert found.wrong[0].failure.mistake == "backward-not-scaled"


def test_the_corner_of_causal_is_told_by_the_output_where_gradients_are_wrong():
    import backward

    found = conform(backward.make(mistake="no delta"), "causal")
    assert found.agrees is False
    assert found.conventions["causal corner"] == "top-left"

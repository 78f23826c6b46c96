"""`conform --inputs`: calls that were captured are cases, and so are numbers drawn in their shape."""

from functools import wraps

import kernels_here as kernels
import numpy as np
import pytest
from command_line import call
from conform_table import KERNELS

import attnctl
from attnctl.formats import write_all as write

BIAS_OF_KEYS = 300.0
"""Keys of trained models have columns that are far from 0 for every token (Qwen2's W_K has such a bias)."""


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape)


def operands(queries, keys=None, heads=2, kv_heads=2, d=16):
    keys = keys or queries
    q, k, v = (
        numbers(1, heads, queries, d),
        numbers(1, kv_heads, keys, d, seed=1),
        numbers(1, kv_heads, keys, d, seed=2),
    )
    return {"Q": q, "K": k, "V": v}


def captured(arrays, number=0, **options):
    """A call as `capture` records it: a dump of ours whose header says which call it is."""
    trace = attnctl.attend(arrays, **options)
    trace.header["call"] = {
        "number": number, "function": "scaled_dot_product_attention", "at": f"gpt.py:{40 + number}",
        "module": f"layers.{number}.self_attn", "options": {},
    }  # fmt: skip
    return trace


def like_activations():
    """A column of keys far from 0, which hardly counts in queries; a first token with hardly a value.

    So far that float16 has no sum of as few keys as these.
    """
    arrays = operands(100)
    arrays["K"][..., 5] += 1000
    arrays["Q"][..., 5] *= 0.006
    arrays["K"][:, :, 0, :5] *= 0.1
    arrays["V"][:, :, 0] = 1e-4
    return captured(arrays, 7, causal=True, dtype="float32")


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "c.jsonl"
    write([captured(operands(9)), like_activations()], [path])
    return path


ONLY_REAL = {
    "the mean of keys overflows": (kernels.smooths_keys, ("float16",)),
    "keys of small values left out": (kernels.leaves_small_values_out, ("float32", "bfloat16")),
}
"""What no drawn numbers show, and the types in which it is wrong."""


@pytest.mark.slow
@pytest.mark.parametrize(("target", "types"), ONLY_REAL.values(), ids=ONLY_REAL)
def test_what_is_right_on_every_drawn_case_and_wrong_on_real_numbers_is_found(target, types, capture):
    drawn = attnctl.conform(target, quick=True, dtypes=types)
    assert drawn.agrees
    real = attnctl.conform(target, quick=True, dtypes=types, inputs=capture, features=["captured calls"])
    assert [run.status for run in real.features] == ["failed"] * len(types)
    assert [(run.cases, run.failed) for run in real.features] == [(2, 1)] * len(types)
    assert all(
        "captured call 7, gpt.py:47, layers.7.self_attn" in str(run.failure.case) for run in real.features
    )
    assert "Wrong in captured call 7, gpt.py:47, layers.7.self_attn." in real.notes
    shape = attnctl.conform(target, dtypes=types, inputs=capture, features=["activations"])
    assert {run.status for run in shape.features} == {"failed"}


def test_right_attention_is_right_on_captured_calls_and_numbers_alike(capture):
    found = attnctl.conform(kernels.good, inputs=capture, features=["captured calls", "activations"])
    assert {run.status for run in found.features} == {"passed"}
    assert [run.cases for run in found.features[:2]] == [2, 12]


def mask_of(queries, keys):
    return np.random.RandomState(5).uniform(size=(queries, keys)) < 0.6


KINDS = {
    "causal": (operands(9), {"causal": True}, "causal", {"causal": True}),
    "window": (operands(9), {"causal": True, "window": [2, None]}, "causal and window", {"window": (2, 9)}),
    "softcap": (operands(9), {"softcap": 3.0}, "softcap", {"softcap": 3.0}),
    "scale": (operands(9), {"scale": 0.4}, "scale", {"scale": 0.4}),
    "alibi": (operands(9), {"positions": "alibi"}, "alibi", {"alibi_slopes": [0.0625, 0.00390625]}),
    "mask": (operands(9) | {"mask": mask_of(9, 9)}, {}, "mask", {"mask": mask_of(9, 9)}),
    "bias": (operands(9) | {"bias": numbers(9, 9, seed=4)}, {}, "bias", {"bias": numbers(9, 9, seed=4)}),
    "sinks": (operands(9) | {"sink": np.array([0.5, 2.0])}, {}, "sinks", {"sinks": [0.5, 2.0]}),
    "key lengths": (operands(9) | {"key_lengths": [6]}, {}, "key_lengths", {"key_lengths": [6]}),
    "grouped heads": (operands(9, heads=4), {}, None, {}),
    "a cache": (
        operands(3) | {"past_key": numbers(1, 2, 6, 16), "past_value": numbers(1, 2, 6, 16, seed=3)},
        {"causal": True}, "causal", {"past_key": numbers(1, 2, 6, 16)},
    ),
    "one query, the last": (operands(1, 9), {"causal": True, "causal_offset": 8}, None, {}),
    "another width": ({**operands(9), "V": numbers(1, 2, 9, 24)}, {}, None, {}),
    "no batch": ({name: array[0] for name, array in operands(9).items()}, {}, None, {}),
}  # fmt: skip
"""A call's arrays, its options, what a target must have for it, and what the target is then called with."""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("arrays", "options", "needs", "passed"), KINDS.values(), ids=KINDS)
def test_a_captured_call_is_made_again_as_it_was(arrays, options, needs, passed):
    calls = []

    @wraps(kernels.everything)
    def everything(q, k, v, **given):
        calls.append(((q, k, v), given))
        return kernels.everything(q, k, v, **given)[0]

    only = {
        "features": ["captured calls"],
        "dtypes": ["float64"],
        "inputs": [captured(arrays, 3, **options)],
    }
    found = attnctl.conform(everything, **only)
    assert [(run.status, run.cases, run.of) for run in found.features] == [("passed", 1, 1)]
    made, given = calls[-1]
    for array, name in zip(made, "QKV", strict=True):
        np.testing.assert_array_equal(array.reshape(-1), np.ravel(arrays[name]))
    for name, value in passed.items():
        np.testing.assert_array_equal(np.broadcast_to(value, np.shape(given[name])), given[name])
    if needs:
        lacking = attnctl.conform(kernels.zeros, **only)
        assert [run.status for run in lacking.features] == ["skipped"]
        assert f"call 3, gpt.py:43, layers.3.self_attn: it takes no {needs}" in lacking.features[0].reason


@pytest.mark.parametrize(
    ("mask", "status"), [(mask_of(9, 9), "passed"), (np.stack([mask_of(9, 9), mask_of(9, 9).T]), "skipped")]
)
def test_a_captured_mask_is_handed_on_where_it_fits_the_masks_of_the_target(mask, status):
    def attention(q, k, v, mask=None):
        return kernels.everything(q, k, v, mask=None if mask is None else mask[None, None])[0]

    calls = {"inputs": [captured(operands(9) | {"mask": mask})], "features": ["captured calls"]}
    (found,) = attnctl.conform(attention, dtypes=["float64"], mask_shape="nm", **calls).features
    assert (found.status, "it takes masks of another shape" in found.reason) == (
        status,
        status == "skipped",
    )


def drawn_alike(options, *features, dtype="float64"):
    """Q, K and V of the cases that are drawn in the shape of one call."""
    calls = []

    def attention(q, k, v):
        calls.append((q, k, v))
        return kernels.everything(q, k, v)[0]

    found = attnctl.conform(attention, features=["activations"], dtypes=[dtype], **options)
    assert [(run.status, run.cases) for run in found.features] == [("passed", 3)]
    return calls[-3:]


def test_drawn_numbers_have_the_shape_of_a_call():
    """Its column far from 0, its first key and value, and rows as peaked as its own."""
    arrays = operands(40, heads=4, d=32)
    arrays["K"][..., 9] = -50 + arrays["K"][..., 9] * 7
    arrays["V"][..., 3] *= 100
    arrays["K"][:, :, 0] = arrays["K"][:, :, 1] * 0.01
    arrays["Q"] *= 3
    for q, k, v in drawn_alike({"inputs": [captured(arrays)]}):
        assert np.abs(k).mean(axis=(0, 1, 2)).argmax() == 0  # the largest column first, of fewer
        assert k[:, :, 1:, 0].mean() == pytest.approx(-50, abs=3)
        assert 3 < k[:, :, 1:, 0].std() < 11
        assert v[..., 1:, 0].std() == pytest.approx(100, rel=0.5)
        for array, theirs, column in ((k, arrays["K"], 9), (v, arrays["V"], 3)):
            np.testing.assert_array_equal(
                array[0, :, 0, 0], np.resize(theirs[0, :, 0, column], array.shape[1])
            )
        ours, own = (spread(*pair) for pair in ((q, k), (arrays["Q"], arrays["K"])))
        assert ours == pytest.approx(own, rel=0.1)


def spread(q, k):
    """How far scores of a row are apart, divided by the root of their width."""
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    return np.sqrt((q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5).var(-1).mean())


WITHOUT = {
    "features of a capture": (["--feature", "captured calls"], "--feature captured calls: there is none"),
    "a case again": (
        ["--replay", "x.npz", "--inputs", "{capture}"],
        "--replay: a saved case has its numbers",
    ),
    "a merge": (["--merge", "--inputs", "{capture}"], "--inputs: a merge of two parts has none"),
    "no such file": (["--inputs", "none.npz"], "none.npz: "),
    "no attention": (["--inputs", "{other}"], "other.json: call 0: "),
}


@pytest.mark.parametrize(("options", "said"), WITHOUT.values(), ids=WITHOUT)
def test_what_does_not_go_together_is_said(options, said, capture, tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"a": [[1, 2], [3, 4]]}')
    words = [word.format(capture=capture, other=other) for word in options]
    done = call("conform", "kernels_here:good", *words)
    assert done.code == 2
    assert said in done.err


@pytest.mark.usefixtures("_unexplained")
def test_the_command_names_the_call_and_its_saved_case_fails_again(capture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["conform", f"{kernels.__file__}:smooths_keys", "--dtype", "float16"]
    done = call(*args, "--inputs", str(capture), "--feature", "captured calls")
    assert done.code == 1
    assert "captured call 7, gpt.py:47, layers.7.self_attn: the output is " in " ".join(done.out.split())
    again = next(line for line in done.out.splitlines() if "--replay" in line).split()
    done = call(*again[1:])
    assert done.code == 1
    assert "captured call 7, gpt.py:47, layers.7.self_attn" in " ".join(done.out.split())


def test_right_gradients_are_right_where_keys_are_far_from_0(monkeypatch):
    """Weights that are made again are off by another rounding, which the mean of K multiplies in d_Q."""
    monkeypatch.syspath_prepend(KERNELS)
    import backward

    arrays = operands(12, d=8)
    arrays["K"][..., 5] += BIAS_OF_KEYS
    given = {"inputs": [captured(arrays)], "features": ["captured calls", "activations"]}
    for back in (backward.make(), backward.two_loops):
        found = attnctl.conform(backward.forward, backward=back, dtypes=["float32"], **given)
        assert {run.status for run in found.features} == {"passed"}
        assert all("d_Q" in run.ratios for run in found.features)


def test_a_captured_gradient_by_the_output_is_what_a_backward_pass_is_given(monkeypatch):
    monkeypatch.syspath_prepend(KERNELS)
    import backward

    d_output = numbers(1, 9, 32, seed=8) * 100  # the heads side by side
    given = []

    def back(d_output, q, k, v, output, logsumexp):
        given.append(d_output)
        return backward.two_loops(d_output, q, k, v, output, logsumexp)

    calls = [captured(operands(9) | {"d_output": d_output}, backward=True)]
    only = {"features": ["captured calls"], "dtypes": ["float64"], "inputs": calls}
    found = attnctl.conform(backward.forward, backward=back, **only)
    assert [(run.status, run.cases) for run in found.features] == [("passed", 1)]
    np.testing.assert_array_equal(given[-1], d_output.reshape(1, 9, 2, 16).swapaxes(1, 2))

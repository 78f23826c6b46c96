"""Attention that is written out in modules: what the scores show, and programs of torch that have it."""

import json
import sys

import numpy as np
import pytest

from attnctl.verbs.capture.written import UnclearError, explain_scores, place_of

D = 8
UNIT = 2.0**-23
CAUSAL = np.tri(5, dtype=bool)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


PRODUCT = drawn(3, 2, 5, 5)
BIAS = drawn(2, 5, 5, seed=1)
SHIFT = np.where(np.arange(5) < 2, 0.0, -100.0) * np.arange(3)[:, None, None, None]
DISTANCE = -0.5 * np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
CLEAR = {
    "scaled": (PRODUCT * D**-0.5, D**-0.5, False, False),
    "as it is": (PRODUCT, 1.0, False, False),
    "another scale": (PRODUCT * 0.2, 0.2, False, False),
    "hidden by -inf": (np.where(CAUSAL, PRODUCT, -np.inf), 1.0, False, True),
    "hidden by a large number": (np.where(CAUSAL, PRODUCT, -1e9), 1.0, False, True),
    "a bias of all members": (PRODUCT + BIAS, 1.0, True, False),
    "a bias, and another scale": (PRODUCT * 0.2 + BIAS, 0.2, True, False),
    "windows of a shifted picture": (PRODUCT + BIAS + SHIFT, 1.0, True, False),
    "by distance": (PRODUCT[:1] + DISTANCE, 1.0, True, False),
}


@pytest.mark.parametrize(("scores", "scale", "has_bias", "has_mask"), CLEAR.values(), ids=CLEAR)
def test_scores_show_what_was_done_to_them(scores, scale, has_bias, has_mask):
    product = PRODUCT[: len(scores)]
    found = explain_scores(product, scores, D, UNIT)
    assert found.scale == pytest.approx(scale)
    assert (found.bias is not None, found.mask is not None) == (has_bias, has_mask)
    again = product * found.scale + (0.0 if found.bias is None else found.bias)
    if has_mask:
        assert (found.mask == CAUSAL).all()
    assert np.allclose(again, scores, atol=1e-5) or has_mask


@pytest.mark.parametrize("scores", [PRODUCT[:1] + BIAS, PRODUCT + drawn(3, 2, 5, 5, seed=2), PRODUCT**2])
def test_what_could_be_anything_is_no_bias(scores):
    with pytest.raises(UnclearError, match="more than a multiple"):
        explain_scores(PRODUCT[: len(scores)], scores, D, UNIT)


def takes_three(query, key, value):
    return sys._getframe()


def takes_two_by_name(query, *, key=0, value=0):
    return sys._getframe()


def takes_two_of_them(query, key):
    value = query
    return sys._getframe() if value is query else None


def takes_one_and_names_the_others(x):
    query = key = value = x
    return sys._getframe() if query is key is value else None


OF_FRAMES = {
    takes_three: True,
    takes_two_by_name: True,
    takes_two_of_them: False,
    takes_one_and_names_the_others: False,
}


@pytest.mark.parametrize(
    ("function", "takes_heads"), OF_FRAMES.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_function_takes_heads_where_its_parameters_are_q_k_and_v(function, takes_heads):
    frame = function(*[0] * function.__code__.co_argcount, **dict.fromkeys(function.__kwdefaults__ or ()))
    assert place_of(frame, "here", "").takes_heads is takes_heads


# --- programs ---


@pytest.fixture
def run(capture, call):
    """Capture one class of the program; what was said, and what `check` says of each call."""
    pytest.importorskip("torch")

    def carry_out(*words):
        done = capture("-o", "c.npz", *words)
        assert done.returncode == 0, done.stderr
        if "no file written" in done.stderr:
            return done.stderr, []
        return done.stderr, json.loads(call("check", "c.npz", "--json").out)

    return carry_out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ViT", "Swin", "Einsum", "NonLocal", "Distances"])
def test_what_is_clear_is_recorded(run, name):
    said, found = run("written.py", name)
    assert said == "attnctl: c.npz: 2 calls; attnctl check c.npz judges them\n"
    assert [one["agrees"] for one in found] == [True] * 2
    assert [one["call"]["function"] for one in found] == [f"{name}.forward"] * 2
    assert [one["call"]["module"] for one in found] == [name] * 2
    assert {"attention_weights", "head_outputs"} <= found[0]["steps"].keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place", "why", "way"),
    [
        ("Unclear", "Unclear.forward", "its scores are more than", "--function __main__:NAME, records it"),
        ("Dropped", "Dropped.attend", "its weights are others", "__main__:Dropped.attend records"),
        ("Columns", "Columns.forward", "softmax is not over the last", "a function (q, k, v) around that"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_counted(run, name, place, why, way):
    said, found = run("written.py", "ViT", name)
    assert len(found) == 2
    line = said.splitlines()[0]
    assert line.startswith(f"attnctl: 2 softmaxes written out in {place} (written.py:")
    assert why in line
    assert line.endswith(way) or way in line


@pytest.mark.slow
def test_the_function_that_is_named_records_it(run):
    said, found = run("--function", "__main__:Dropped.attend", "written.py", "Dropped")
    assert "written out" not in said
    assert len(found) == 2


@pytest.mark.slow
def test_only_modules_that_are_chosen(run):
    said, found = run("--module", "Swin", "written.py", "ViT", "Swin", "Unclear")
    assert [one["call"]["module"] for one in found] == ["Swin"] * 2
    assert "written out" not in said


@pytest.mark.slow
def test_softmax_of_a_classifier_is_none(run):
    said, _ = run("written.py", "Classifier")
    assert "written out" not in said


@pytest.mark.slow
def test_gradients_of_what_is_written_out(run):
    said, found = run("--backward", "written.py", "backward", "ViT", "Swin", "Einsum", "NonLocal")
    assert "8 calls" in said
    for one in found:
        assert one["agrees"]
        assert {"d_Q", "d_K", "d_V"} <= one["steps"].keys()

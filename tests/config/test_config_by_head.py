"""A config takes the weights as a run shows them: by head."""

import numpy as np
import pytest

import attnctl
from attnctl.base.errors import AttnError
from attnctl.base.values import flow
from attnctl.inputs.config.load import load

SIZES = {
    "two heads": "heads: 2",
    "one head": "heads: 1",
    "shared keys": "heads: 4\nkv_heads: 2",
    "sizes of their own": "heads: 2\nd_k: 3\nd_v: 5",
}


def run_config(folder, text):
    path = folder / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return attnctl.run(settings=load(path))


@pytest.mark.parametrize("sizes", SIZES)
def test_what_a_run_shows_is_what_a_config_takes(tmp_path, sizes):
    head = f"sentence: I love AI\n{SIZES[sizes]}\n"
    drawn = run_config(tmp_path, head)
    offsets = {f"b_{x}": np.arange(drawn[x][:, 0].size).reshape(drawn[x][:, 0].shape) / 8 for x in "QKV"}
    weights = {name: drawn[name].tolist() for name in ("W_Q", "W_K", "W_V", "W_O")}
    written = weights | {name: array.tolist() for name, array in offsets.items()}
    again = run_config(tmp_path, head + f"weights: {flow(written)}\n")
    for x in "QKV":
        assert np.array_equal(again[f"W_{x}"], drawn[f"W_{x}"])
        assert np.allclose(again[x], drawn[x] + offsets[f"b_{x}"][:, None], rtol=1e-15)


def test_the_number_of_heads_follows(tmp_path):
    trace = run_config(tmp_path, "sentence: a b\nweights: {W_Q: [[[1], [2]], [[3], [4]], [[5], [6]]]}\n")
    assert trace["W_Q"].tolist() == [[[1], [2]], [[3], [4]], [[5], [6]]]
    assert trace.config["heads"] == 3


def test_the_width_of_values_follows_from_d_model_alone():
    trace = attnctl.run("I love AI", heads=2, d_k=3)
    assert (trace["Q"].shape, trace["V"].shape) == ((2, 3, 3), (2, 3, 2))


# ruff: noqa: E501  (a row a line)
WRONG = {
    "weights:\n  W_Q: [[[1], [2]], [[3], [4, 5]]]": ":3 $.weights.W_Q[1][1]: a row of 2, but row 0 has 1; make them as long",
    "weights:\n  W_Q: [[[1], [2]], [[3]]]": ":3 $.weights.W_Q[1]: 1 × 1, expected 2 × 1 (d_model × d_k)",
    "weights:\n  W_Q: [[[1]]]\n  heads: [{W_K: [[1]]}]": ":3 $.weights.W_Q: by head, and there is heads, too; write it in one of them",
    "heads: 3\nweights:\n  W_Q: [[[1]], [[1]]]": ":3 $.weights.heads: matrices for 2 heads, but heads is 3; give one mapping a head",
    "weights: {W_O: [[[1]]]}": ":2 $.weights.W_O[0][0]: a list is not a number; write one like 0.5",
    "d_k: 1\nweights: {W_Q: [[1, 0], [0, 1]]}": ":3 $.weights.W_Q: 2 × 2, expected 2 × 1 (d_model × heads·d_k)",
    "mask: causal": ":2 $.mask: not a key of its own; write rules: [causal]",
    "mask: [[1]]": ":2 $.mask: not a key of its own; write rules: [{mask: [[1, 0]]}]",
    "bias: alibi": ":2 $.bias: not a key of its own; write rules: [alibi]",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_does_not_fit_is_said_where_it_stands(tmp_path, text):
    with pytest.raises(AttnError) as error:
        run_config(tmp_path, f"sentence: a b\n{text}\n")
    assert error.value.problems[0].removeprefix(str(tmp_path / "c.yaml")) == WRONG[text]


def test_an_example_without_its_prefix(tmp_path):
    with pytest.raises(AttnError, match=r"^one-matrix: no such file; did you mean example:one-matrix\?$"):
        load("one-matrix")

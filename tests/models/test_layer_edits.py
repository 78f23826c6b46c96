"""Edits in any layer of a model: where they are made, and that they flow on."""

import numpy as np
import pytest
from checkpoints import ROOT

import attnctl

GPT2 = str(ROOT / "gpt2")
IDS = [3, 4, 5, 6]


def traces(layer="all", *edits):
    return attnctl.run_model(GPT2, ids=IDS, layer=layer, edits=edits)


def test_edits_are_made_where_they_say_and_flow_on():
    zero, other = "head_outputs[1]=0", "head_outputs[2]=mean"
    first, second, third = traces("all", f"1:{zero}", f"-2:{other}")
    plain = traces()
    np.testing.assert_array_equal(first["residual"], plain[0]["residual"])
    assert not second["head_outputs"][1].any()
    mean = plain[1]["head_outputs"][2].mean(axis=0)
    np.testing.assert_allclose(second["head_outputs"][2], np.tile(mean, (4, 1)), rtol=1e-6)
    np.testing.assert_array_equal(second["head_outputs"][3], plain[1]["head_outputs"][3])
    alone = traces("1,2", zero, other)  # in the first of the layers
    for there in (third, traces("2", f"1:{zero}", f"1:{other}")[0]):
        np.testing.assert_array_equal(there["residual"], alone[1]["residual"])


def test_a_patch_comes_from_the_layer_of_another_run(tmp_path):
    clean = attnctl.run_model(GPT2, ids=[7, 8, 9, 10], layer=1)[0]
    path = tmp_path / "clean.npz"
    attnctl.run_model(GPT2, ids=[7, 8, 9, 10], layer=1)[0].save(path)
    patched = traces("1", f"1:head_outputs[0]=@{path}")[0]
    np.testing.assert_array_equal(patched["head_outputs"][0], clean["head_outputs"][0])


@pytest.mark.parametrize(
    ("layer", "edit", "said"),
    [
        ("all", "3:X=0", r"edit '3:X=0': no layer 3; there are 3, from 0 to 2"),
        ("0", "1:X=0", r"edit '1:X=0': after layer 0, the last one here; add --layer 1"),
        ("all", "1:attention_weights=mean", "has no row for each position"),
        ("all", "1:W_Q=mean", "has no row for each position"),
        ("all", "1:=0", "no step to begin with"),
    ],
)
def test_what_is_refused(layer, edit, said):
    with pytest.raises(attnctl.AttnError, match=said):
        traces(layer, edit)

"""One layer of every family goes back: its gradients are the slopes of a loss."""

from __future__ import annotations

import json

import numpy as np
import pytest
from checkpoints import NAMES, ROOT, expected_of, folder_of

import attnctl
from attnctl.base.errors import AttnError
from attnctl.math.engine import carry_out
from attnctl.math.steps import ancestors
from attnctl.models.attention import prepare_attention
from attnctl.models.families import FAMILIES
from attnctl.models.source import open_model

LLAMA = str(ROOT / "llama")

REFUSED = {"deberta-v2"}
"""Types whose scores read vectors of distances."""


def kinds_of_layers(folder, name):
    """The parts of a checkpoint, and whether it is their attention to another sequence."""
    there = expected_of(name)
    for part in FAMILIES[json.loads((folder / "config.json").read_text())["model_type"]]:
        if not part or f"{part}_hidden_0" in there:
            model = open_model(str(folder), part, "float64")
            yield from ((part, model, cross) for cross in {False, bool(model.description.crosses)})


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_every_family_are_slopes(name, tmp_path):
    folder = folder_of(name, tmp_path)
    if json.loads((folder / "config.json").read_text())["model_type"] in REFUSED:
        hidden = np.ones((5, open_model(str(folder), "", "float64").description["width"]))
        with pytest.raises(AttnError, match="whose gradients are not computed"):
            attnctl.run_model(folder, layer="0", hidden=hidden, d_output=hidden, backward=True)
        return
    rng = np.random.RandomState(0)
    for part, model, cross in kinds_of_layers(folder, name):
        # Of a picture: four patches, and the tokens that stand before them.
        count = 5 + int(model.description["registers"] or 0)
        width = model.description["width"]
        hidden, d = rng.standard_normal((2, count, width))
        memory = rng.standard_normal((count, model.description["memory_width"] or width))
        rows = {"hidden": hidden, "memory": memory if cross else None}
        layers = model.description.layers
        index = max(
            index
            for index, layer in enumerate(layers)
            if "source" not in layer.overrides and not layer.is_linear
        )
        layer = f"{'cross' if cross else part}.{index}".lstrip(".")
        (trace,) = attnctl.run_model(
            folder, layer=layer, **rows, d_output=d, backward=True, dtype="float64"
        )
        plan = prepare_attention(model.layer(index), hidden, None, rows["memory"], cross=cross)
        behind = ancestors(plan.derivation, ["output"])
        for given in behind & plan.given.keys():
            step = 1e-5 * rng.standard_normal(plan.given[given].shape)
            ahead, back = (
                carry_out(plan.derivation, {**plan.given, given: moved}, keep=["output"])
                for moved in (plan.given[given] + step, plan.given[given] - step)
            )
            slope = ((ahead.values["output"] - back.values["output"]) / 2 * d).sum()
            found = (trace[f"d_{given}"] * step).sum()
            assert found == pytest.approx(slope, rel=1e-5, abs=1e-9), (layer, given)


def test_a_gradient_of_another_shape_is_refused():
    rows = np.ones((3, open_model(LLAMA).description["width"]))
    with pytest.raises(AttnError, match="d_output: 2 × "):
        attnctl.run_model(LLAMA, layer=0, hidden=rows, backward=True, d_output=rows[:2])
    with pytest.raises(AttnError, match="d_output"):
        attnctl.run_model(LLAMA, layer=0, hidden=rows, backward=True, d_output=rows[:, :2])

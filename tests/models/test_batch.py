"""Sentences that go through a model together have, to the last bit, the numbers that they have alone."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoints import folder_of

from attnctl.math.names import WEIGHTS
from attnctl.models.forward import embed_ids, together, weights_of_layers
from attnctl.models.run import ModelInput, run_model
from attnctl.models.source import open_model

FAMILIES = [
    "bert",
    "t5",
    "gemma2",
    "falcon-alibi",
    "bloom",
    "gpt-oss",
    "llama",
    "deepseek-v3",
    "modernbert",
    "gemma4_text",
    "gemma3n_text",
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("count", [1, 6])
def test_together_as_alone(name, count, tmp_path):
    folder = str(folder_of(name, tmp_path))
    model = open_model(folder)
    drawn = np.random.RandomState(0).randint(3, 15, (3, count)).tolist()
    starts = [embed_ids(model, ids) for ids in drawn]
    alone = [list(weights_of_layers(model, [start])) for start in starts]
    for ids, layers in zip(drawn, alone, strict=True):
        traces = run_model(folder, ModelInput(ids=tuple(ids)), keep=[WEIGHTS])
        for weights, trace in zip(layers, traces, strict=True):
            np.testing.assert_allclose(weights[0], trace[WEIGHTS], rtol=1e-4, atol=1e-7)
    if together(model, count) > 1:
        for layer, weights in enumerate(weights_of_layers(model, starts)):
            assert np.array_equal(weights, np.concatenate([each[layer] for each in alone]))
    else:
        assert name in {"gpt-oss", "deepseek-v3"}

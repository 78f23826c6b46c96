"""Every family and layer: attention weights and hidden states are those of transformers in float32."""

import json
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from checkpoints import NAMES, ROOT, expected_of, folder_of

from attnctl.models.attention import prepare_attention
from attnctl.models.families import FAMILIES
from attnctl.models.forward import embed_ids, final_norm, states
from attnctl.models.source import open_model

REPOSITORY = Path(__file__).parents[2]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_that_of_transformers(name, tmp_path):
    expected = expected_of(name)
    folder = folder_of(name, tmp_path)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    last = max(number for number in range(9) if f"hidden_{number}" in expected)
    memory = {"decoder": expected[f"hidden_{last}"]}
    for part in FAMILIES[kind]:
        if not part or f"{part}_hidden_0" in expected:
            assert parts_compared(folder, expected, part, memory.get(part)) >= 3


def test_every_family_has_a_checkpoint():
    """Without one nothing holds its entry to transformers: see `attnctl/models/families/__init__.py`."""
    kinds = {json.loads((ROOT / name / "config.json").read_text())["model_type"] for name in NAMES}
    assert kinds == FAMILIES.keys()
    assert {case["name"] for case in CASES} == set(NAMES)


def parts_compared(folder, expected, part, memory=None):
    """Hold each layer of a part to what is expected; how many arrays there were."""
    model = open_model(str(folder), part)
    start = f"{part}_" if part else ""
    found = {}

    def run(tensors, hidden, memory, cross):
        trace = prepare_attention(tensors, hidden, None, memory, cross=cross).run()
        found[f"{'cross_' if cross else start}weights_{tensors.index}"] = trace["attention_weights"]
        return trace

    last = len(model.description.layers)
    for index, hidden in states(model, first(model, expected, start), memory, run):
        found[f"{start}hidden_{index}"] = final_norm(model, hidden) if index == last else hidden
    for name, array in found.items():
        if name in expected and array.shape == expected[name].shape:
            np.testing.assert_allclose(array, expected[name], err_msg=name, **TOLERANCE)
    if any("weights" in name for name in expected):  # Falcon's with ALiBi are hidden states alone
        assert {name for name in found if "weights" in name} <= expected.keys()
    return len(found.keys() & expected.keys())


def first(model, expected, start):
    """What comes into layer 0: from ids where there are any, else as it is recorded."""
    ids = expected.get(f"{start}input_ids")
    if ids is None or "embed" not in model.description.shared:
        return expected[f"{start}hidden_0"]
    segments = expected.get("token_type_ids")
    return embed_ids(model, ids.tolist(), None if segments is None else segments.tolist())

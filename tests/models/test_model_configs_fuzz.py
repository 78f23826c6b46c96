"""Any config.json beside real tensors: it is run, or refused in an AttnError."""

import json
import random
import shutil
from contextlib import suppress

import numpy as np
import pytest
from checkpoints import NAMES, expected_of, folder_of

from attnctl.base.errors import AttnError
from attnctl.models.run import ModelInput, run_model
from attnctl.verbs.models.about import describe_checkpoint

ODD = [
    *(
        None,
        0,
        -1,
        1,
        2,
        3,
        7,
        10**9,
        2**40,
        0.5,
        -0.5,
        1e300,
        "x",
        "",
        True,
        False,
        [],
        [1],
        [[]],
        {},
        {"a": 1},
    ),
    *("full_attention", ["full_attention"] * 9, ["sliding_attention"] * 3, {"type": []}),
    *({"rope_type": "yarn"}, {"rope_type": "linear", "factor": 0}, {"rope_type": "dynamic", "factor": 0.0}),
    *(
        {"rope_type": "longrope", "short_factor": [0], "long_factor": []},
        {"rope_type": "llama3", "factor": 1},
    ),
    {"full_attention": {}, "sliding_attention": 3},
]
OTHERS = ["rope_scaling", "quantization_config", "layer_types", "head_dim", "sliding_window", "n_group"]
OF_ROPE = ["factor", "beta_fast", "mscale", "original_max_position_embeddings"]


def mutated(config, draw):
    """The config with one or two settings changed."""
    out = dict(config)
    for _ in range(draw.choice([1, 1, 2])):
        key = draw.choice([*out, *OTHERS])
        inside = out.get(key)
        if isinstance(inside, dict) and inside and draw.random() < 0.6:
            out[key] = {**inside, draw.choice([*inside, *OF_ROPE]): draw.choice(ODD)}
        else:
            out[key] = draw.choice(ODD)
    return out


def fuzz(name, scratch, times, seed):
    folder = scratch / "spoiled"
    shutil.copytree(folder_of(name, scratch), folder, copy_function=shutil.copyfile)
    config, draw = json.loads((folder / "config.json").read_text()), random.Random(f"{name} {seed}")
    source = ModelInput(ids=(3, 4, 5, 3))
    if "input_ids" not in expected_of(name):
        source = ModelInput(hidden=np.ones((3, 16), np.float32))
    for _ in range(times):
        (folder / "config.json").write_text(json.dumps(mutated(config, draw)))
        with suppress(AttnError):
            run_model(str(folder), source, "1")
            describe_checkpoint(str(folder))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_any_config_is_run_or_refused(name, tmp_path):
    fuzz(name, tmp_path, 3, "quick")


@pytest.mark.slow
@pytest.mark.thinned(3, "seed")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_many_configs_are_run_or_refused(name, seed, tmp_path):
    fuzz(name, tmp_path, 13, f"slow {seed}")

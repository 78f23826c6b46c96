"""Every key of every family's config.json, moved one at a time: what is moved, and what comes of it.

`make_sweep.py` holds each move to transformers and writes what came out to `sweep.json.gz`; the tests hold
attnctl to that without transformers. The tensors of a move are drawn by name, so that only their names
and shapes are kept, where they are not those of the family's first case in `cases.py`.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tiny import EVERY_CASE, model_type_of

from attnctl.models.families import FAMILIES
from attnctl.models.family import Stack
from attnctl.models.forward import embed_ids, final_norm, states
from attnctl.models.source import open_model
from attnctl.record.picture import PatchGrid

FROZEN = Path(__file__).parent / "sweep.json.gz"
IDS, DECODER_IDS = [5, 9, 17, 3, 9, 22, 11], [4, 8, 15, 16, 23]
SEGMENTS = [0, 0, 0, 0, 1, 1, 1]

ALSO = ("falcon-new", "gpt-neox-serial", "bloom-post", "stablelm-parallel", "deepseek-v3-plain", "t5-gated")
"""Cases of families that have another whose layers are built in another way."""

MORE = {
    "qwen3": {"sliding_window": 3, "max_window_layers": 1},
    "qwen3-moe": {"sliding_window": 3},
    "deepseek-v3-plain": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3},
    "smollm3": {"sliding_window": 3},
    "mixtral": {"sliding_window": 3},
}
"""Settings beside a case's, so that what one key switches on can be seen in a short sequence."""

LEFT_OUT = "(left out)"


def bases() -> dict[str, dict[str, Any]]:
    """A config.json of each family as a person writes one: nothing that follows from others.

    By the name of its case: the first of each model_type, and `ALSO`.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in EVERY_CASE:
        kind = model_type_of(case)
        if case["name"] in ALSO or all(each["model_type"] != kind for each in found.values()):
            found[case["name"]] = {"model_type": kind, **case["settings"], **MORE.get(case["name"], {})}
    return found


def sections(kind: str) -> dict[str, list[Stack]]:
    """The parts of config.json that a family reads (the whole is ""), each with the stacks that do."""
    found: dict[str, list[Stack]] = {}
    for stack in FAMILIES[kind].values():
        found.setdefault(stack.section or "", []).append(stack)
    return found


def moved(base: Mapping[str, Any], section: str, key: str, value: Any) -> dict[str, Any]:
    """The config.json with one key of a section moved.

    What is called rope_scaling takes the place of rope_parameters: they say the same thing.
    """
    own = dict(base[section] if section else base)
    if key == "rope_scaling":
        own.pop("rope_parameters", None)
    own = {name: each for name, each in {**own, key: value}.items() if each != LEFT_OUT}
    return {**base, section: own} if section else own


@lru_cache(maxsize=4096)
def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a tensor: about one for a norm, small for a bias, else those of a projection.

    They are kept: of the tensors of two moves nearly all are the same ones.
    """
    if name.endswith("inv_freq"):  # which is kept, but follows from its size
        return np.float32(10000.0 ** (-np.arange(shape[0]) / shape[0]))
    noise = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) < 2:
        noise = 0.3 * noise + (1 if name.endswith("weight") else 0)
    elif "emb" not in name:
        noise = noise * 1.5 / np.sqrt(shape[-1])
    numbers = np.float32(noise)
    numbers.setflags(write=False)
    return numbers


def write_checkpoint(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> None:
    """A folder with this config.json and these tensors, drawn."""
    write_tensors(folder, config, {name: drawn(name, tuple(shape)) for name, shape in shapes.items()})


def write_tensors(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """A folder with this config.json and these tensors, in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, array in tensors.items():
        end = at + 4 * array.size
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    data = b"".join(np.float32(array).tobytes() for array in tensors.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def start_of(width: int) -> np.ndarray:
    """What comes into layer 0 where a model takes no tokens."""
    return drawn("hidden", (len(IDS), width)).astype(np.float64)


def hidden_states(folder: Path, kind: str) -> dict[str, list[np.ndarray]]:
    """What comes into each layer of each part, and out of the last one, in float64."""
    found: dict[str, list[np.ndarray]] = {}
    for part in FAMILIES[kind]:
        model = open_model(str(folder), part, "float64")
        d = model.description
        if "embed" in d.stack.outer:
            segments = SEGMENTS if "segment" in d.stack.outer and model.rows("segment") > 1 else None
            start = embed_ids(model, DECODER_IDS if d.crosses else IDS, segments)
        else:
            start = start_of(d["width"])
            model.grid = PatchGrid(len(IDS) - 1 - int(d["registers"]), 1)  # as `make_sweep.column` has it
        every = [hidden for _, hidden in states(model, start, found[""][-1] if d.crosses else None)]
        found[part] = [*every[:-1], final_norm(model, every[-1])]
    return found


def figures(found: Mapping[str, list[np.ndarray]]) -> list[float]:
    """A number for each part: the cells of its last state, each times one drawn, over √(how many)."""
    return [
        float(f"{np.vdot(drawn('figure', each.shape), each) / np.sqrt(each.size):.6g}")
        for *_, each in found.values()
    ]


def named(said: str, key: str, own: Mapping[str, Any]) -> bool:
    """Whether a refusal names the key that was moved, or one that it does not go with."""
    return any(name in said for name in (key, *own)) or ("rope" in key and "rope" in said)


def read_frozen() -> dict[str, Any]:
    """What transformers makes of every move: see `make_sweep.py`."""
    return json.loads(gzip.decompress(FROZEN.read_bytes()))

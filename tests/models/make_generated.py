"""Freeze what transformers goes on with, greedily: generated.json, of every family that sees one way.

python tests/models/make_generated.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from make import leave_out_towers
from make_logits import BODIES, class_of
from test_next import NAMES, with_head
from tiny import EVERY_CASE

from attnctl.models.source import open_model

FROZEN = Path(__file__).parent / "generated.json"
IDS, COUNT = [9, 4, 17, 4, 26], 6


def goes_on(name: str, folder: str) -> list[int]:
    """The likeliest tokens, one after the other, each by a pass over all before it."""
    config = json.loads((Path(folder) / "config.json").read_text())
    kind = class_of(config["model_type"])
    attention = next(case.get("attention", "eager") for case in EVERY_CASE if case["name"] == name)
    how = {"dtype": torch.float32, "attn_implementation": attention, "output_loading_info": True}
    model, said = kind.from_pretrained(folder, key_mapping=BODIES.get(config["model_type"]), **how)
    assert not said["missing_keys"], said
    model.eval()
    ids = list(IDS)
    for _ in range(COUNT):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        ids.append(int(logits.argmax()))
    return ids[len(IDS) :]


def main() -> None:
    leave_out_towers()
    made = {}
    for name in NAMES:
        if name == "gpt-neox":  # its file has a head and says that it has none: releases differ
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = with_head(name, Path(scratch))
            if open_model(folder).description["causal"]:
                made[name] = goes_on(name, folder)
    lines = [f"{json.dumps(name)}: {ids}" for name, ids in made.items()]
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

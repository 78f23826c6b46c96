"""Write states.npz: what comes into each layer of some checkpoints, in transformers, by type of number.

pip install torch==2.13.0 transformers==5.23.0
python tests/models/make_states.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from checkpoints import ROOT

CASES = {
    "llama float32": 256,
    "llama bfloat16": 128,
    "gemma2 bfloat16": 128,
    "gpt2 float16": 32,
    "mixtral float16": 128,
    "bloom bfloat16": 256,
    "opt-post-norm float16": 30,
}
"""A checkpoint, a type of number, and how many tokens."""


def main() -> None:
    """Random tokens through each, as its users load it."""
    found = {}
    for case, length in CASES.items():
        name, kind = case.split()
        options = {"dtype": getattr(torch, kind), "attn_implementation": "eager"}
        model = transformers.AutoModel.from_pretrained(ROOT / name, **options).eval()
        ids = torch.tensor(np.random.RandomState(0).randint(3, 30, size=(1, length)))
        with torch.no_grad():
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        for index, state in enumerate(states):
            array = state[0].half() if kind == "float16" else state[0].float()
            found[f"{case} {index}"] = array.numpy()
    np.savez_compressed(Path(__file__).parent / "states.npz", **found)


if __name__ == "__main__":
    main()

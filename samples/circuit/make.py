"""Write an induction circuit that is built by hand: a GPT-2 of two layers that repeats what came before.

    python samples/circuit/make.py FOLDER [--broken]

A row of the residual stream is four parts: the token, the token before it, what to say, and the position,
each of them one number that is 1 and others that are 0. Head 0.1 looks one position back and copies the
token there into the second part; head 1.2 looks where that is its own token, and copies the token there
into the third, which is what the unembedding reads. All other heads look everywhere and write nothing. In
the broken copy head 0.1 looks at its own position.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

TOKENS, POSITIONS, HEADS = 60, 48, 4
WIDTH, SIZE = 240, 60
TOKEN, BEFORE, SAID, POSITION = 0, 60, 120, 180  # where each part of a row begins
SHARP, LOUD = 25.0, 12.0


def place(matrix, row, column, count):
    """Put an identity of so many rows into a matrix."""
    matrix[range(row, row + count), range(column, column + count)] = 1


def layer(head, reads, looks_for, one_back, writes):
    """One head that attends where `looks_for` is what it reads, and copies the token there."""
    q, k, v = (np.zeros((WIDTH, HEADS * SIZE)) for _ in range(3))
    o, first = np.zeros((HEADS * SIZE, WIDTH)), head * SIZE
    count = POSITIONS if reads == POSITION else TOKENS
    place(q, reads, first, count)
    place(k, looks_for, first + one_back, count - one_back)
    place(v, TOKEN, first, TOKENS)
    place(o, first, writes, TOKENS)
    return np.hstack([q * SHARP * np.sqrt(SIZE), k, v]), o


def undo_norm(ones):
    """The weight and bias with which LayerNorm gives back a row of so many ones and zeros."""
    mean = ones / WIDTH
    return np.full(WIDTH, np.sqrt(mean - mean**2 + 1e-5)), np.full(WIDTH, mean)


def tensors(*, broken):
    """All tensors by name."""
    out = {"wte.weight": np.eye(TOKENS, WIDTH), "wpe.weight": np.eye(POSITIONS, WIDTH, POSITION)}
    layers = [
        layer(1, POSITION, POSITION, 0 if broken else 1, BEFORE),
        layer(2, TOKEN, BEFORE, 0, SAID),
    ]
    for number, (qkv, o) in enumerate(layers):
        name = f"h.{number}."
        out[f"{name}ln_1.weight"], out[f"{name}ln_1.bias"] = undo_norm(ones=2 + number)
        out[f"{name}ln_2.weight"], out[f"{name}ln_2.bias"] = undo_norm(ones=3)
        out |= {f"{name}attn.c_attn.weight": qkv, f"{name}attn.c_attn.bias": np.zeros(3 * WIDTH)}
        out |= {f"{name}attn.c_proj.weight": o, f"{name}attn.c_proj.bias": np.zeros(WIDTH)}
        out |= {f"{name}mlp.c_fc.weight": np.zeros((WIDTH, 1)), f"{name}mlp.c_fc.bias": np.zeros(1)}
        out |= {f"{name}mlp.c_proj.weight": np.zeros((1, WIDTH)), f"{name}mlp.c_proj.bias": np.zeros(WIDTH)}
    out |= {"ln_f.weight": np.ones(WIDTH), "ln_f.bias": np.zeros(WIDTH)}
    return out | {"lm_head.weight": np.eye(TOKENS, WIDTH, SAID) * LOUD / np.sqrt(WIDTH / 4)}


def write(folder, arrays):
    """Write config.json and model.safetensors, as save_pretrained does."""
    sizes = {"vocab_size": TOKENS, "n_positions": POSITIONS, "n_embd": WIDTH, "n_head": HEADS}
    config = {"model_type": "gpt2", **sizes, "n_layer": 2, "n_inner": 1, "tie_word_embeddings": False}
    header, data = {}, b""
    for name, array in arrays.items():
        block = array.astype("<f4").tobytes()
        offsets = [len(data), len(data) + len(block)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += block
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    write(Path(sys.argv[1]), tensors(broken="--broken" in sys.argv))

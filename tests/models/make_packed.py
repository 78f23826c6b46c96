"""Freeze matrices that other programs packed, and what they make of them again: packed.npz.

pip install compressed-tensors bitsandbytes 'mlx[cpu]'
python tests/models/make_packed.py
"""

from __future__ import annotations

import json
from pathlib import Path

import bitsandbytes.functional as bnb
import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.base import pack_to_int32

FROZEN = Path(__file__).parent / "packed.npz"
ROWS, COLUMNS = 32, 128


def of_mlx(matrix: np.ndarray, bits: int, size: int) -> dict[str, np.ndarray]:
    weight, scales, biases = mx.quantize(mx.array(matrix), group_size=size, bits=bits)
    whole = mx.dequantize(weight, scales, biases, group_size=size, bits=bits)
    return {
        "w.weight": np.array(weight),
        "w.scales": np.array(scales),
        "w.biases": np.array(biases),
        "expected": np.array(whole),
    }


def of_bitsandbytes(matrix: np.ndarray, kind: str, *, nested: bool) -> dict[str, np.ndarray]:
    tensor = torch.tensor(matrix)
    packed, state = bnb.quantize_4bit(tensor, quant_type=kind, compress_statistics=nested, blocksize=64)
    found = {"w.weight": packed.numpy(), "expected": bnb.dequantize_4bit(packed, state).numpy()}
    for name, value in state.as_dict(packed=True).items():
        found[f"w.weight.{name}"] = value.numpy()
    return found


def of_compressed(matrix: np.ndarray, bits: int, size: int, *, zeros: bool) -> dict[str, np.ndarray]:
    """Rounded to the range by hand, packed by the package."""
    groups = COLUMNS // size
    half = 1 << (bits - 1)
    by_group = matrix.reshape(ROWS, groups, size)
    scale = (np.abs(by_group).max(-1) / (half - 1)).astype(np.float32)
    rng = np.random.RandomState(1)
    zero = rng.randint(-2, 3, (ROWS, groups)) if zeros else np.zeros((ROWS, groups), int)
    q = np.clip(np.round(by_group / scale[..., None]) + zero[..., None], -half, half - 1)
    expected = (q - zero[..., None]) * scale[..., None]
    found = {
        "w.weight_packed": pack_to_int32(
            torch.tensor(q.reshape(ROWS, COLUMNS)).to(torch.int8), bits
        ).numpy(),
        "w.weight_scale": scale,
        "w.weight_shape": np.array([ROWS, COLUMNS]),
        "expected": expected.reshape(ROWS, COLUMNS).astype(np.float32),
    }
    if zeros:
        whole = torch.tensor(zero).to(torch.int8)
        found["w.weight_zero_point"] = pack_to_int32(whole, bits, packed_dim=0).numpy()
    return found


def main() -> None:
    matrix = np.random.RandomState(0).randn(ROWS, COLUMNS).astype(np.float32)
    made = {
        "mlx 4": of_mlx(matrix, 4, 32),
        "mlx 8": of_mlx(matrix, 8, 64),
        "mlx 2": of_mlx(matrix, 2, 32),
        "nf4": of_bitsandbytes(matrix, "nf4", nested=False),
        "nf4 nested": of_bitsandbytes(matrix, "nf4", nested=True),
        "fp4": of_bitsandbytes(matrix, "fp4", nested=False),
        "compressed 4": of_compressed(matrix, 4, 32, zeros=False),
        "compressed 4 zeros": of_compressed(matrix, 4, 32, zeros=True),
        "compressed 8": of_compressed(matrix, 8, COLUMNS, zeros=False),
    }
    flat = {f"{name}/{part}": array for name, arrays in made.items() for part, array in arrays.items()}
    np.savez_compressed(FROZEN, **flat)
    print(json.dumps({name: str(array.dtype) for name, array in flat.items()}))


if __name__ == "__main__":
    main()

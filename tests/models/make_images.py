"""Freeze what transformers' processors for Pillow make of one picture: tests/models/processors.npz.

    pip install torch==2.13.0 transformers==5.24.0 pillow
    PYTHONPATH=. python tests/models/make_images.py

DINOv3's processor is for torchvision alone; its numbers are those of the functions that it calls, torch's
own `interpolate` among them. SigLIP 2's patches are put back where they stand in the picture.
"""

from __future__ import annotations

import numpy as np
import torch
import transformers
from images import KINDS, PROCESSORS, draw_picture
from PIL import Image
from torch.nn.functional import interpolate
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

CLASSES = {
    "ViT": ViTImageProcessorPil,
    "DeiT": DeiTImageProcessorPil,
    "CLIP": CLIPImageProcessorPil,
    "Bit": BitImageProcessorPil,
    "Siglip": SiglipImageProcessorPil,
    "Siglip2": Siglip2ImageProcessorPil,
}


def pixels_by_transformers(kind: str, config: dict, picture: Image.Image) -> np.ndarray:
    if kind == "DINOv3ViT":
        return by_torch(config, picture)
    found = CLASSES[kind](**config)(picture, return_tensors="np")
    values = found["pixel_values"][0]
    if kind != "Siglip2":
        return values

    rows, columns = found["spatial_shapes"][0]
    side = config["patch_size"]
    patches = values[: rows * columns].reshape(rows, columns, side, side, 3)
    return patches.transpose(4, 0, 2, 1, 3).reshape(3, rows * side, columns * side)


def by_torch(config: dict, picture: Image.Image) -> np.ndarray:
    """Scaled, resized, normed, in this order."""
    pixels = torch.tensor(np.array(picture)).permute(2, 0, 1)[None] * (1 / 255)
    size = (config["size"]["height"], config["size"]["width"])
    resized = interpolate(pixels, size=size, mode="bilinear", antialias=True)[0]
    mean, std = (
        torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    return ((resized - mean) / std).numpy()


def main() -> None:
    print("transformers", transformers.__version__)
    made = {}
    for name, config in PROCESSORS.items():
        for shape, (height, width) in KINDS.items():
            picture = draw_picture(height, width)
            kind = name.partition(" ")[0]
            made[f"{name}, {shape}"] = pixels_by_transformers(kind, config, picture).astype(np.float32)
    np.savez_compressed("tests/models/processors.npz", **made)


if __name__ == "__main__":
    main()

"""A picture that is drawn, and what processors are asked to make of it."""

from __future__ import annotations

import numpy as np
from PIL import Image

KINDS = {"wide": (30, 47), "tall": (41, 26), "small": (9, 12)}
"""Rows and columns of a picture."""

PROCESSORS = {
    "ViT": {"size": {"height": 12, "width": 12}},
    "ViT nearest": {"size": {"height": 12, "width": 16}, "resample": 0, "image_mean": [0.1, 0.2, 0.3]},
    "DeiT": {"size": {"height": 18, "width": 18}, "crop_size": {"height": 12, "width": 12}},
    "CLIP": {"size": {"shortest_edge": 12}, "crop_size": {"height": 12, "width": 12}},
    "CLIP padded": {"size": {"shortest_edge": 9}, "crop_size": {"height": 16, "width": 14}},
    "Bit": {"size": {"shortest_edge": 16}, "crop_size": {"height": 12, "width": 12}},
    "Siglip": {"size": {"height": 12, "width": 12}, "do_normalize": False},
    "Siglip2": {"patch_size": 4, "max_num_patches": 12},
    "DINOv3ViT": {"size": {"height": 12, "width": 12}},
}


def draw_picture(height: int, width: int) -> Image.Image:
    """Waves of three colours with noise over them, the same on every machine."""
    down = np.linspace(0, 5, height)[:, None, None]
    across = np.linspace(0, 7, width)[None, :, None]
    colours = np.array([0.0, 1.0, 2.5])
    waves = 110 * np.sin(down + colours) * np.cos(across * (1 + colours / 3))
    noise = np.random.RandomState(0).uniform(-20, 20, (height, width, 3))
    return Image.fromarray(np.clip(128 + waves + noise, 0, 255).astype(np.uint8))

"""What preprocessor_config.json asks for: resize, crop, a scale, a mean and a deviation.

As transformers' processors for Pillow compute it, number for number; those for torchvision resize bytes by
other sums, and differ by a level of 255 here and there. DINOv3's, which is for torchvision alone, resizes
numbers, as `patches.resize_grid` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import one_of, quote
from attnctl.math import Array
from attnctl.models.images.interpolation import BILINEAR, resize_rows
from attnctl.models.keys import is_count, is_number
from attnctl.models.tensors import json_file, path_inside

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "preprocessor_config.json"
OF_SEVERAL = "processor_config.json"
"""Where transformers 5 writes the processors of a model of texts and pictures, each under its name."""

LONGEST = 2**20
MOST_SIDE = 4096
"""Pixels that a picture may be resized to; the largest model there is takes 1024."""

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)
NEAREST, LANCZOS, LINEAR, CUBIC, BOX, HAMMING = range(6)
"""The interpolations by Pillow's numbers."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {"size": {"height": 224, "width": 224}, "resample": LINEAR, "mean": HALF, "std": HALF},
    "DeiT": {
        "size": {"height": 256, "width": 256},
        "crop": {"height": 224, "width": 224},
        "resample": CUBIC,
        "mean": HALF,
        "std": HALF,
    },
    "CLIP": {
        "size": {"shortest_edge": 224},
        "crop": {"height": 224, "width": 224},
        "resample": CUBIC,
        "mean": CLIP_MEAN,
        "std": CLIP_STD,
    },
    "Siglip": {"size": {"height": 224, "width": 224}, "resample": CUBIC, "mean": HALF, "std": HALF},
    "Siglip2": {"resample": LINEAR, "mean": HALF, "std": HALF, "most_patches": 256},
    "DINOv3ViT": {
        "size": {"height": 224, "width": 224},
        "resample": LINEAR,
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "in_numbers": True,
    },
}
DEFAULTS["Bit"] = DEFAULTS["CLIP"]
"""What each kind of processor does where its file says nothing, by the name before ImageProcessor."""

READ = {
    *("size", "crop_size", "do_resize", "do_center_crop", "do_rescale", "do_normalize", "rescale_factor"),
    *("image_mean", "image_std", "resample", "max_num_patches", "patch_size"),
}
SILENT = {
    *("image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "use_fast"),
    *(
        "data_format",
        "input_data_format",
        "device",
        "disable_grouping",
        "return_tensors",
        "_valid_processor_keys",
    ),
    *("default_to_square", "image_seq_length", "_valid_kwargs_names", "backend", "auto_map"),
}
"""Keys that change no number, or that only say what a picture is handed in as."""


class Prepared(NamedTuple):
    values: Array
    """What a model reads, (channel, row, column)."""
    shown: Array
    """The same as a person sees it, bytes (row, column, channel)."""


class PixelSize(NamedTuple):
    height: int
    width: int


@dataclass(frozen=True)
class Processor:
    """The steps between a picture and the numbers of its pixels."""

    size: Mapping[str, int] | None
    crop: PixelSize | None
    resample: int
    scale: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    most_patches: int | None = None
    in_numbers: bool = False
    """Whether numbers are resized, not bytes."""
    place: str = FILE
    notes: tuple[str, ...] = field(default=())

    def resized(self, height: int, width: int, patch: int) -> PixelSize:
        """The size that a picture is brought to first."""
        if self.most_patches is not None:
            return within_patches(height, width, patch, self.most_patches)
        if self.size is None:
            return PixelSize(height, width)
        if "height" in self.size:
            return PixelSize(self.size["height"], self.size["width"])

        short = self.size["shortest_edge"]
        long = int(short * max(height, width) / min(height, width))
        return PixelSize(long, short) if width <= height else PixelSize(short, long)

    def seen(self, height: int, width: int, patch: int) -> PixelSize:
        """The size of what the model sees in the end."""
        return self.crop or self.resized(height, width, patch)

    def prepare(self, picture: Image, size: PixelSize) -> Prepared:
        """The pixels of a picture that is first made so large."""
        if self.in_numbers:
            pixels = np.asarray(picture).astype(np.float32)
            scaled = self.rescale(pixels)
            resized = resize_rows(scaled, size, BILINEAR, antialias=True)
            shown = np.clip(np.rint(resized * 255), 0, 255).astype(np.uint8)
        else:
            bytes_of = picture.resize((size.width, size.height), resample=self.resample)
            shown = crop_centre(np.asarray(bytes_of), self.crop)
            resized = self.rescale(shown)
        return Prepared(self.normalize(resized), shown)

    def rescale(self, pixels: Array) -> Array:
        if self.scale is None:
            return pixels.astype(np.float32)
        return (pixels.astype(np.float64) * self.scale).astype(np.float32)

    def normalize(self, pixels: Array) -> Array:
        """Less the mean, over the deviation, in float32; channels first."""
        if self.mean is not None and self.std is not None:
            mean = np.array(self.mean, np.float32)
            pixels = (pixels - mean) / np.array(self.std, np.float32)
        return np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


def within_patches(height: int, width: int, patch: int, most: int) -> PixelSize:
    """The largest size in whole patches of the picture's shape that has no more than so many (SigLIP 2)."""

    def sides(scale: float) -> PixelSize:
        return PixelSize(
            max(patch, ceil(height * scale / patch) * patch),
            max(patch, ceil(width * scale / patch) * patch),
        )

    # The bounds and the end of the search are transformers': other ones give other sizes at an edge.
    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        found = sides(scale)
        if (found.height / patch) * (found.width / patch) <= most:
            low = scale
        else:
            high = scale
    return sides(low)


def crop_centre(pixels: Array, size: PixelSize | None) -> Array:
    """The middle of a picture; with black around it where it is smaller."""
    if size is None:
        return pixels
    height, width = pixels.shape[:2]
    tall = max(height, size.height)
    wide = max(width, size.width)
    if (tall, wide) != (height, width):
        above = ceil((tall - height) / 2)
        left = ceil((wide - width) / 2)
        around = ((above, tall - height - above), (left, wide - width - left), (0, 0))
        pixels = np.pad(pixels, around)

    top = (tall - size.height) // 2
    start = (wide - size.width) // 2
    return pixels[top : top + size.height, start : start + size.width]


class SizeInPatches(NamedTuple):
    rows: int
    columns: int
    pixels: PixelSize
    """What the picture is resized to, before it is cropped."""


def size_of_pixels(processor: Processor, picture: Image, patch: int) -> SizeInPatches:
    """How many patches a picture makes. Raises AttnError where it makes none, or is far too large."""
    resized = processor.resized(picture.height, picture.width, patch)
    seen = processor.seen(picture.height, picture.width, patch)
    if max(*resized, *seen) > MOST_SIDE:
        height, width = resized
        raise AttnError(
            f"--image: {width} × {height} pixels, by {processor.place}; {MOST_SIDE} to a side are the most"
        )
    rows = seen.height // patch
    columns = seen.width // patch
    if not rows or not columns:
        raise AttnError(f"--image: {seen.width} × {seen.height} pixels have no patch of {patch} × {patch}")
    return SizeInPatches(rows, columns, resized)


# --- the file ---


def read_processor(folder: Path) -> Processor:
    """What a model's folder says of pictures. Raises AttnError with every key that is not understood."""
    config, place = read_config(folder)
    kind = kind_of(config, place)
    raise_all(f"{place}: {problem}" for problem in misread(config))
    usual = DEFAULTS[kind]

    crop = None
    if config.get("do_center_crop", "crop" in usual):
        crop = PixelSize(*square(config.get("crop_size", usual.get("crop", 224))).values())
    resizes = config.get("do_resize", True) and kind != "Siglip2"
    return Processor(
        size=read_size(config.get("size", usual.get("size")), kind) if resizes else None,
        crop=crop,
        resample=config.get("resample", usual["resample"]),
        scale=config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else None,
        mean=channels(config, "image_mean", usual["mean"]),
        std=channels(config, "image_std", usual["std"]),
        most_patches=config.get("max_num_patches", usual["most_patches"]) if kind == "Siglip2" else None,
        in_numbers=usual.get("in_numbers", False),
        place=place,
    )


def read_config(folder: Path) -> tuple[Mapping[str, Any], str]:
    """The object about pictures, and where it stands."""
    path = folder / FILE
    if path.is_file():
        return json_file(path_inside(folder, FILE), LONGEST), str(path)

    several = folder / OF_SEVERAL
    if several.is_file():
        found = json_file(path_inside(folder, OF_SEVERAL), LONGEST).get("image_processor")
        if isinstance(found, Mapping):
            return found, str(several)
    raise AttnError(
        f"--image: {folder}: no {FILE}, which says how a picture is resized and scaled; "
        "put it there from the model's own repository"
    )


def kind_of(config: Mapping[str, Any], place: str) -> str:
    """The kind of a processor. Raises AttnError for one that is not known."""
    said = config.get("image_processor_type") or config.get("feature_extractor_type")
    name = str(said).removesuffix("Fast").removesuffix("Pil")
    kind = name.removesuffix("FeatureExtractor").removesuffix("ImageProcessor")
    if kind not in DEFAULTS:
        known = one_of(f"{each}ImageProcessor" for each in DEFAULTS)
        raise AttnError(f"{place}: image_processor_type {quote(str(said))} is not understood; only {known}")
    return kind


def misread(config: Mapping[str, Any]) -> Iterator[str]:
    for name, value in config.items():
        if name in SILENT or value is None:
            continue
        if name not in READ:
            if value:  # what is off changes nothing
                yield f"{quote(name)} is {quote(str(value))}, which is not understood here"
        elif not FITTING[name](value):
            yield f"{name}: {quote(str(value))}, expected {EXPECTED[name]}"


def is_size(value: Any) -> bool:
    if is_side(value):
        return True
    if not isinstance(value, Mapping):
        return False
    sides = {key: side for key, side in value.items() if side is not None}
    return set(sides) in ({"height", "width"}, {"shortest_edge"}) and all(map(is_side, sides.values()))


def is_side(value: Any) -> bool:
    return is_count(value) and value <= MOST_SIDE


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_channels(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(is_number, value))


def is_resample(value: Any) -> bool:
    return is_count(value, 0) and value <= HAMMING


FITTING = {
    **dict.fromkeys(("size", "crop_size"), is_size),
    **dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize"), is_flag),
    "rescale_factor": is_number,
    "image_mean": is_channels,
    "image_std": lambda value: is_channels(value) and all(value),
    "resample": is_resample,
    **dict.fromkeys(("max_num_patches", "patch_size"), is_side),
}
OF_SIDES = f"a size of up to {MOST_SIDE}, as a number, height and width, or shortest_edge"
EXPECTED = {
    **dict.fromkeys(("size", "crop_size"), OF_SIDES),
    **dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize"), "true or false"),
    "rescale_factor": "a number",
    "image_mean": "three numbers",
    "image_std": "three numbers other than 0",
    "resample": "0 to 5, as Pillow numbers its interpolations",
    **dict.fromkeys(("max_num_patches", "patch_size"), f"a whole number up to {MOST_SIDE}"),
}


def read_size(value: Any, kind: str) -> Mapping[str, int]:
    """A size; a number alone is the shorter side where a picture is cropped, else both."""
    if isinstance(value, int):
        keeps_shape = kind in {"CLIP", "Bit"}
        return {"shortest_edge": value} if keeps_shape else square(value)
    return {key: side for key, side in value.items() if side is not None}


def square(value: Any) -> dict[str, int]:
    """Height and width, of both or of one number."""
    if isinstance(value, int):
        return {"height": value, "width": value}
    if "shortest_edge" in value:
        return square(value["shortest_edge"])
    return {"height": value["height"], "width": value["width"]}


def channels(config: Mapping[str, Any], name: str, usual: tuple[float, ...]) -> tuple[float, ...] | None:
    if not config.get("do_normalize", True):
        return None
    return tuple(config.get(name) or usual)

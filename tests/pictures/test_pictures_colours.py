"""Ramps are monotone in lightness, of one hue each, and apart in every common colour blindness."""

from itertools import pairwise
from math import atan2, degrees

import numpy as np
import pytest

from attnctl.drawing.pictures import (
    BLUE,
    LEVELS,
    ORANGE,
    TWO_HUES,
    hexadecimal,
    ink_on,
    ramp_colours,
    rgb,
)

WHITE = np.array([0.95047, 1.0, 1.08883])
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Machado, Oliveira & Fernandes 2009, severity 1.0, on linear RGB."""


def linear(colour):
    parts = np.array(colour) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light):
    """CIELAB (D65) of linear RGB: CIE 15."""
    ratio = TO_XYZ @ light / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_the_oracle_knows_a_color_whose_lab_is_published():
    assert lab(linear((255, 0, 0))) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)


@pytest.mark.parametrize("anchors", [BLUE, ORANGE], ids=["blue", "orange"])
def test_a_ramp_only_gets_darker_and_keeps_its_hue(anchors):
    found = [lab(linear(colour)) for colour in ramp_colours(anchors)]
    assert len(found) == LEVELS
    assert all(before[0] - after[0] > 0.3 for before, after in pairwise(found))
    assert found[0][0] > 94
    assert found[-1][0] < 25
    hues = [degrees(atan2(b, a)) % 360 for _, a, b in found]
    assert max(hues) - min(hues) < 45


def test_two_hues_get_darker_outwards_from_a_grey_middle():
    found = [lab(linear(colour)) for colour in ramp_colours(TWO_HUES)]
    middle = LEVELS // 2
    assert np.hypot(*found[middle][1:]) < 1
    assert all(a[0] < b[0] for a, b in pairwise(found[: middle + 1]))
    assert all(a[0] > b[0] for a, b in pairwise(found[middle:]))
    for level in range(middle):
        assert abs(found[level][0] - found[-1 - level][0]) < 6, "as dark on either side"


@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_two_hues_stay_apart(kind):
    seen = [
        lab(np.clip(np.array(BLINDNESS[kind]) @ linear(colour), 0, 1)) for colour in ramp_colours(TWO_HUES)
    ]
    for level in range(LEVELS // 2 - 8):
        assert np.linalg.norm(seen[level] - seen[-1 - level]) > 15


@pytest.mark.parametrize("anchors", [BLUE, TWO_HUES], ids=["one", "two"])
def test_digits_are_readable_on_every_level(anchors):
    weights = np.array([0.2126, 0.7152, 0.0722])
    for colour in ramp_colours(anchors):
        light, dark = sorted((weights @ linear(c) for c in (colour, rgb(ink_on(colour)))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_a_ramp_goes_through_its_anchors():
    colours = [hexadecimal(colour) for colour in ramp_colours(BLUE)]
    assert tuple(colours[:: (LEVELS - 1) // 4]) == BLUE

"""The notation of axes: splitting, turning and merging them, and what is refused."""

import numpy as np
import pytest

from attnctl.math.axes import parse_axes, rearrange

Q = np.arange(48.0).reshape(2, 3, 8)
HEADS = Q.reshape(2, 3, 2, 4).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("pattern", "sizes", "expected"),
    [
        ("b n (h d) -> b h n d", {"h": 2}, HEADS),
        ("b n (h d) -> b h n d", {"d": 4}, HEADS),
        ("... n (h d) -> ... h n d", {"h": 2}, HEADS),
        ("... (h d) -> h ... d", {"h": 2}, np.moveaxis(HEADS, 1, 0)),
        ("b n d -> (b n) d", {}, Q.reshape(6, 8)),
        ("b n d -> d 1 (n b)", {}, Q.transpose(2, 1, 0).reshape(8, 1, 6)),
        ("... -> ...", {}, Q),
    ],
)
def test_axes_are_split_turned_and_put_side_by_side(pattern, sizes, expected):
    np.testing.assert_array_equal(rearrange(Q, pattern, **sizes), expected)


def test_axes_of_one_number_come_and_go():
    wide = rearrange(Q, "b n d -> b 1 n 1 d")
    assert wide.shape == (2, 1, 3, 1, 8)
    assert rearrange(wide, "b 1 n 1 d -> b n d").tolist() == Q.tolist()
    assert parse_axes("head query 1") == (("head",), ("query",), ())


@pytest.mark.parametrize(
    ("pattern", "sizes", "message"),
    [
        ("b n (h d) -> b h n d", {}, r"an array of shape \(2, 3, 8\) is not \(b, n, h·d\)"),
        ("b n (h d) -> b h n d", {"h": 3}, r"is not \(b, n, h·d\), h=3"),
        ("b n -> n b", {}, r"is not \(b, n\)"),
        ("b 1 d -> b d", {}, r"is not \(b, 1, d\)"),
        ("b n d -> b n", {}, "name the same axes"),
        ("b n d -> b n d d", {}, "name the same axes"),
        ("b n (h d -> b n h d", {}, "parentheses do not match"),
    ],
)
def test_what_does_not_fit_is_refused(pattern, sizes, message):
    with pytest.raises(ValueError, match=message):
        rearrange(Q, pattern, **sizes)

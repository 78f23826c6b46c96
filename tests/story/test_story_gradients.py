"""What a story says of gradients, read back: each number is raised by a little, and the loss looked at."""

import re

import pytest

import attnctl
from attnctl.verbs.story import story

BY = r"(?:(raises|lowers) the loss by ([-−\d.e]+) × that increase|leaves the loss as it is)"
SLOPE = re.compile(rf"[Aa] small increase of (\w+\[[^]]*\]) {BY}")
OPTIONS = {"d_model": 4, "seed": 2, "softcap": 3.0}


def flat(text):
    return re.sub(r"\s+", " ", text)


def slope(cell, h=1e-6):
    """How the loss follows a number, from two runs with that number edited."""
    plain = attnctl.run("I love AI", backward=True, **OPTIONS)
    name, index = cell.split("[")[0], attnctl.explain(plain, cell).cell
    ends = [
        attnctl.run("I love AI", edits=[f"{cell} = {float(plain[name][index]) + sign * h!r}"], **OPTIONS)
        for sign in (1, -1)
    ]
    return ((ends[0]["output"] - ends[1]["output"]) * plain["d_output"]).sum() / (2 * h)


def signed(way, size):
    value = float((size or "0").replace("−", "-"))
    return -value if way == "lowers" else value


def test_every_slope_is_how_the_loss_moves():
    trace = attnctl.run("I love AI", backward=True, **OPTIONS)
    told = flat(str(story(trace, [name for name in trace if "_through_" not in name])))
    found = SLOPE.findall(told)
    assert {cell.split("[")[0] for cell, _, _ in found} >= {"Q", "K", "V", "X", "W_Q", "W_O", "scores"}
    for cell, way, size in found:
        assert signed(way, size) == pytest.approx(slope(cell), rel=1e-3, abs=1e-6), cell

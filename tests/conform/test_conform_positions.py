"""Positions that a target is handed: left padding, packed texts, offsets; and rules that go by them."""

from __future__ import annotations

import positional
import pytest
from positional import RIGHT_POSITIONS, WRONG_POSITIONS

import attnctl

TURNED = {"positions": "rope"}


def conform(kernel, *features, **more):
    return attnctl.conform(kernel, quick=True, dtypes=["float32"], features=features, **more)


def statuses(found):
    return {feature.feature: feature.status for feature in found.features}


def test_each_token_is_turned_by_its_position():
    found = conform(RIGHT_POSITIONS, "attention", "positions", "pairs", always=TURNED)
    assert set(statuses(found).values()) == {"passed"}, str(found)
    assert found.conventions.get("rules go by") is None


@pytest.mark.sample(3)
@pytest.mark.parametrize("read", WRONG_POSITIONS)
def test_other_positions_are_found(read):
    found = conform(WRONG_POSITIONS[read], "attention", "positions", always=TURNED)
    assert statuses(found)["attention"] == "passed"
    assert found.agrees is False, str(found)


def test_positions_in_half_precision_are_named():
    found = conform(WRONG_POSITIONS["in_half"], "positions", always=TURNED)
    assert "Positions are rounded to float16 before cos and sin are taken" in str(found)


def test_positions_without_an_effect_are_said():
    found = conform(WRONG_POSITIONS["counted_again"], "positions", always=TURNED)
    assert statuses(found)["positions"] == "ignored"


@pytest.mark.parametrize(
    ("kernel", "conventions"),
    [
        (positional.by_positions, {"rules go by": "positions"}),
        (positional.apart, {"rules go by": "positions"}),
        (
            positional.in_slots,
            {"rules go by": "positions of queries, places of keys", "positions": "(n)"},
        ),
    ],
)
def test_what_rules_go_by_is_found_out(kernel, conventions):
    found = conform(kernel, "attention", "lengths", "positions", "pairs")
    assert found.agrees is True, str(found)
    assert conventions.items() <= found.conventions.items()


def test_one_rule_of_two_that_goes_by_places_is_wrong():
    found = conform(positional.windowed_by_places, "positions")
    assert found.agrees is False


@pytest.mark.slow
def test_declared_places_are_held(tmp_path):
    claims = tmp_path / "claims.yaml"
    claims.write_text("conventions: {rules go by: 'positions of queries, places of keys'}")
    found = conform(positional.by_positions, "positions", claims=claims)
    assert found.agrees is False


def test_positions_that_nothing_goes_by_are_not_tried():
    def attention(q, k, v, positions=None):
        return positional.by_positions(q, k, v)

    (positions,) = conform(attention, "positions").features
    assert positions.status == "skipped"
    assert "say --positions rope if it turns Q and K" in positions.reason

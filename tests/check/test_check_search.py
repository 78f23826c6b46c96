"""The search for a mistake: steps are walked once, and patience ends."""

from __future__ import annotations

import numpy as np
import planted
import pytest
from check_foreign import foreign, meant

from attnctl.evidence.precision import FLOAT64
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.walk import Walk
from attnctl.inputs.plan.intended import plan_dump
from attnctl.verbs.check.check import check
from attnctl.verbs.check.parts import whole_of
from attnctl.verbs.check.search import MOST_FITTED, MOST_TRIED, Search

PLAIN = planted.Kind(n=24)


def noisy(*names):
    """Attention of which these steps are off by 1 %, everywhere."""
    draw, arrays = np.random.RandomState(0), planted.attend(PLAIN)
    return {
        name: (x * (1 + 0.01 * draw.standard_normal(x.shape))).astype(x.dtype) if name in names else x
        for name, x in arrays.items()
    }


@pytest.mark.parametrize(
    ("excused", "last"),
    [
        (None, "scores"),
        ((), "scores"),
        (("K", "scores"), "scores"),
        (("Q", "scores"), "output"),
        (("Q", "K", "scores"), "output"),
    ],
)
def test_a_walk_goes_on_where_all_that_is_wrong_is_excused(excused, last):
    record = with_precisions(Record(*plan_dump(foreign(noisy("Q", "scores")), meant(PLAIN))), FLOAT64)
    excused = None if excused is None else frozenset(excused)
    walk = Walk.over(record, record.intended, until="scores", excused=excused)
    assert next(reversed(walk.steps)) == last


def test_a_search_is_half_as_patient_after_each_step_that_nothing_explains(monkeypatch):
    allowed = []
    begin = Search.begin.__func__

    def begun(cls, *given, **how):
        allowed.append(how["patience"])
        return begin(cls, *given, **how)

    monkeypatch.setattr(Search, "begin", classmethod(begun))
    for most in ("MOST_FITTED", "MOST_TRIED"):
        monkeypatch.setattr(f"attnctl.verbs.check.search.{most}", 1_000_000)
    report = check(foreign(noisy("Q", "K", "V")), meant(PLAIN))
    assert [finding.step for finding in report.findings] == ["Q", "K", "V", "scores"]
    assert not any(finding.mistake for finding in report.findings)
    assert sorted(set(allowed), reverse=True) == [1.0, 0.5, 0.25, 0.125]


@pytest.mark.sample(2)
@pytest.mark.parametrize("patience", [1.0, 0.5])
def test_patience_is_a_part_of_what_may_be_computed(patience):
    record = with_precisions(Record(*plan_dump(foreign(noisy("Q")), meant(PLAIN))), FLOAT64)
    search = Search.begin(
        whole_of(Walk.over(record, record.intended)), "Q", [], patience=patience, plainly=False
    )
    search.fits(fitted=True)
    assert search.case.effort.most == patience * MOST_FITTED
    search.pairs()
    assert search.case.effort.most == patience * MOST_TRIED

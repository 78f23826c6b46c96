"""The lines that show each mistake of the catalogue, carried out, and what is planted for it."""

import numpy as np
import pytest

from attnctl.evidence.allowed import Strictness
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import carry_out_example
from attnctl.verbs.check.parts import whole_of
from attnctl.verbs.check.read import walk_over
from attnctl.verbs.check.readings import Reading
from attnctl.verbs.check.search import Search

SHOWN = [mistake for mistake in CATALOGUE if mistake.example]
"""Of several entries of one name the first has lines."""

PLANTED, FITTED = 1e-12, 1e-6
"""How near programs come to the numbers of an example: they round otherwise, or have a number to fit."""


def wrong_steps(run):
    """The first wrong step, by what the trace says it was meant to be, and by what the example says."""
    for meant in (None, run.meant):
        walk = walk_over(Reading(run.wrong, meant), Strictness())
        if walk.wrong:
            yield Search.begin(whole_of(walk), walk.wrong[0], [], 1.0, plainly=True).case


def nearest(mistake, case):
    """The least part of the largest number by which a plant of this entry misses what was found."""
    misses = [np.inf]
    for plant in mistake.at(case):
        value = plant.case.value(anyway=True)
        if value is None or not np.array_equal(np.isfinite(value), np.isfinite(case.found)):
            continue
        finite = np.isfinite(value)
        largest = np.abs(case.found[finite]).max(initial=1e-9)
        misses.append(np.abs(value - case.found)[finite].max(initial=0) / largest)
    return min(misses)


@np.errstate(all="ignore")
@pytest.mark.parametrize("shown", SHOWN, ids=[mistake.name for mistake in SHOWN])
def test_the_lines_of_an_example_change_what_was_meant_to_what_its_entry_plants(shown):
    """Numbers of a step, or which steps there are; and a plant has the numbers of the first wrong one."""
    run = carry_out_example(shown)
    same = [
        name
        for name, right in run.right.items()
        if name in run.wrong and np.array_equal(run.wrong[name], right, equal_nan=True)
    ]
    assert {*same} != {*run.right, *run.wrong}

    if not shown.exact:  # a plant says only how far off numbers may be
        return
    entries = [entry for entry in CATALOGUE if entry.name == shown.name]
    misses = [(nearest(entry, case), entry.fitted) for case in wrong_steps(run) for entry in entries]
    assert any(miss <= (FITTED if fitted else PLANTED) for miss, fitted in misses), misses

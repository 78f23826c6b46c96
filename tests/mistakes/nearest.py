"""How near the programs that are planted for an entry of the catalogue come to what an example makes."""

import numpy as np

from attnctl.evidence.allowed import Strictness
from attnctl.verbs.check.parts import whole_of
from attnctl.verbs.check.read import walk_over
from attnctl.verbs.check.readings import Reading
from attnctl.verbs.check.search import Search

PLANTED, FITTED = 1e-12, 1e-6
"""How near programs come to the numbers of an example: they round otherwise, or have a number to fit."""


def wrong_steps(run):
    """The first wrong step, by what the trace says it was meant to be, and by what the example says."""
    for meant in (None, run.meant):
        walk = walk_over(Reading(run.wrong, meant), Strictness())
        if walk.wrong:
            yield Search.begin(whole_of(walk), walk.wrong[0], [], 1.0, plainly=True).case


def miss_of(plant):
    """The part of the largest number by which a plant misses what was found; ∞ where it gives none."""
    value, found = plant.case.value(anyway=True), plant.case.found
    if value is None:
        return np.inf
    finite = np.isfinite(value) & np.isfinite(found)
    if not np.array_equal(value[~finite], found[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(found[finite]).max(initial=1e-9)
    return np.abs(value - found)[finite].max(initial=0) / largest


def comes_near(run, entries, detail=None):
    """Whether a plant of these entries, of this detail if one is said, has the numbers that are wrong."""
    for case in wrong_steps(run):
        for entry in entries:
            plants = [plant for plant in entry.at(case) if detail in (None, plant.detail)]
            if any(miss_of(plant) <= (FITTED if entry.fitted else PLANTED) for plant in plants):
                return True
    return False

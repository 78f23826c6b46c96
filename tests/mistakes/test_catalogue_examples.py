"""The lines that show each mistake of the catalogue, carried out, and what is planted for it."""

import numpy as np
import pytest
from nearest import comes_near

from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import carry_out_example

SHOWN = [mistake for mistake in CATALOGUE if mistake.example]
"""Of several entries of one name the first has lines."""


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

    if shown.exact:  # a plant of another says only how far off numbers may be
        assert comes_near(run, [entry for entry in CATALOGUE if entry.name == shown.name])

"""The lines that show each mistake of the catalogue, carried out."""

import numpy as np

from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import carry_out_example


def test_the_lines_of_every_example_change_what_was_meant():
    """Numbers of a step, or which steps there are. Of several entries of one name the first has lines."""
    for mistake in [each for each in CATALOGUE if each.example]:
        run = carry_out_example(mistake)
        same = [
            name
            for name, right in run.right.items()
            if name in run.wrong and np.array_equal(run.wrong[name], right, equal_nan=True)
        ]
        assert {*same} != {*run.right, *run.wrong}, mistake.name

"""What a processor's own order of summation changes in an output: the size of rounding errors."""

import re

ROUNDING = re.compile(r" *\d(?:\.\d)?e-1[3-9]\b")


def on_any_processor(text):
    """The text with each number of the size of rounding in float64 as ≈."""
    return ROUNDING.sub(" ≈", text)

"""Comparing two traces: laid side by side, number by number, with the reason why outputs differ."""

from attnctl.compare.difference import Difference, StepDifference, diff
from attnctl.compare.elements import Tolerance
from attnctl.compare.split import Change, Part

__all__ = ["Change", "Difference", "Part", "StepDifference", "Tolerance", "diff"]

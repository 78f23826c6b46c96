"""Comparing two traces: laid side by side, number by number, with the reason why outputs differ."""

from attnctl.evidence.allowed import Tolerance
from attnctl.verbs.diff.difference import Difference, StepDifference, diff, pair_traces
from attnctl.verbs.diff.split import Change, PartShare

__all__ = ["Change", "Difference", "PartShare", "StepDifference", "Tolerance", "diff", "pair_traces"]

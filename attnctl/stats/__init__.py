"""What each head of attention does, in numbers: per dump, over all of them, and through layers."""

from attnctl.stats.measure import MEASURES, measured
from attnctl.stats.report import DumpStats, HeadStats, Largest, Report, Tally, merge
from attnctl.stats.rollout import rollout

__all__ = [
    "MEASURES",
    "DumpStats",
    "HeadStats",
    "Largest",
    "Report",
    "Tally",
    "measured",
    "merge",
    "rollout",
]

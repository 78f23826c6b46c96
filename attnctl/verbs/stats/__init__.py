"""Measure the heads of attention: per dump, over all of them, and through layers."""

from attnctl.verbs.stats.measure import MEASURES, measure_heads, rollout
from attnctl.verbs.stats.report import DumpStats, HeadStats, Largest, StatsReport, Tally

__all__ = [
    "MEASURES",
    "DumpStats",
    "HeadStats",
    "Largest",
    "StatsReport",
    "Tally",
    "measure_heads",
    "rollout",
]

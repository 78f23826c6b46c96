"""Walking through a trace: one cell at a time, back to where its number came from."""

from attnctl.verbs.explore.remake import begin_walk
from attnctl.verbs.explore.source import OfArrays, OfFile, OfModel, OfSentence, TracedLayer, TraceSource
from attnctl.verbs.explore.walk import ExplorerState, Place

__all__ = [
    "ExplorerState",
    "OfArrays",
    "OfFile",
    "OfModel",
    "OfSentence",
    "Place",
    "TraceSource",
    "TracedLayer",
    "begin_walk",
]

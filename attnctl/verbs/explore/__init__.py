"""Walking through a trace: one cell at a time, back to where its number came from."""

from attnctl.verbs.explore.remake import begin_walk
from attnctl.verbs.explore.walk import ExplorerState, Place, TracedLayer

__all__ = ["ExplorerState", "Place", "TracedLayer", "begin_walk"]

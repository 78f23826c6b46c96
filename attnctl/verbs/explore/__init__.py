"""Walking through a trace: one cell at a time, back to where its number came from."""

from attnctl.verbs.explore.layer import Layer
from attnctl.verbs.explore.remake import begin_walk
from attnctl.verbs.explore.source import OfArrays, OfFile, OfModel, OfSentence, Source
from attnctl.verbs.explore.walk import Place, Walk

__all__ = ["Layer", "OfArrays", "OfFile", "OfModel", "OfSentence", "Place", "Source", "Walk", "begin_walk"]

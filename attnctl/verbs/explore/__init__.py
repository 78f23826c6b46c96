"""Walking through a trace: one cell at a time, back to where its number came from."""

from attnctl.verbs.explore.remake import begin_walk as begin_walk

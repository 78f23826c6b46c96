"""What is said of mistakes, whose pages stand in `attnctl.verbs.check.about`."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="mistakes",
    section="Compare",
    place=20,
    line="List the known mistakes, or explain one.",
    trial="no-scale",
)

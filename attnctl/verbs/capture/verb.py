"""What is said of capture."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="capture",
    section="Build",
    place=40,
    line="Run a program and record each call of attention in it.",
    function="attnctl.api:capture",
)

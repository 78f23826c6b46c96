"""What is said of learn."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="learn",
    section="Learn",
    place=10,
    line="Take a lesson: predict a number, then see it revealed.",
    trial="--list",
)

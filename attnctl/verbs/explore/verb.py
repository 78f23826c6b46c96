"""What is said of explore."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="explore",
    section="Look",
    place=40,
    line="Walk through every step in the terminal.",
    daily={
        "explore": "heads causal seed config edits model layer trace name precision",
    },
    sources={
        "explore": "{}",
    },
)

"""What is said of show, which has no room of its own: `attnctl.drawing` draws a trace."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="show",
    section="Look",
    place=20,
    line="Render a dump again, whole or in part.",
    daily={
        "show": "trace step head precision brief full heat story json output",
    },
    sources={
        "show": "{} --json",
    },
    trial="a.json",
)

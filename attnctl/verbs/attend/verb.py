"""What is said of attend, which has no room of its own: it is a source of arrays, carried out and shown."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="attend",
    section="Build",
    place=10,
    line="Attend over arrays: Q K V, or X and weights.",
    daily={
        "attend": (
            "name layout heads kv_heads causal window scale config backward step head json output cost"
        ),
    },
    function="attnctl.api:attend",
    sources={
        "attend": "{} --json",
    },
    trial="a.json",
)

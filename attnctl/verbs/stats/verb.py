"""What is said of stats."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import OF_HEADS

VERB = Verb(
    name="stats",
    section="Look",
    place=50,
    line="Measure each head: entropy, distance, what it looks at.",
    daily={
        "stats": "trace name heads causal config model rollout precision heat json output",
    },
    formats={
        "stats": OF_HEADS,
    },
    function="attnctl.api:stats",
    sources={
        "stats": "{} --json",
    },
    trial="a.json",
)

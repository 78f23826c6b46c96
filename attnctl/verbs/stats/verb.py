"""What is said of stats."""

from __future__ import annotations

from attnctl.base.format import Format
from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page, pictures_by

VERB = Verb(
    name="stats",
    section="Look",
    place=50,
    line="Measure each head: entropy, distance, what it looks at.",
    daily={
        "stats": "trace name heads causal config model file shard rollout precision heat json output",
    },
    formats={
        "stats": (
            FOUND_JSON,
            Format("csv", ".csv", "attnctl.verbs.stats.view:write_csv", text=True),
            *pictures_by("attnctl.verbs.stats.picture"),
            page("attnctl.pages.tables:write_stats"),
        ),
    },
    views={
        "CorpusPart": "attnctl.verbs.stats.view:part_lines",
    },
    function="attnctl.api:stats",
    sources={
        "stats": "{} --json",
    },
    trial="a.json",
)

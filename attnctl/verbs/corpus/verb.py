"""What is said of corpus."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import OF_HEADS

VERB = Verb(
    name="corpus",
    section="Look",
    place=55,
    line="Measure heads over a corpus of any size, in parts that merge.",
    daily={
        "corpus run": "model heads causal config shard on pairs precision heat json output",
    },
    formats={
        "corpus run": OF_HEADS,
        "corpus merge": OF_HEADS,
    },
    views={
        "CorpusPart": "attnctl.verbs.stats.view:part_lines",
    },
    function="attnctl.api:corpus",
)

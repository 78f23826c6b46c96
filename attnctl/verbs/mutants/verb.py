"""What is said of mutants."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON

VERB = Verb(
    name="mutants",
    section="Build",
    place=30,
    line="Say which wrong kernels a tolerance, or your own test, would miss.",
    daily={
        "mutants": "rtol atol ratio cosine dtype shape draw backward beside map library jobs json output",
    },
    formats={
        "mutants": (FOUND_JSON,),
    },
    views={
        "Score": "attnctl.verbs.mutants.view:score_lines",
        "Survey": "attnctl.verbs.mutants.view:survey_lines",
    },
)

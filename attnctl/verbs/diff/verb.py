"""What is said of diff."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page, pictures_by

VERB = Verb(
    name="diff",
    section="Compare",
    place=30,
    line="Compare two dumps: where they part, by how much, and why.",
    daily={
        "diff": "model ids step rtol atol by_position trace full quiet json output",
    },
    formats={
        "diff": (
            FOUND_JSON,
            *pictures_by("attnctl.verbs.diff.picture"),
            page("attnctl.pages.found:write_diff"),
        ),
    },
    views={
        "Difference": "attnctl.verbs.diff.view:difference_lines",
    },
    function="attnctl.api:diff",
    sources={
        "diff": "{} whole.json --json",
    },
    trial="a.json a.json",
)

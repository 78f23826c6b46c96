"""What is said of check."""

from __future__ import annotations

from attnctl.base.format import Format
from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page, pictures_by

VERB = Verb(
    name="check",
    section="Compare",
    place=10,
    line="Recompute a dump or a program; name the first wrong step and why.",
    daily={
        "check": (
            "about heads causal scale config name model layer "
            "decimals rtol watch trace full quiet json output"
        ),
    },
    formats={
        "check": (
            FOUND_JSON,
            Format("sarif", ".sarif", "attnctl.verbs.check.sarif:write_sarif"),
            *pictures_by("attnctl.pages.code_picture"),
            page("attnctl.pages.found:write_check"),
        ),
    },
    views={
        "Report": "attnctl.verbs.check.view:report_lines",
    },
    function="attnctl.api:check",
    sources={
        "check": "{} --json",
    },
    trial="a.json",
)

"""What is said of conform."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page

VERB = Verb(
    name="conform",
    section="Build",
    place=20,
    line="Test an attention function on a suite of cases.",
    daily={
        "conform": (
            "like map returns layout heads causal scale quick "
            "feature dtype claims timeout replay junit json output"
        ),
    },
    formats={
        "conform": (FOUND_JSON, page("attnctl.pages.found:write_conform")),
    },
    views={
        "Conformance": "attnctl.verbs.conform.report:list_lines",
    },
    function="attnctl.api:conform",
)

"""What is said of explain."""

from __future__ import annotations

from attnctl.base.format import Format
from attnctl.base.verb import Verb
from attnctl.store.formats import page

GIF = "attnctl.drawing.show.cell:require_gif"

VERB = Verb(
    name="explain",
    section="Look",
    place=30,
    line="Show the arithmetic behind one cell.",
    daily={
        "explain": "depth precision full json output heads causal seed config trace name",
    },
    formats={
        "explain": (
            Format("json", ".json", "attnctl.verbs.explain.view:write_json"),
            Format("svg", ".svg", "attnctl.verbs.explain.picture:write_svg", text=True),
            Format("gif", ".gif", "attnctl.verbs.explain.picture:write_gif", binary=True, needs=GIF),
            page("attnctl.pages.found:write_explain"),
            Format("latex", ".tex", "attnctl.verbs.explain.written:write_latex", text=True),
            Format("typst", ".typ", "attnctl.verbs.explain.written:write_typst", text=True),
            Format("markdown", ".md", "attnctl.verbs.explain.written:write_markdown", text=True),
        ),
    },
    function="attnctl.api:explain",
    sources={
        "explain": "{} 'attention_weights[0,0,0]' --json",
    },
    trial="a.json 'attention_weights[0,0,0]'",
)

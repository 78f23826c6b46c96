"""What is said of effect."""

from __future__ import annotations

from attnctl.base.format import Format
from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page, pictures_by

VERB = Verb(
    name="effect",
    section="Look",
    place=70,
    line="Say what each head, layer or position does to the next token.",
    daily={
        "effect": "model between by at ids patch mean prompts direct json output",
    },
    formats={
        "effect": (
            FOUND_JSON,
            Format("csv", ".csv", "attnctl.verbs.effect.view:write_csv", text=True),
            *pictures_by("attnctl.verbs.effect.view"),
            page("attnctl.pages.found:write_effect"),
        ),
    },
    views={
        "Effects": "attnctl.verbs.effect.view:effect_lines",
        "MeanEffects": "attnctl.verbs.effect.view:mean_lines",
        "PathEffects": "attnctl.verbs.effect.view:path_lines",
    },
    function="attnctl.api:effect",
)

"""What is said of model, whose room is `attnctl.verbs.models`."""

from __future__ import annotations

from attnctl.base.verb import Verb
from attnctl.store.formats import FOUND_JSON, page, pictures_by

VERB = Verb(
    name="model",
    section="Look",
    place=60,
    line="Describe a trained model, layer by layer.",
    formats={
        "model": (FOUND_JSON, page("attnctl.pages.tables:write_model")),
        "model --lens": (FOUND_JSON, *pictures_by("attnctl.verbs.models.next")),
        "model --follow": (
            FOUND_JSON,
            *pictures_by("attnctl.verbs.models.followed"),
            page("attnctl.pages.models:write_followed"),
        ),
    },
    views={
        "Followed": "attnctl.verbs.models.follow:follow_lines",
        "Lens": "attnctl.verbs.models.next:lens_lines",
    },
)

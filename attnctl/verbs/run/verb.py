"""What is said of run, which has no room of its own: it is a source, carried out and shown."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="run",
    section="Look",
    place=10,
    line="Tokenize a sentence, attend, show every step.",
    daily={
        "run": (
            "heads causal window positions d_model seed config file model "
            "layer next backward edits step head brief story json output"
        ),
    },
    views={
        "Story": "attnctl.verbs.story.view:story_lines",
    },
    function="attnctl.api:run",
    sources={
        "run": "{} --json",
    },
    trial="'I love AI' --heads 2",
)

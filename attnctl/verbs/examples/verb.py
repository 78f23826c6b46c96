"""What is said of examples, which come with attnctl."""

from __future__ import annotations

from attnctl.base.verb import Verb

VERB = Verb(
    name="examples",
    section="Files",
    place=20,
    line="List the configs that are installed, or print one.",
    trial="i-love-ai",
)

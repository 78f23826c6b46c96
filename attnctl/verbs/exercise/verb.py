"""What is said of exercise."""

from __future__ import annotations

from attnctl.base.format import Format
from attnctl.base.verb import Verb
from attnctl.store.formats import page, workbook

VERB = Verb(
    name="exercise",
    section="Learn",
    place=20,
    line="Make exercises, and grade a class.",
    daily={
        "exercise make": "blank seed_from students decimals heads causal seed output",
        "exercise grade": "config blank decimals format json output",
    },
    formats={
        "exercise make": (
            Format("json", ".json", "attnctl.verbs.exercise.sheet:write_json", single=True),
            page("attnctl.verbs.exercise.sheet:write_page"),
            workbook("attnctl.verbs.exercise.workbook"),
            Format("markdown", ".md", "attnctl.verbs.exercise.sheet:write_markdown", text=True),
        ),
        "exercise grade": (
            Format("json", ".json", "attnctl.verbs.exercise.gradebook:write_json"),
            Format("csv", ".csv", "attnctl.verbs.exercise.gradebook:write_csv", text=True),
            page("attnctl.pages.tables:write_grades"),
        ),
    },
    sources={
        "exercise make": "{} --blank scores -o task.json",
    },
    trial="make a.json --blank scores",
)

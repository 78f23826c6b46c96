"""The variables of a program that runs, as a notebook has them: their numbers tell what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnctl.sources.program import RecordedProgram
from attnctl.sources.program.instrument import Site
from attnctl.sources.program.record import Event, is_array, is_nested, numbers_of
from attnctl.sources.program.run import SPACING, Recording


def program_of_variables(variables: Mapping[str, Any], asked: Mapping[str, Any]) -> RecordedProgram:
    """The attentions among arrays, in the order in which they were assigned."""
    sites: list[Site] = []
    events: dict[int, Event] = {}
    for name, value in variables.items():
        if name.startswith("_"):
            continue
        if not (is_array(value) or is_nested(value)):
            continue
        site = len(sites)
        sites.append(
            Site(
                file="",
                line=0,
                column=0,
                end_line=0,
                end_column=0,
                what=f"name {name}",
                parts=(),
                words=(name,),
                target=name,
            )
        )
        numbers = numbers_of(value)
        if numbers is not None:
            events[SPACING * (site + 1)] = Event(
                site=site, value=numbers, parents=(), callers=(), names=[name]
            )

    recording = Recording(
        path="",
        events=events,
        sites=sites,
        files={},
        ending="",
        lost=0,
        processes=0,
        questions=0,
        variables={},
        printed="",
    )
    return RecordedProgram(recording, dict(asked))

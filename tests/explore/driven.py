"""Walks to look at, and the app driven as a person would, without a terminal."""

import asyncio
import re
from pathlib import Path

from attnctl.inputs.config.fields import FIELDS
from attnctl.sources import open_source
from attnctl.sources.sentence import Arguments
from attnctl.verbs.explore.remake import begin_walk

VARIANTS = Path(__file__).parent.parent.parent / "samples" / "variants"
DUMPS = sorted(VARIANTS.glob("*.json"))


def of_sentence(sentence="I love AI", config=None, **options):
    """The walk through the run of a sentence."""
    if options.get("positions"):
        options["positions"] = FIELDS["positions"].reader(options["positions"])
    return begin_walk(open_source(sentence, Arguments(config, options)))


def of_file(path, **read_as):
    """The walk through a dump."""
    return begin_walk(open_source(str(path), Arguments(**read_as)))


def drive(walk, act, size=(80, 24), **options):
    """Start the app on a walk, do `act(app, pilot)`, and give back the app as it was at the end."""
    from attnctl.verbs.explore.app import Explorer

    app = Explorer(walk, **options)

    async def run():
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await act(app, pilot)

    asyncio.run(run())
    return app


def screen_text(app):
    """What the screen shows, a line of text a row."""
    update = app.screen._compositor.render_strips()
    return [strip.text.rstrip() for strip in update]


def shown(app):
    """What the screen shows, as one text."""
    return "\n".join(screen_text(app))


def plain(lines):
    """Lines of parts or of spans as text."""
    return ["".join(part[0] for part in line) for line in lines]


def no_escapes(text):
    """Text without what a terminal reads as styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)

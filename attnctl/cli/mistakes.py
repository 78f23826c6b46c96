"""attnctl mistakes: the catalogue that check, conform and the lessons know."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from attnctl.cli.options import argument, command, excludes, option
from attnctl.cli.output import progress
from attnctl.drawing.screen.listing import list_meanings
from attnctl.drawing.screen.output import print_view, say
from attnctl.formats import print_json
from attnctl.verbs.check.about import list_mistakes, mistake_page, page_lines


@command("attnctl mistakes", "attnctl mistakes softmax-over-queries", "attnctl mistakes -o mistakes/")
def mistakes(
    *,
    name: str | None = argument("The mistake to explain.", "NAME"),
    json: bool = option("Print it as JSON."),
    output: str | None = option(
        "Write the whole catalogue to a folder: a page for each mistake, and a list of them.",
        "-o",
        "--output",
        metavar="DIR",
        writes=True,
        terms=[excludes("name json", "the pages are of all mistakes; leave it out")],
    ),
) -> None:
    """List the known mistakes, or explain one: why people make it, the fix, an example.

    attnctl check looks for these where a dump is wrong, attnctl conform where a kernel is.
    """
    if output is not None:
        from attnctl.pages.tables import write_pages

        with progress("mistakes") as moved:
            index = write_pages(Path(output), moved)
        say(f"{index} lists them.")
    elif name is not None:
        explain_mistake(name, json=json)
    elif json:
        print_json(list_mistakes(), indent=1)
    else:
        print_view(partial(list_meanings, list_mistakes()))


def explain_mistake(name: str, *, json: bool) -> None:
    """Print the page on a mistake; `check --about` is the same. Raises AttnError where there is none."""
    page = mistake_page(name)
    if json:
        print_json(page.to_dict(), indent=1)
    else:
        print_view(partial(page_lines, page))

"""Traces and findings as pages: words above the matrices, cells marked; and as notebooks show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import IO, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text
from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show import View
from attnctl.inputs.plan.intended import under_our_names
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.models.run import ModelInput, run_model
from attnctl.pages import Marks, PageFinding, asset, draw_trace, pieces
from attnctl.pages.describe import ROOM
from attnctl.pages.html import html_paragraphs, html_table, text
from attnctl.pages.tables import file_name
from attnctl.record import Trace, is_unfinished
from attnctl.record.linear import ApartError
from attnctl.store.source import read_one
from attnctl.verbs.check.check import check
from attnctl.verbs.check.report import CheckedTrace, Report
from attnctl.verbs.check.view import lines_of_checked, sentences
from attnctl.verbs.conform.report import Conformance, causes, summarise
from attnctl.verbs.diff import Difference, differing
from attnctl.verbs.diff.view import STEP_TITLES, apart, settings_apart, step_row, sum_words, verdict
from attnctl.verbs.effect import Effects
from attnctl.verbs.effect.view import effect_lines, findings, looking_at
from attnctl.verbs.explain import Explanation
from attnctl.verbs.explain.view import Question
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.picture import stats_picture

EXPECTED = {"own": "found", "other": "expected"}
A_AND_B = {"own": "A", "other": "B", "delta": "B − A"}
"""What the numbers of a trace are called on its page, and those beside them."""

MOST_CASES = 50  # failing cases of a target that its page shows

NEXT = '<p class="command" id="next" hidden>Why: <code></code></p>'
"""The place of the command that explains the number at which a page opens: its script knows the file."""

VERDICTS = {True: "conforms", False: "does not conform", None: "was not held to anything"}
"""What the heading says of a target."""


def write_effect(found: Sequence[Effects], stream: IO[bytes]) -> None:
    """The map of a prompt's heads, coloured by what each does, open at the one that does most."""
    effects, screen = found[0], Screen()
    said, (layer, head) = effects.prompt, effects.strongest
    prompt = said.get("sentence")
    source = ModelInput(prompt, tuple(said["ids"]) if prompt is None else None)
    traces, view = list[Trace](), View()
    with suppress(AttnError):  # the model has gone since
        for trace, row in zip(
            run_model(said["model"], source, keep=[WEIGHTS]), effects.effect, strict=True
        ):
            traces.append(replace(trace, header=trace.header | {"effect": row.tolist()}))
        key = int(traces[layer][WEIGHTS][head, said["at"]].argmax())
        view = View(cell=(WEIGHTS, (head, said["at"], key)))
    first, *_, title = findings(effects)
    command = text(shell_line(looking_at(effects, layer, head)))
    opening = (
        f"<p>{text(first)}</p>" + f'<p class="command"><code>{command}</code></p>' * effects.is_changed
    )
    words = "\n".join(plain_text(effect_lines(effects, screen)))
    finding = PageFinding(title, words, [{}] * len(traces), first=layer, opening=opening)
    stream.writelines(pieces(traces, finding, view))


def write_explain(found: Sequence[Question], stream: IO[bytes]) -> None:
    """A page of the trace, open at the first of these cells."""
    explainer, address, depth = found[0]
    root = explainer.root(address, depth)
    stream.writelines(pieces([explainer.trace], view=View(cell=(root.step, root.cell))))


def conform_pieces(found: Sequence[Conformance]) -> Iterator[bytes]:
    """The page of targets: what was found, and each failing case that was saved, what is wrong marked."""
    saved = dict.fromkeys(
        (feature.failure.saved, f"{feature.feature}, {feature.dtype}")
        for one in found
        for feature in one.features
        if feature.failure and feature.failure.saved
    )
    cases = [(name, *failing_case(path)) for path, name in list(saved)[:MOST_CASES]]
    words = "\n\n".join(map(str, found))
    if len(saved) > MOST_CASES:
        words += f"\n\nOf {len(saved)} failing cases the first {MOST_CASES} are here."
    finding = PageFinding(
        "; ".join(f"{file_name(one.target)} {VERDICTS[one.agrees]}" for one in found),
        words,
        [marks for _, _, marks in cases],
        [name for name, _, _ in cases],
        [EXPECTED] * len(cases),
        "".join(part for one in found for part in open_conform(one)),
    )
    yield from pieces([trace for _, trace, _ in cases], finding)


def open_conform(found: Conformance) -> Iterator[str]:
    """The verdict, and each cause: what it spoils, the fix, a case, and the command that runs it again."""
    yield f"<p>{text(summarise(found))}</p>"
    for title, said, case, replay in causes(found):
        yield f"<p><b>{text(title)}</b><br>{text(said)}</p>" + html_paragraphs([case])
        yield f'<p class="command"><code>{text(replay)}</code></p>' * bool(replay)


def failing_case(path: str) -> tuple[Trace, Marks]:
    """A case that was saved, and its wrong numbers; none are marked where the target gave no array."""
    trace = read_one(path)
    try:
        report = check(under_our_names(trace))
    except AttnError:
        return trace, {}
    return with_steps_between(report), report.wrong_cells()


def check_pieces(found: Sequence[Report | CheckedTrace]) -> Iterator[bytes]:
    several = [checked for checked in found if isinstance(checked, CheckedTrace)]
    reports = [checked.report if isinstance(checked, CheckedTrace) else checked for checked in found]
    judged = [report for report in reports if report]
    marks = [report.wrong_cells() for report in judged]
    told = plain_text(lines_of_checked(several, Screen())) if several else map(str, judged)
    words = ("\n" if several else "\n\n").join(told)
    opening = "".join(part for report in judged for part in open_check(report))
    first = words.partition("\n")[0]
    page = PageFinding(f"check: {first}", words, marks, (), [EXPECTED] * len(judged), opening)
    yield from pieces([with_steps_between(report) for report in judged], page)


def open_check(report: Report) -> Iterator[str]:
    """Each wrong step, and the mistake that explains it."""
    steps = [None, *(finding.step for finding in report.findings)]
    for finding, before in zip(report.findings, steps, strict=False):
        said = list(sentences(report, finding, before, Screen()))[before is None :]
        yield f"<p>{' '.join(text(sentence) for sentence, _ in said)}</p>"
    yield NEXT * bool(report.findings)


def with_steps_between(report: Report) -> Trace:
    """The trace, and the steps between that it does not record, as its check computed them.

    So the arithmetic of what was expected is there, on the page and for every verb that reads it.
    """
    trace, walk = report.trace, report.walk
    known = {name: walk.values.get(name) for name in report.steps if name not in trace}
    between = {name: value.value for name, value in known.items() if value is not None}
    large = sum(array.nbytes for array in between.values()) > ROOM
    if not between or large or is_unfinished(trace) or trace.edited:
        return trace
    arrays = {**trace, **between}
    steps = {step.name: step for step in walk.derivation if step.name in arrays} | {
        name: step for name, step in trace.steps.items() if name not in walk.derivation
    }
    said = f"Not recorded: {all_of(between)}; computed here from what was recorded."
    notes = [*trace.header.get("notes", ()), said]
    return Trace(steps, arrays, trace.header | {"notes": notes})


def diff_pieces(found: Sequence[Difference]) -> Iterator[bytes]:
    """The page of differences: A and B of each, in both what differs marked."""
    traces: list[Trace] = []
    names: list[str] = []
    marks: list[Marks] = []
    for number, difference in enumerate(found):
        assert difference.alignment is not None
        pair = f" {number}" if len(found) > 1 else ""
        for side in "AB":
            traces.append(difference.alignment.a if side == "A" else difference.alignment.b)
            names.append(f"{side}{pair}")
            marks.append(dict(difference_marks(difference, side)))
    words = "".join(f"{report}\n" for report in found)
    panels = [A_AND_B, A_AND_B | {"own": "B", "other": "A"}] * len(found)
    first = next((difference for difference in found if not difference.same), found[0])
    opening = "".join(open_diff(first))
    yield from pieces(traces, PageFinding(verdict(first), words, marks, names, panels, opening))


def open_diff(found: Difference) -> Iterator[str]:
    """What differs in the settings, where the two part and by how much, and why the outputs differ."""
    screen = Screen()
    settings = [(path, *texts) for path, texts in settings_apart(found, screen)]
    apart_at = [name for name, step in found.steps.items() if not step.same]
    ends = dict.fromkeys([*apart_at[:1], *apart_at[-1:]])
    rows = [[cell for cell, _ in step_row(name, found.steps[name], screen)] for name in ends]
    yield '<div class="tables">'
    if settings:
        yield html_table("What differs in the settings", ["", "A", "B"], settings, words=True)
    if rows:
        yield html_table("Where the numbers part, and where they end", STEP_TITLES, rows)
    yield "</div>"
    yield html_paragraphs(plain_text(apart(found, screen)))
    if found.split and found.split[-1].norm:
        yield f"<p>{text(' '.join(sum_words(found.split[-1])))}</p>"
    yield NEXT * bool(rows)


def difference_marks(found: Difference, side: str) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Mark the cells where each step differs to one side, if the two stand beside each other."""
    alignment = found.alignment
    assert alignment is not None
    for name in found.steps:
        with suppress(ApartError):
            sides = alignment.sides(name)
            whole = (alignment.a if side == "A" else alignment.b)[name]
            places = np.ix_(*(pairing.a if side == "A" else pairing.b for pairing in sides.pairings))
            index: tuple[Any, ...] = (*(0,) * (whole.ndim - sides.a.ndim), *places)
            wrong, numbers = np.zeros(whole.shape, bool), np.full(whole.shape, np.nan)
            wrong[index] = differing(sides.a, sides.b, found.tolerance)
            numbers[index] = sides.b if side == "A" else sides.a
            yield name, (wrong, numbers)


def page_writer(
    pieces_of: Callable[[Sequence[Any]], Iterator[bytes]],
) -> Callable[[Sequence[Any], IO[bytes]], None]:
    return lambda found, stream: stream.writelines(pieces_of(found))


write_check = page_writer(check_pieces)
write_diff = page_writer(diff_pieces)
write_conform = page_writer(conform_pieces)


# --- in a notebook: a page in a frame ---

HEIGHT = 680  # of the frame, in pixels: the first screen of a page, which scrolls inside it

THEME = asset("theme.html").removesuffix("\n")
"""Tells the frame whether the notebook is dark: its own theme, which need not be the system's."""


def bundle(shown: Any) -> dict[str, str]:
    """Return the two forms a notebook chooses from: the page in a frame, and text.

    The frame lets the page run its own script and nothing else: no network, no cookies, no access
    to the notebook. Inside its tag stands a picture for where frames are taken out. Statistics are
    drawn.
    """
    if isinstance(shown, Explanation):
        return {"text/plain": str(shown)}
    if isinstance(shown, DumpStats):
        return {"image/svg+xml": stats_picture([StatsReport((shown,))]).svg, "text/plain": repr(shown)}
    page, words, traces = parts(shown)
    source, picture = b"".join(page()).decode(), "".join(map(draw_trace, traces[:1]))
    frame = (
        f'<iframe title="attnctl" sandbox="allow-scripts allow-downloads" srcdoc="{escape(source)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0">{picture}</iframe>'
    )
    return {"text/html": frame + THEME, "text/plain": words}


def parts(shown: Any) -> tuple[Callable[[], Iterator[bytes]], str, Sequence[Trace]]:
    """The page of something, its text, and the traces that a picture of it shows."""
    if isinstance(shown, Report):
        return lambda: check_pieces([shown]), str(shown), [shown.trace]
    if isinstance(shown, Conformance):
        return lambda: conform_pieces([shown]), str(shown), []
    if isinstance(shown, Difference):
        assert shown.alignment is not None
        return lambda: diff_pieces([shown]), f"{shown}\n", [shown.alignment.a]
    traces = [shown] if isinstance(shown, Trace) else shown
    return lambda: pieces(traces), repr(shown), traces

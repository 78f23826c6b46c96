"""Traces and findings as pages: words above the matrices, cells marked; and as notebooks show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from itertools import chain
from typing import IO, Any, NamedTuple

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
from attnctl.pages import Marks, PageFinding, asset, draw_trace, image, pieces
from attnctl.pages.cards import NEXT, cell_address, heading_of, names_of_files, open_check
from attnctl.pages.describe import ROOM
from attnctl.pages.html import html_paragraphs, html_table, scrolled, text
from attnctl.pages.models import write_models
from attnctl.pages.tables import file_name
from attnctl.record import Trace, is_unfinished
from attnctl.record.linear import ApartError
from attnctl.store.source import read_one
from attnctl.verbs.check.check import check
from attnctl.verbs.check.report import CheckedTrace, Report
from attnctl.verbs.check.view import format_number, lines_of_checked, place_text
from attnctl.verbs.conform.report import Conformance, SpoiltFeatures, causes, summarise
from attnctl.verbs.diff import Difference, differing
from attnctl.verbs.diff.view import STEP_TITLES, apart, settings_apart, step_row, sum_words, verdict
from attnctl.verbs.effect import Effects
from attnctl.verbs.effect.parts import HEAD
from attnctl.verbs.effect.view import effect_lines, effect_picture, findings, looking_at
from attnctl.verbs.explain import Explanation
from attnctl.verbs.explain.view import Question
from attnctl.verbs.models.compare import ModelsDiff
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.picture import stats_picture

EXPECTED = {"own": "found", "other": "expected"}
A_AND_B = {"own": "A", "other": "B", "delta": "B − A"}
"""What the numbers of a trace are called on its page, and those beside them."""

EFFECT_PICTURE = "what each head does to the next token"

MOST_CASES = 50  # failing cases of a target that its page shows

VERDICTS = {True: "conforms", False: "does not conform", None: "was not held to anything"}
"""What the heading says of a target."""


def write_effect(found: Sequence[Effects], stream: IO[bytes]) -> None:
    """The map of a prompt's heads, coloured by what each does, open at the one that does most."""
    effects = found[0]
    if not isinstance(effects, Effects) or effects.by != HEAD:
        raise AttnError("a page is of the heads of one prompt; leave --by or --prompts out, or give .svg")
    layer, head = effects.strongest
    traces: list[Trace] = []
    view = View()
    with suppress(AttnError):  # the model has gone since
        traces.extend(traces_of_effects(effects))
        place = effects.prompt["at"]
        key = int(traces[layer][WEIGHTS][head, place].argmax())
        view = View(cell=(WEIGHTS, (head, place, key)))

    first, *_, title = findings(effects)
    opening = ""
    if effects.is_changed:
        opening += command_line(shell_line(looking_at(effects, layer, head)))
    opening += f"<p>{text(first)}</p>"
    with suppress(AttnError):  # too large for one
        opening += scrolled(image(effect_picture(found).svg, title), EFFECT_PICTURE)
    finding = PageFinding(
        title=title,
        text="\n".join(plain_text(effect_lines(effects, Screen()))),
        marks=[{}] * len(traces),
        first=layer,
        opening=opening,
    )
    stream.writelines(pieces(traces, finding, view))


def traces_of_effects(effects: Effects) -> Iterator[Trace]:
    """The weights of a prompt's pass, a trace a layer, with the effect of each head."""
    prompt = effects.prompt
    sentence = prompt.get("sentence")
    source = ModelInput(sentence, tuple(prompt["ids"]) if sentence is None else None)

    layers = run_model(prompt["model"], source, keep=[WEIGHTS])
    for trace, row in zip(layers, effects.effect, strict=True):
        yield replace(trace, header=trace.header | {"effect": row.tolist()})


def command_line(words: str) -> str:
    return f'<p class="command">See it: <code>{text(words)}</code></p>'


def write_explain(found: Sequence[Question], stream: IO[bytes]) -> None:
    """A page of the trace, open at the first of these cells."""
    explainer, address, depth = found[0]
    root = explainer.root(address, depth)
    stream.writelines(pieces([explainer.trace], view=View(cell=(root.step, root.cell))))


class ConformExample(NamedTuple):
    """A cause, and the smallest case that was saved of it."""

    target: str
    cause: SpoiltFeatures
    trace: Trace | None
    """None where no case was saved."""
    report: Report | None
    """What is wrong of it; None where the target gave no array."""

    @property
    def name(self) -> str:
        return self.cause.title.partition(":")[0]


def conform_pieces(found: Sequence[Conformance]) -> Iterator[bytes]:
    """The page of targets: a card for each cause, and one case of each, what is wrong marked."""
    examples = [*chain.from_iterable(map(examples_of, found))]
    shown = [example for example in examples if example.trace is not None][:MOST_CASES]
    finding = PageFinding(
        title="; ".join(f"{target_name(target.target)} {VERDICTS[target.agrees]}" for target in found),
        text="\n\n".join(map(str, found)),
        marks=[example.report.wrong_cells() if example.report else {} for example in shown],
        names=[f"{examples.index(example) + 1} {example.name}" for example in shown],
        panels=[EXPECTED] * len(shown),
        opening="".join(open_conform(found, examples, shown)),
        kind=kind_of(target.agrees for target in found),
    )
    yield from pieces([trace_of_example(example) for example in shown], finding)


def examples_of(found: Conformance) -> Iterator[ConformExample]:
    """Each cause with the case that its command runs again."""
    saved: dict[str, str] = {}
    for feature in found.features:
        if feature.failure and feature.failure.saved:
            saved.setdefault(feature.failure.replay, feature.failure.saved)

    for cause in causes(found):
        trace = None
        report = None
        if path := saved.get(cause.replay):
            trace = read_one(path)
            with suppress(AttnError):
                report = check(under_our_names(trace))
        yield ConformExample(found.target, cause, trace=trace, report=report)


def trace_of_example(example: ConformExample) -> Trace:
    assert example.trace is not None
    return with_steps_between(example.report) if example.report else example.trace


def target_name(target: str) -> str:
    """kernels.py:attend, without the folder that it lies in."""
    if "://" in target:
        return target
    return re.split(r"[\\/]", target)[-1]


def open_conform(
    found: Sequence[Conformance], examples: Sequence[ConformExample], shown: Sequence[ConformExample]
) -> Iterator[str]:
    """The verdict, the command that runs the first case again, and a card for each cause."""
    first = next((example.cause.replay for example in examples if example.cause.replay), "")
    if first:
        yield f'<p class="command">Run the first case again: <code>{text(first)}</code></p>'
    for target in found:
        yield f"<p>{text(summarise(target, ratios=False))}</p>"

    cards = []
    for number, example in enumerate(examples, start=1):
        at = shown.index(example) if example in shown else None
        cards.append(conform_card(number, example, at, several=len(shown) > 1))
    if cards:
        yield f'<ol class="cards">{"".join(cards)}</ol>'


def conform_card(number: int, example: ConformExample, shown_at: int | None, *, several: bool) -> str:
    """What is wrong, in which features, a case of it with its numbers, and what runs it again."""
    cause = example.cause
    name, _, spoilt = cause.title.partition(": ")
    lines = [f'<p class="where">{text(name)}</p>', f'<p class="what">{text(cause.sentence)}</p>']
    lines.append(f"<p>It spoils {text(spoilt)}.</p>")
    numbers = numbers_of_example(example, shown_at if several else None)
    lines.append(f"<p>{numbers}</p>" if numbers else f"<p>{text(cause.case)}</p>")
    if cause.replay and number > 1:
        lines.append(f'<p class="about"><code>{text(cause.replay)}</code></p>')
    return f'<li value="{number}">{"".join(lines)}</li>'


def numbers_of_example(example: ConformExample, number: int | None) -> str:
    """The number of the saved case that is furthest off, as HTML: the one at which its trace opens."""
    report = example.report
    if report is None or not report.findings:
        return ""
    finding = report.findings[0]
    gap = finding.gap
    trace = report.trace
    address = cell_address(trace, finding.step, gap.at, "" if number is None else f"T{number}")
    sizes = " × ".join(map(str, trace[finding.step].shape))
    axes = ", ".join(trace.steps[finding.step].axes)
    where = place_text(report, finding.step, gap, Screen())
    return (
        f'In the smallest case <a href="{text(address)}">{text(finding.step)}</a> ({text(sizes)}: '
        f"{text(axes)}) is {format_number(gap.found)} at {text(where)} "
        f"and should be {format_number(gap.expected)}."
    )


def check_pieces(found: Sequence[Report | CheckedTrace]) -> Iterator[bytes]:
    several = [checked for checked in found if isinstance(checked, CheckedTrace)]
    reports = [checked.report if isinstance(checked, CheckedTrace) else checked for checked in found]
    judged = [report for report in reports if report]
    files = names_of_files(judged)

    if several:
        words = "\n".join(plain_text(lines_of_checked(several, Screen())))
    else:
        words = "\n\n".join(map(str, judged))
    for path, name in files.items():
        words = words.replace(path, name)

    first_line = words.partition("\n")[0]
    shown = [checked for checked in several if checked.report]
    finding = PageFinding(
        title=heading_of(judged, files) or re.sub("^agrees:", "Agrees:", first_line),
        text=words,
        marks=[report.wrong_cells() for report in judged],
        names=[name_of_call(checked, files) for checked in shown],
        panels=[EXPECTED] * len(judged),
        opening="".join(open_check(judged, files)),
        kind=kind_of(report.agrees for report in judged),
        kinds=[kind_of([checked.agrees]) for checked in shown],
    )
    yield from pieces([with_steps_between(report) for report in judged], finding)


def name_of_call(checked: CheckedTrace, files: Mapping[str, str]) -> str:
    """call 1 ✗ train.py:41 layers.2: what a trace of several is called."""
    sign = {True: "✓", False: "✗", None: "?"}[checked.agrees]
    words = [checked.kind, str(checked.number), sign]
    if checked.kind != "trace":
        at, module = checked.where
        for path, name in files.items():
            at = at.replace(path, name)
        words += filter(None, [file_name(at), module])
    return " ".join(words)


def kind_of(verdicts: Iterable[bool | None]) -> str:
    """What the frame of a finding says: right, wrong, or neither."""
    known = {*verdicts}
    if False in known:
        return "wrong"
    return "right" if known == {True} else ""


def with_steps_between(report: Report) -> Trace:
    """The trace, in the order in which its steps follow, and what it does not record between them.

    So the arithmetic of what was expected is there, on the page and for every verb that reads it.
    """
    trace = report.trace
    walk = report.walk
    between = {}
    for name in report.steps:
        known = walk.values.get(name)
        if name not in trace and known is not None:
            between[name] = known.value

    large = sum(array.nbytes for array in between.values()) > ROOM
    if not between or large or is_unfinished(trace) or trace.edited:
        order = [*(name for name in report.steps if name in trace), *trace]  # each once, where it is first
        return replace(trace, steps={name: trace.steps[name] for name in order})

    arrays = {**trace, **between}
    steps = {step.name: step for step in walk.derivation if step.name in arrays}
    steps |= {name: step for name, step in trace.steps.items() if name not in walk.derivation}
    note = f"Not recorded: {all_of(between)}; computed here from what was recorded."
    notes = [*trace.header.get("notes", ()), note]
    return Trace(steps, arrays, trace.header | {"notes": notes})


def diff_pieces(found: Sequence[Difference]) -> Iterator[bytes]:
    """The page of differences: A and B of each, in both what differs marked."""
    traces: list[Trace] = []
    names: list[str] = []
    marks: list[Marks] = []
    for number, difference in enumerate(found):
        assert difference.alignment is not None
        pair = f" {number}" if len(found) > 1 else ""
        for side, source in zip("AB", difference.names, strict=True):
            traces.append(difference.alignment.a if side == "A" else difference.alignment.b)
            names.append(" ".join(filter(None, [f"{side}{pair}", file_name(source)])))
            marks.append(dict(difference_marks(difference, side)))

    first = next((difference for difference in found if not difference.same), found[0])
    finding = PageFinding(
        title=heading_of_diff(first),
        text="".join(f"{difference}\n" for difference in found),
        marks=marks,
        names=names,
        panels=[A_AND_B, A_AND_B | {"own": "B", "other": "A"}] * len(found),
        opening="".join(open_diff(first)),
    )
    yield from pieces(traces, finding)


def heading_of_diff(found: Difference) -> str:
    """A and B differ: scores is the first of 4 that differ (15 steps compared)."""
    words = verdict(found)
    for short, whole in (("differ: ", "A and B differ: "), ("same: ", "A and B are the same: ")):
        if words.startswith(short):
            return whole + words.removeprefix(short)
    return words


def open_diff(found: Difference) -> Iterator[str]:
    """What differs in the settings, where the two part and by how much, and why the outputs differ."""
    screen = Screen()
    settings = [(path, *texts) for path, texts in settings_apart(found, screen)]
    differing_names = [name for name, step in found.steps.items() if not step.same]
    ends = dict.fromkeys([*differing_names[:1], *differing_names[-1:]])  # one, if they are the same
    rows = [[cell for cell, _ in step_row(name, found.steps[name], screen)] for name in ends]

    sides = [" ".join(filter(None, each)) for each in zip("AB", map(file_name, found.names), strict=True)]
    yield '<div class="tables">'
    if settings:
        yield html_table("What differs in the settings", ["", *sides], settings, words=True)
    if rows:
        yield html_table("Where the numbers part, and where they end", STEP_TITLES, rows)
    yield "</div>"

    yield html_paragraphs(plain_text(apart(found, screen)))
    if found.split and found.split[-1].norm:
        yield f"<p>{text(' '.join(sum_words(found.split[-1])))}</p>"
    if rows:
        yield NEXT


def difference_marks(found: Difference, side: str) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Mark the cells where each step differs to one side, if the two stand beside each other."""
    alignment = found.alignment
    assert alignment is not None
    is_a = side == "A"
    trace = alignment.a if is_a else alignment.b

    for name in found.steps:
        with suppress(ApartError):
            sides = alignment.sides(name)
            whole = trace[name]
            places = np.ix_(*(pairing.a if is_a else pairing.b for pairing in sides.pairings))
            leading = [0] * (whole.ndim - sides.a.ndim)
            index: tuple[Any, ...] = (*leading, *places)

            wrong = np.zeros(whole.shape, bool)
            wrong[index] = differing(sides.a, sides.b, found.tolerance)
            numbers = np.full(whole.shape, np.nan)
            numbers[index] = sides.b if is_a else sides.a
            yield name, (wrong, numbers)


def page_writer(
    pieces_of: Callable[[Sequence[Any]], Iterator[bytes]],
) -> Callable[[Sequence[Any], IO[bytes]], None]:
    return lambda found, stream: stream.writelines(pieces_of(found))


write_check = page_writer(check_pieces)
write_dumps_diff = page_writer(diff_pieces)


def write_diff(found: Sequence[Difference | ModelsDiff], stream: IO[bytes]) -> None:
    """A page of two dumps, or of two models."""
    if isinstance(found[0], ModelsDiff):
        write_models(found[0], stream)
        return
    write_dumps_diff(found, stream)


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

    content = parts(shown)
    source = b"".join(content.page()).decode()
    picture = "".join(map(draw_trace, content.traces[:1]))
    frame = (
        f'<iframe title="attnctl" sandbox="allow-scripts allow-downloads" srcdoc="{escape(source)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0">{picture}</iframe>'
    )
    return {"text/html": frame + THEME, "text/plain": content.words}


class NotebookParts(NamedTuple):
    """The page of something, its text, and the traces that a picture of it shows."""

    page: Callable[[], Iterator[bytes]]
    words: str
    traces: Sequence[Trace]


def parts(shown: Any) -> NotebookParts:
    if isinstance(shown, Report):
        return NotebookParts(lambda: check_pieces([shown]), str(shown), [shown.trace])
    if isinstance(shown, Conformance):
        return NotebookParts(lambda: conform_pieces([shown]), str(shown), [])
    if isinstance(shown, Difference):
        assert shown.alignment is not None
        return NotebookParts(lambda: diff_pieces([shown]), f"{shown}\n", [shown.alignment.a])
    traces = [shown] if isinstance(shown, Trace) else shown
    return NotebookParts(lambda: pieces(traces), repr(shown), traces)

"""The traces of one file, each checked: which are wrong, and the first of those in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import plural
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.evidence.walk import Verdict
from attnctl.math import Progress
from attnctl.record import CALL, DROPPED, Trace, numbers_of
from attnctl.verbs.check.report import Report
from attnctl.verbs.check.view import MARKS, flowing, report_lines

MOST_ROWS = 40
"""Rows of a table on a terminal."""


@dataclass(frozen=True, eq=False)
class CheckedTrace:
    """One of several traces; no report where nothing of it could be compared."""

    number: int
    trace: Trace
    report: Report | None
    again: str = ""
    """The command that explains its first wrong number; or why there is no report."""

    @property
    def agrees(self) -> bool | None:
        """As its report has it; of one's own function nothing says what was meant but its numbers."""
        if self.report is None:
            return None
        return True if self.trace.is_own_call and self.report.unasked else self.report.agrees

    @property
    def kind(self) -> str:
        return "call" if CALL in self.trace.header else "trace"

    @property
    def where(self) -> list[str]:
        """Where a call was made, and in which module; or the sentence."""
        call = self.trace.header.get(CALL, {})
        return [call.get("at", self.trace.sentence or ""), call.get("module", "")]

    @property
    def words(self) -> str:
        """What is said of it in a line."""
        if self.report is None:
            return "its output is after dropout" if DROPPED in self.trace else self.again.partition(" (")[0]
        if self.report.unasked:
            return f"agrees with {self.report.unasked}"
        first = next(iter(self.report.findings), None)
        if first is None:
            return "" if self.report.agrees else "cannot tell"
        return f"{first.step}: {first.words}" if first.words else f"{first.step} is wrong"

    def to_dict(self) -> dict[str, Any]:
        nothing = {CALL: self.trace.header.get(CALL), "why": self.words}
        found = nothing if self.report is None else self.report.to_dict()
        return {"number": self.number, **found, "agrees": self.agrees}


Judge = Callable[[Trace, str], tuple[Report, str]]
"""Makes the report of a trace, and the command that explains it; takes which of several it is: [3]."""


def check_each(traces: Sequence[Trace], judge: Judge, moved: Progress) -> list[CheckedTrace]:
    """Check each of these. Raises AttnError where nothing of the only one can be compared."""
    found: list[CheckedTrace] = []
    for trace, number in zip(traces, numbers_of(traces), strict=True):
        moved(len(found), len(traces))
        try:
            found.append(CheckedTrace(number, trace, *judge(trace, f"[{number}]" * (len(traces) > 1))))
        except AttnError as error:
            if len(traces) == 1:
                raise
            found.append(CheckedTrace(number, trace, None, error.problems[0]))
    return found


def agree(found: Sequence[CheckedTrace]) -> bool | None:
    """True if all do, False if one does not; None where none is wrong, and some could not be judged."""
    verdicts = {checked.agrees for checked in found}
    return False if False in verdicts else None if None in verdicts else True


def lines_of_checked(found: Sequence[CheckedTrace], screen: Screen) -> Iterator[Element]:
    """The table of several, and the report of the only one or the first that is wrong."""
    wrong = [checked for checked in found if checked.agrees is False]
    if len(found) > 1:
        yield from lines_of_table(found, wrong, screen)
        yield from [[]] * bool(wrong)
    for checked in (found if len(found) == 1 else wrong)[:1]:
        if checked.report:
            yield from report_lines(checked.report, screen)
            yield from [[], [("Why: ", "aside"), (checked.again, "")]] if checked.again else []


def lines_of_table(
    found: Sequence[CheckedTrace], wrong: Sequence[CheckedTrace], screen: Screen
) -> Iterator[Element]:
    yield from flowing(headline(found, wrong), screen)
    yield []
    some = len(found) if not screen.fits else MOST_ROWS
    shown = found if len(found) <= some else sorted([*wrong, *found][:some], key=found.index)
    rows = [call_row(checked, screen) for checked in dict.fromkeys(shown)]
    titles = (found[0].kind, "", "at" if found[0].kind == "call" else "sentence", "module", "")
    kept = [at for at in range(len(titles)) if any(row[at][0] for row in rows)]
    texts = [[row[at] for at in kept] for row in rows]
    listing = Listing(screen, [[titles[at] for at in kept]], texts, left={1, 2, 3, 4})
    yield from listing.fit(len(kept) - 1).lines()
    if len(rows) < len(found):
        yield [(f"{screen.left_out(len(found) - len(rows))} (--full shows them)", "aside")]


def headline(found: Sequence[CheckedTrace], wrong: Sequence[CheckedTrace]) -> str:
    unsure, kind = sum(checked.agrees is None for checked in found), found[0].kind
    more = f"; {unsure} cannot be judged" * bool(unsure)
    if not wrong:
        right = len(found) - unsure
        return f"{plural(right, kind)} {'agrees' if right == 1 else 'agree'}{more}."
    are = "is" if len(wrong) == 1 else "are"
    first = f"{kind} {wrong[0].number}: {', '.join(filter(None, wrong[0].where))}"
    return f"{len(wrong)} of {plural(len(found), kind)} {are} wrong; the first is {first}{more}."


def call_row(checked: CheckedTrace, screen: Screen) -> list[Span]:
    verdicts = {True: Verdict.AGREES, False: Verdict.WRONG, None: Verdict.CANNOT_TELL}
    sign, ascii_sign, style = MARKS[verdicts[checked.agrees]]
    texts = [screen.printable(text) for text in (*checked.where, checked.words)]
    mark = (ascii_sign if screen.ascii_only else sign, style)
    return [(str(checked.number), ""), mark, *((text, "aside" if checked.agrees else "") for text in texts)]

"""The results of a run: a conformance, its features, their failures, on the screen and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import reduce
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any, NamedTuple

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.verbs.conform.call import chance_missed
from attnctl.verbs.conform.case import CAPTURED, FORWARD, Case
from attnctl.verbs.conform.features import INPUTS_KEPT, SIZES
from attnctl.verbs.conform.options import FAR, SINKS, SINKS_FAR
from attnctl.verbs.conform.relations import RELATIONS

if TYPE_CHECKING:
    from attnctl.verbs.conform.suite import CaseResult

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"
IGNORED = "ignored"
XFAIL = "xfail"
DIFFERS = "differs"
"""The status of what is other from call to call, and may be."""

IGNORED_OPTION = "option-ignored"
"""The mistake of an option that is taken and changes nothing."""

UNASKED = "mask-unasked"
"""The mistake of a mask that is there whatever it is called with."""


def finite_or_text(ratio: float | None) -> float | str | None:
    return ratio if ratio is None or isfinite(ratio) else "Infinity"


SCHEMA = "attnctl.conform/1"
"""The form of a report, as configs/reports.schema.json has it; another number breaks readers."""

MOST_SAID = 3
"""Other details than the one of the case shown that are said."""


@dataclass(frozen=True)
class Failure:
    """Why something fails, a case that shows it, and in how much of what fails that is true."""

    mistake: str | None = None
    sentence: str = ""
    """What is wrong in the case shown."""
    case: object = None
    words: str = ""
    """The error in that case, or the end of the call."""
    replay: str = ""
    saved: str = ""
    """The dump of a small failing case, which `replay` runs again."""
    explained: int = 1
    """The cases in which the sentence is true, of those `failing`."""
    failing: int = 1
    details: tuple[str, ...] = ("",)
    """What is not the same in every case, that of the case shown first."""
    spared: object = None
    """A case that is right, though it should not be."""
    alone: bool = False
    """Whether the sentence was looked for, or is true as it stands, in the case shown alone, of several."""

    def widen(self, other: Failure) -> Failure:
        return replace(
            self,
            explained=self.explained + other.explained,
            failing=self.failing + other.failing,
            details=tuple(dict.fromkeys((*self.details, *other.details))),
            spared=self.spared or other.spared,
            alone=self.alone or other.alone,
        )

    @property
    def explanation(self) -> str:
        if not self.sentence:
            return ""

        others = self.details[1:]
        if others or self.alone:
            parts = [f"in this case {self.sentence}"]
        elif self.spared:
            parts = [f"in every failing case {self.sentence}"]
        else:
            parts = [self.sentence]

        if others:
            named = [f"({other})" if ", " in other else other for other in others[:MOST_SAID]]
            more = f" and {len(others) - MOST_SAID} more" if len(others) > MOST_SAID else ""
            parts.append(f"in others: {', '.join(named)}{more}")
        if self.explained < self.failing:
            parts.append(f"this explains {self.explained} of {self.failing} failing cases")
        if self.spared:
            parts.append(f"yet it is right in {self.spared}")
        return "; ".join(parts)


@dataclass
class FeatureResult:
    """The cases of a feature in a type, as far as they were run."""

    feature: str
    dtype: str
    cases: int = 0
    """Cases that were run, `of` those that the suite has for this target."""
    of: int = 0
    skipped: str = ""
    """The reason why it was not run, or why some of its cases were not."""
    ratio: float | None = None
    """The largest error of all cases, as a part of the rounding error allowed."""
    ratios: dict[str, float] = field(default_factory=dict)
    """The same of each output."""
    shown: set[str] = field(default_factory=set)
    """The outputs of which some case is evidence."""
    wrong: list[CaseResult] = field(default_factory=list, repr=False)
    right: list[Case] = field(default_factory=list, repr=False)
    ran: list[Case] = field(default_factory=list, repr=False)
    refused: int = 0
    calls: int = 0
    """Calls of the same cases, where they were made again and again."""
    differs: str = ""
    """What is other from call to call, and may be."""
    failure: Failure | None = None
    known: str = ""

    @property
    def status(self) -> str:
        if not self.cases:
            return SKIPPED
        if self.failure is None:
            return DIFFERS if self.differs else PASSED
        if self.known:
            return XFAIL
        # An option that is right somewhere is not ignored there, so that it fails in the usual way.
        is_ignored = self.failure.mistake == IGNORED_OPTION and not self.failure.spared
        return IGNORED if is_ignored else FAILED

    @property
    def failed(self) -> int:
        return len(self.wrong) or int(self.failure is not None)

    @property
    def reason(self) -> str:
        """The reason why it was skipped, or why some of its cases, or of its outputs, were not judged."""
        if not self.cases:
            refused = "refused: " if self.refused else ""
            return f"{refused}{self.skipped}" if self.skipped else "it has no cases"

        parts = []
        not_run = self.of - self.cases
        if not_run:
            are = "is" if not_run == 1 else "are"
            what = "refused" if self.refused == not_run else "not run"
            parts.append(f"{not_run} of its cases {are} {what}: {self.skipped}")

        # Of a wrong answer it does not matter what rounding hides.
        if not self.wrong:
            hidden = [name for name in self.ratios if name not in self.shown]
            if hidden:
                parts.append(f"rounding hides {all_of(hidden)}")
        return "; ".join(parts)

    def add(self, result: CaseResult) -> None:
        judgement = result.judgement
        self.cases += 1
        self.ran.append(result.case)
        self.ratio = max(judgement.ratio, self.ratio or 0.0)
        self.shown |= {*judgement.shows}
        for name, ratio in judgement.ratios.items():
            self.ratios[name] = max(ratio, self.ratios.get(name, 0.0))

        if judgement.right:
            self.right.append(result.case)
        else:
            self.wrong.append(result)

    def refuse(self, why: str) -> None:
        self.refused += 1
        self.skipped = self.skipped or why

    def to_dict(self) -> dict[str, Any]:
        failure = self.failure
        explanation = self.reason
        if failure:
            explanation = failure.explanation or failure.words
        plain: dict[str, Any] = {
            "feature": self.feature,
            "dtype": self.dtype,
            "status": self.status,
            "cases": self.cases,
            "of": self.of,
            "failed": self.failed,
            "ratio": finite_or_text(self.ratio),
            "mistake": failure.mistake if failure else None,
            "explanation": explanation if failure else explanation or None,
            "replay": failure.replay or None if failure else None,
        }

        # Fields that not every result has.
        if failure:
            plain["case"] = str(failure.case)
        if failure and self.reason:
            plain["not_run"] = self.reason
        if self.known:
            plain["known"] = self.known
        if not set(self.ratios) <= {*FORWARD}:
            plain["ratios"] = {name: finite_or_text(ratio) for name, ratio in self.ratios.items()}
        if self.calls > self.of:
            plain["calls"] = self.calls
            plain["missed"] = chance_missed(self.calls)
        return plain


@dataclass(frozen=True)
class Conformance:
    target: str
    features: tuple[FeatureResult, ...]
    conventions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_dropout: bool = False
    """It can leave weights out at random, which no case asks for."""

    @property
    def wrong(self) -> list[FeatureResult]:
        """The features that fail or are ignored and were not known to."""
        return [feature for feature in self.features if feature.status in {FAILED, IGNORED}]

    @property
    def counts(self) -> tuple[int, int]:
        """Cases that were run, and those that the suite has for this target; each call counts once."""
        # Inputs kept counts the calls of all others again.
        counted = [feature for feature in self.features if feature.feature != INPUTS_KEPT] or self.features
        return sum(feature.cases for feature in counted), sum(feature.of for feature in counted)

    @property
    def ran(self) -> list[Case]:
        return [case for feature in self.features for case in feature.ran]

    @property
    def covered(self) -> dict[str, list[Any]]:
        ran = self.ran
        shapes = {tuple(getattr(case, size) for size in SIZES) for case in ran}
        return {
            "dtypes": list(dict.fromkeys(case.dtype for case in ran)),
            "draws": sorted({case.fill for case in ran}),
            "memory": sorted({case.memory for case in ran}),
            "shapes": list(map(list, sorted(shapes))),
        }

    @property
    def bounds(self) -> str:
        """How far the cases went that were run: what is wrong beyond that nobody has seen."""
        ran = self.ran
        if not ran:
            return ""
        parts = [f"longest {plural(max(case.keys for case in ran), 'key')}"]

        largest_sinks = []
        for case in ran:
            sinks = case.option_values.get("sinks", CAPTURED)
            if sinks != CAPTURED:  # which has numbers of its own
                largest_sinks.append((SINKS_FAR if sinks == FAR else SINKS)[1])
        if largest_sinks:
            parts.append(f"largest sink {max(largest_sinks):g}")

        if self.has_dropout:
            parts.append("no dropout")
        return ", ".join(parts)

    @property
    def agrees(self) -> bool | None:
        """Everything that was run is right; None where nothing was."""
        if all(feature.status == SKIPPED for feature in self.features):
            return None
        return not self.wrong

    def to_dict(self) -> dict[str, Any]:
        cases, of = self.counts
        return {
            "schema": SCHEMA,
            "target": self.target,
            "agrees": self.agrees,
            "cases": cases,
            "of": of,
            "conventions": self.conventions,
            "features": [feature.to_dict() for feature in self.features],
            "notes": list(self.notes),
            "covered": self.covered,
        }

    __str__ = Displayed.__str__
    _repr_mimebundle_ = Displayed._repr_mimebundle_


# --- on the screen ---

SIGNS = {
    PASSED: ("✓", "ok", "right"),
    FAILED: ("✗", "X", "wrong"),
    IGNORED: ("✗", "X", "wrong"),
    SKIPPED: ("–", "-", "aside"),
    XFAIL: ("✗", "X", "aside"),
    DIFFERS: ("–", "-", "aside"),
}
"""Each as a sign, as ASCII, and its style."""


def list_lines(conformance: Conformance, screen: Screen) -> Iterator[Element]:
    """The report on a screen: the verdict, the table, what was not run, and each mistake with a case."""
    failures = [feature.failure for feature in conformance.features if feature.failure]
    unasked = [failure for failure in failures if failure.mistake == UNASKED]
    # What is there in every call comes first: everything below is judged with it.
    if unasked:
        sentence = unasked[0].sentence
        yield from screen.sentence(f"{sentence[0].upper()}{sentence[1:]}.", "bad")

    style = "" if conformance.agrees is None else "right" if conformance.agrees else "bad"
    yield from screen.sentence(summarise(conformance), style)
    if conformance.agrees is not None:
        yield from make_table(conformance, screen).lines()

    for reason, names in list_skipped(conformance).items():
        yield from screen.sentence(f"Skipped: {', '.join(names)}: {reason}.", "aside")
    for reason, names in list_partly_run(conformance).items():
        yield from screen.sentence(f"In part: {', '.join(names)}: {reason}.", "aside")
    for name, value in conformance.conventions.items():
        yield from screen.sentence(f"Convention: {name}: {value}.")
    for note in conformance.notes:
        yield from screen.sentence(note)

    for spoilt in causes(conformance):
        yield []
        yield from screen.sentence(spoilt.title, "name")
        yield from screen.sentence(spoilt.sentence)
        yield from screen.sentence(spoilt.case, "aside")
        if spoilt.replay:
            yield [(screen.printable(spoilt.replay), "")]


def make_table(conformance: Conformance, screen: Screen) -> Listing:
    """A row for each feature that was run, a column for each type."""
    dtypes = list(dict.fromkeys(result.dtype for result in conformance.features))
    by_feature: dict[str, dict[str, FeatureResult]] = {}
    for result in conformance.features:
        by_feature.setdefault(result.feature, {})[result.dtype] = result

    rows: list[list[Span]] = []
    for name, by_dtype in by_feature.items():
        if all(result.status == SKIPPED for result in by_dtype.values()):
            continue
        cases = str(max(result.cases for result in by_dtype.values()))
        cells = [make_cell(by_dtype.get(dtype), screen) for dtype in dtypes]
        rows.append([(screen.printable(name), ""), (cases, "aside"), *cells])
    return Listing(screen, [("feature", "cases", *dtypes)], rows, left={0})


def make_cell(result: FeatureResult | None, screen: Screen) -> Span:
    """A sign, and how far off the numbers are or what became of the calls."""
    if result is None:
        return "", ""

    has_no_ratio = result.status in {SKIPPED, IGNORED, DIFFERS}
    words = result.status if has_no_ratio else format_ratio(result.ratio)
    mistake = result.failure.mistake if result.failure else None
    if mistake == "exception":
        words = "raises"
    elif mistake in {"crash", "exit", "hang"}:
        words = mistake
    if result.feature in RELATIONS and result.ratio == 0:
        words = "exact"
    if result.status == XFAIL:
        words = f"known {words}"

    sign, ascii_sign, style = SIGNS[result.status]
    mark = ascii_sign if screen.ascii_only else sign
    return f"{mark} {words}".rstrip(), style


def format_ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if isinf(ratio):
        return "∞"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0e}"


def summarise(conformance: Conformance, *, ratios: bool = True) -> str:
    """The verdict in a sentence; `ratios` where those of the table stand below."""
    if conformance.agrees is None:
        return "Nothing was run: cannot tell."

    done, total = conformance.counts
    cases = f"{done:,} of {plural(total, 'case')}"
    reach = f", {conformance.bounds}" if conformance.bounds else ""

    wrong = dict.fromkeys(result.feature for result in conformance.wrong)
    if wrong:
        were_run = "was run" if total == 1 else "were run"
        means = "; a ratio above 1 is wrong" if ratios else ""
        return f"It does not conform: {', '.join(wrong)}. {cases} {were_run}{reach}{means}."

    verdict = "It conforms"
    known = dict.fromkeys(result.feature for result in conformance.features if result.status == XFAIL)
    if known:
        verdict += f" but for what is known to fail, {', '.join(known)}"
    means = " Each number is the largest error divided by the rounding error allowed." if ratios else ""
    return f"{verdict}: {cases}{reach}.{means}"


def list_skipped(conformance: Conformance) -> dict[str, list[str]]:
    """By reason: the features that were not run, with their types where others were."""
    by_feature: dict[str, list[FeatureResult]] = {}
    for result in conformance.features:
        by_feature.setdefault(result.feature, []).append(result)

    names_by_reason: dict[str, list[str]] = {}
    for name, results in by_feature.items():
        dtypes_by_reason: dict[str, list[str]] = {}
        for result in results:
            if result.status == SKIPPED:
                dtypes_by_reason.setdefault(result.reason, []).append(result.dtype)

        for reason, dtypes in dtypes_by_reason.items():
            in_types = "" if len(dtypes) == len(results) else f" ({', '.join(dtypes)})"
            names_by_reason.setdefault(reason, []).append(f"{name}{in_types}")
    return names_by_reason


def list_partly_run(conformance: Conformance) -> dict[str, list[str]]:
    """By reason: the features of which some cases were not run."""
    names_by_reason: dict[str, dict[str, None]] = {}
    for result in conformance.features:
        if result.status != SKIPPED and result.reason:
            names_by_reason.setdefault(result.reason, {})[result.feature] = None
    return {reason: list(names) for reason, names in names_by_reason.items()}


class SpoiltFeatures(NamedTuple):
    """A mistake, the features that it spoils, and a case that shows it."""

    title: str
    sentence: str
    case: str
    replay: str


def causes(conformance: Conformance) -> Iterator[SpoiltFeatures]:
    """What each mistake spoils."""
    spoilt: dict[tuple[str, str], list[FeatureResult]] = {}
    for result in conformance.features:
        failure = result.failure
        if not failure:
            continue
        # Unexplained features stand alone. One mistake is listed once, but for sentences that have
        # no detail of their own, which may say other things of other features.
        apart = ""
        if not failure.mistake:
            apart = result.feature
        elif not failure.details[0]:
            apart = failure.sentence
        spoilt.setdefault((failure.mistake or "", apart), []).append(result)

    for results in spoilt.values():
        first, *others = (result.failure for result in results if result.failure)
        explanation = reduce(Failure.widen, others, first).explanation
        sentence = explanation or "no known mistake gives these numbers"
        names = ", ".join(dict.fromkeys(result.feature for result in results))
        dtypes = ", ".join(dict.fromkeys(result.dtype for result in results))
        reasons = dict.fromkeys(result.known for result in results if result.known)
        known = "".join(f" (known: {why})" for why in reasons)
        words = "" if first.words == first.explanation else f": {first.words}"

        yield SpoiltFeatures(
            title=f"{first.mistake or results[0].status}: {names}, in {dtypes}{known}",
            sentence=f"{sentence[0].upper()}{sentence[1:]}.",
            case=f"{first.case}{words}",
            replay=first.replay,
        )


def write_junit(conformance: Conformance) -> str:
    """Return JUnit XML, a case for each feature and type; a known failure is skipped with its reason."""
    from xml.etree import ElementTree as ET

    target = conformance.target
    suite = ET.Element("testsuite", name=f"attnctl conform {target}", errors="0")
    suite.attrib |= {
        "tests": str(len(conformance.features)),
        "failures": str(len(conformance.wrong)),
        "skipped": str(sum(result.status in {SKIPPED, XFAIL} for result in conformance.features)),
    }

    for result in conformance.features:
        case = ET.SubElement(suite, "testcase", classname=f"{target}.{result.dtype}", name=result.feature)
        failure = result.failure
        if result.status in {SKIPPED, XFAIL}:
            ET.SubElement(case, "skipped", message=replace_illegal(result.known or result.reason))
        elif failure:
            message = replace_illegal(failure.explanation or failure.words)
            node = ET.SubElement(case, "failure", type=failure.mistake or result.status, message=message)
            node.text = replace_illegal(f"{failure.words}\nin {failure.case}\n{failure.replay}".strip())

    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def replace_illegal(text: str) -> str:
    """XML 1.0 has no control characters but these two, not even escaped."""
    return "".join(letter if letter in "\n\t" or letter.isprintable() else "?" for letter in text)

"""The results of a run: a conformance, its features, their failures, on the screen and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import reduce
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any

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

PASSED, FAILED, SKIPPED, IGNORED, XFAIL = "passed", "failed", "skipped", "ignored", "xfail"
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
        parts, others = [self.sentence], self.details[1:]
        if not self.sentence:
            return ""
        if others or self.alone:
            parts = [f"in this case {self.sentence}"]
        elif self.spared:
            parts = [f"in every failing case {self.sentence}"]
        if others:
            more = f" and {len(others) - MOST_SAID} more" if len(others) > MOST_SAID else ""
            said = (f"({other})" if ", " in other else other for other in others[:MOST_SAID])
            parts.append(f"in others: {', '.join(said)}{more}")
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
        ignored = self.failure.mistake == IGNORED_OPTION and not self.failure.spared
        return XFAIL if self.known else IGNORED if ignored else FAILED

    @property
    def failed(self) -> int:
        return len(self.wrong) or int(self.failure is not None)

    @property
    def reason(self) -> str:
        """The reason why it was skipped, or why some of its cases, or of its outputs, were not judged."""
        if not self.cases:
            refused = "refused: " if self.refused else ""
            return f"{refused}{self.skipped}" if self.skipped else "it has no cases"
        left = self.of - self.cases
        what = "refused" if self.refused == left else "not run"
        hidden = [name for name in self.ratios if name not in self.shown and not self.wrong]
        are = "is" if left == 1 else "are"
        parts = [f"{left} of its cases {are} {what}: {self.skipped}"] if left else []
        return "; ".join([*parts, *([f"rounding hides {all_of(hidden)}"] if hidden else [])])

    def add(self, found: CaseResult) -> None:
        self.cases += 1
        self.ran.append(found.case)
        self.ratio = max(found.judgement.ratio, self.ratio or 0.0)
        self.shown |= {*found.judgement.shows}
        for name, ratio in found.judgement.ratios.items():
            self.ratios[name] = max(ratio, self.ratios.get(name, 0.0))
        self.wrong += [] if found.judgement.right else [found]
        self.right += [found.case] if found.judgement.right else []

    def refuse(self, why: str) -> None:
        self.refused += 1
        self.skipped = self.skipped or why

    def to_dict(self) -> dict[str, Any]:
        failure = self.failure
        ratios = {name: finite_or_text(ratio) for name, ratio in self.ratios.items()}
        return {
            "feature": self.feature,
            "dtype": self.dtype,
            "status": self.status,
            "cases": self.cases,
            "of": self.of,
            "failed": self.failed,
            "ratio": finite_or_text(self.ratio),
            "mistake": failure.mistake if failure else None,
            "explanation": (failure.explanation or failure.words) if failure else self.reason or None,
            "replay": failure.replay or None if failure else None,
            **({"case": str(failure.case)} if failure else {}),
            **({"not_run": self.reason} if failure and self.reason else {}),
            **({"known": self.known} if self.known else {}),
            **({} if set(ratios) <= {*FORWARD} else {"ratios": ratios}),
            **({"calls": self.calls, "missed": chance_missed(self.calls)} if self.calls > self.of else {}),
        }


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
        own = [feature for feature in self.features if feature.feature != INPUTS_KEPT] or self.features
        return sum(feature.cases for feature in own), sum(feature.of for feature in own)

    @property
    def covered(self) -> dict[str, list[Any]]:
        ran = [case for feature in self.features for case in feature.ran]
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
        ran = [case for feature in self.features for case in feature.ran]
        if not ran:
            return ""
        parts = [f"longest {plural(max(case.keys for case in ran), 'key')}"]
        sinks = [case.option_values["sinks"] for case in ran if "sinks" in case.option_values]
        if drawn := [(SINKS_FAR if value == FAR else SINKS)[1] for value in sinks if value != CAPTURED]:
            parts.append(f"largest sink {max(drawn):g}")
        return ", ".join([*parts, *["no dropout"] * self.has_dropout])

    @property
    def agrees(self) -> bool | None:
        """Everything that was run is right; None where nothing was."""
        return None if all(feature.status == SKIPPED for feature in self.features) else not self.wrong

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


def list_lines(found: Conformance, screen: Screen) -> Iterator[Element]:
    failures = (feature.failure for feature in found.features if feature.failure)
    unasked = [failure for failure in failures if failure.mistake == UNASKED]
    for failure in unasked[:1]:
        yield from screen.sentence(f"{failure.sentence[0].upper()}{failure.sentence[1:]}.", "bad")
    if found.agrees is not None:
        yield from make_table(found, screen).lines()
    yield from screen.sentence(summarise(found))
    for reason, names in list_skipped(found).items():
        yield from screen.sentence(f"Skipped: {', '.join(names)}: {reason}.", "aside")
    in_part = [feature for feature in found.features if feature.status != SKIPPED and feature.reason]
    for reason in dict.fromkeys(feature.reason for feature in in_part):
        names = [feature.feature for feature in in_part if feature.reason == reason]
        yield from screen.sentence(f"In part: {', '.join(dict.fromkeys(names))}: {reason}.", "aside")
    for name, value in found.conventions.items():
        yield from screen.sentence(f"Convention: {name}: {value}.")
    for note in found.notes:
        yield from screen.sentence(note)
    for title, said, case, replay in causes(found):
        yield []
        yield from screen.sentence(title, "name")
        yield from screen.sentence(said)
        yield from screen.sentence(case, "aside")
        if replay:
            yield [(screen.printable(replay), "")]


def make_table(found: Conformance, screen: Screen) -> Listing:
    dtypes = list(dict.fromkeys(feature.dtype for feature in found.features))
    rows: list[list[Span]] = []
    for name in dict.fromkeys(feature.feature for feature in found.features):
        mine = {feature.dtype: feature for feature in found.features if feature.feature == name}
        if all(feature.status == SKIPPED for feature in mine.values()):
            continue
        cases = str(max(feature.cases for feature in mine.values()))
        cells = [make_cell(mine.get(dtype), screen) for dtype in dtypes]
        rows.append([(screen.printable(name), ""), (cases, "aside"), *cells])
    return Listing(screen, [("feature", "cases", *dtypes)], rows, left={0})


def make_cell(result: FeatureResult | None, screen: Screen) -> Span:
    if result is None:
        return "", ""
    sign, ascii_sign, style = SIGNS[result.status]
    mark = ascii_sign if screen.ascii_only else sign
    plain = result.status in {SKIPPED, IGNORED, DIFFERS}
    words = result.status if plain else format_ratio(result.ratio)
    if result.failure and result.failure.mistake in {"crash", "exit", "hang", "exception"}:
        words = "raises" if result.failure.mistake == "exception" else result.failure.mistake
    if result.feature in RELATIONS and result.ratio == 0:
        words = "exact"
    if result.status == XFAIL:
        words = f"known {words}"
    return f"{mark} {words}".rstrip(), style


def format_ratio(ratio: float | None) -> str:
    if ratio is None or isinf(ratio):
        return "" if ratio is None else "∞"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0e}"


def summarise(found: Conformance) -> str:
    if found.agrees is None:
        return "Nothing was run: cannot tell."
    done, there = found.counts
    cases = ", ".join(filter(None, [f"{done:,} of {plural(there, 'case')}", found.bounds]))
    if names := dict.fromkeys(feature.feature for feature in found.wrong):
        return f"It does not conform: {', '.join(names)}. ({cases}; a ratio above 1 is wrong.)"
    known = dict.fromkeys(feature.feature for feature in found.features if feature.status == XFAIL)
    verdict = f"It conforms but for what is known to fail, {', '.join(known)}" if known else "It conforms"
    return f"{verdict}: {cases}. Each number is the largest error divided by the rounding error allowed."


def list_skipped(found: Conformance) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name in dict.fromkeys(feature.feature for feature in found.features):
        mine = [feature for feature in found.features if feature.feature == name]
        gone = [feature for feature in mine if feature.status == SKIPPED]
        for reason in dict.fromkeys(feature.reason for feature in gone):
            types = [feature.dtype for feature in gone if feature.reason == reason]
            where = "" if len(types) == len(mine) else f" ({', '.join(types)})"
            out.setdefault(reason, []).append(f"{name}{where}")
    return out


def causes(found: Conformance) -> Iterator[tuple[str, str, str, str]]:
    """What each mistake spoils: features and types, its sentence, a case, how to replay it."""
    spoilt: dict[tuple[str, str], list[FeatureResult]] = {}
    for feature in found.features:
        if failure := feature.failure:
            alone = failure.sentence * (not failure.details[0]) if failure.mistake else feature.feature
            spoilt.setdefault((failure.mistake or "", alone), []).append(feature)
    for results in spoilt.values():
        failure, *others = (result.failure for result in results if result.failure)
        names = ", ".join(dict.fromkeys(result.feature for result in results))
        types = list(dict.fromkeys(result.dtype for result in results))
        reasons = dict.fromkeys(result.known for result in results if result.known)
        known = "".join(f" (known: {why})" for why in reasons)
        name = failure.mistake or results[0].status
        said = reduce(Failure.widen, others, failure).explanation or "no known mistake gives these numbers"
        words = "" if failure.words == failure.explanation else f": {failure.words}"
        title = f"{name}: {names}, in {', '.join(types)}{known}"
        yield title, f"{said[0].upper()}{said[1:]}.", f"{failure.case}{words}", failure.replay


def write_junit(found: Conformance) -> str:
    """Return JUnit XML, a case for each feature and type; a known failure is skipped with its reason."""
    from xml.etree import ElementTree as ET

    suite = ET.Element("testsuite", name=f"attnctl conform {found.target}", errors="0")
    suite.attrib |= {
        "tests": str(len(found.features)),
        "failures": str(len(found.wrong)),
        "skipped": str(sum(feature.status in {SKIPPED, XFAIL} for feature in found.features)),
    }
    for run in found.features:
        case = ET.SubElement(suite, "testcase", classname=f"{found.target}.{run.dtype}", name=run.feature)
        if run.status in {SKIPPED, XFAIL}:
            ET.SubElement(case, "skipped", message=replace_illegal(run.known or run.reason))
        elif failure := run.failure:
            said = replace_illegal(failure.explanation or failure.words)
            node = ET.SubElement(case, "failure", type=failure.mistake or run.status, message=said)
            node.text = replace_illegal(f"{failure.words}\nin {failure.case}\n{failure.replay}".strip())
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def replace_illegal(text: str) -> str:
    return "".join(letter if letter in "\n\t" or letter.isprintable() else "?" for letter in text)

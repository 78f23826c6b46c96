"""An answer graded: right, not right (and which mistake it shows), or not to be told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, dims, quote
from attnctl.drawing.show import formula_of
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import exactly
from attnctl.evidence.walk import Walk
from attnctl.inputs.config import yaml
from attnctl.inputs.plan.intended import plan_as_stated, under_our_names
from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.engine import carry_out
from attnctl.math.ops import Given
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake, WrongStep
from attnctl.record import Trace
from attnctl.record.cells import Address, Speller, parse_address
from attnctl.verbs.check.check import check
from attnctl.verbs.check.diagnosis import spoken
from attnctl.verbs.check.exercise import read_unfinished
from attnctl.verbs.check.report import Finding
from attnctl.verbs.check.view import conclusion
from attnctl.verbs.learn import CELL, DUMP, MATRIX, NUMBER, STEP, Lesson, steps_to_write
from attnctl.verbs.learn.expression import Value, addresses, as_numbers, evaluate

STDIN = "-"  # a file of this name is no pipe here: there may be answers in it


@dataclass(frozen=True)
class AnswerVerdict:
    """The verdict on an answer; `right` is None where it cannot be told."""

    right: bool | None
    says: str
    mistake: str | None = None
    also: tuple[str, ...] = ()  # other mistakes that give the same answer


def grade(lesson: Lesson, answer: Any, trace: Trace | None = None, folder: str = "") -> AnswerVerdict:
    """Grade an answer: a text as it was typed, or a matrix as nested lists.

    `trace` is the run of the lesson, where it is at hand; files are looked for in `folder`. Raises
    AttnError where the lesson itself is at fault.
    """
    trace = lesson.run() if trace is None else trace
    right = lesson.right(trace)
    try:
        with np.errstate(all="ignore"):
            return GRADERS[lesson.kind](lesson, answer, trace, right, folder)
    except AttnError as error:
        return AnswerVerdict(None, "; ".join(error.problems))


def answer_text(answer: Any) -> str:
    """An answer that is one word or number. Raises AttnError for lists, mappings, and for nothing."""
    if isinstance(answer, (list, dict)) and answer:
        kind = "a list" if isinstance(answer, list) else "a mapping"
        raise AttnError(f"{kind} where one answer is wanted")
    if not isinstance(answer, str) or not answer.strip():
        raise AttnError("nothing is answered")
    return answer.strip()


def of_numbers(lesson: Lesson, answer: Any, trace: Trace, right: Value, folder: str) -> AnswerVerdict:
    """A number or a matrix: right at the digits that were typed, or the mistake that would give it."""
    expected = as_numbers(right)
    typed = read_number(answer_text(answer)) if lesson.kind == NUMBER else read_matrix(answer)
    typed = fit_shape(typed, expected.shape)
    if typed.numbers.shape != expected.shape:
        says = f"it is {dims(typed.numbers.shape)}, and should be {dims(expected.shape)}"
        return AnswerVerdict(False, says, "shape")
    if typed.could_be(expected):
        return AnswerVerdict(True, "right")
    if typed.too_short(expected):
        return AnswerVerdict(None, "it cannot be told: write at least two digits that count, like 0.62")

    mistakes = list(find_mistakes(lesson, typed, trace)) or list(other_cells(lesson, typed, trace))
    if not mistakes:
        return AnswerVerdict(False, how_it_differs(typed, expected))
    first, *others = mistakes
    also = dict.fromkeys(other.name for other in others if other.name != first.name)
    return AnswerVerdict(False, first.words, first.name, tuple(also))


def how_it_differs(typed: Typed, right: Array) -> str:
    unknown = "no known mistake gives it"
    if not (np.isfinite(typed.numbers) == np.isfinite(right)).all():
        return f"{unknown}; hidden scores are -inf, all others are numbers"
    if right.ndim == 0:
        size = "large" if typed.numbers > right else "small"
        return f"{unknown}: it is too {size}"

    off = typed.off(right)
    differs = off > typed.tolerance(right)
    count = max(1, int(differs.sum()))
    farthest = np.unravel_index(int(off.argmax()), off.shape)
    place = ", ".join(map(str, farthest))
    return f"{unknown}: {count} of {off.size} numbers differ, most of all the one at [{place}]"


class MistakeFound(NamedTuple):
    """A mistake that gives what was typed, and its words."""

    name: str
    words: str


def find_mistakes(lesson: Lesson, typed: Typed, trace: Trace) -> Iterator[MistakeFound]:
    """The mistakes that give what was typed: the lesson's, or else the catalogue's."""
    any_found = False
    for wrong in lesson.wrong:
        if wrong.answer and would_give(typed, evaluate(wrong.answer, trace)):
            any_found = True
            yield MistakeFound(wrong.mistake or "see", wrong.says)

    asked_for = (address.spell_out(trace).step for address in addresses(lesson.answer))
    computed = {name for name, step in trace.steps.items() if not isinstance(step.op, Given)}
    cases = [case_of(trace, name) for name in asked_for if name in computed]

    # Those that the lesson has words for are looked at first, and the others only if none of these fits.
    words_of_lesson = {wrong.mistake: wrong.says for wrong in lesson.wrong if not wrong.answer}
    first = [mistake for mistake in CATALOGUE if mistake.name in words_of_lesson]
    rest = [mistake for mistake in CATALOGUE if mistake.name not in words_of_lesson]
    for mistakes in (first, rest):
        if any_found:
            return
        for mistake in mistakes:
            words = name_step(mistake, lesson, typed, trace, cases)
            if words:
                any_found = True
                yield MistakeFound(mistake.name, words_of_lesson.get(mistake.name) or words)


def would_give(typed: Typed, value: Value) -> bool:
    if isinstance(value, tuple | str):
        return False
    right = as_numbers(value)
    return fit_shape(typed, right.shape).could_be(right)


def name_step(mistake: Mistake, lesson: Lesson, typed: Typed, trace: Trace, cases: list[WrongStep]) -> str:
    """Name the wrong step of a mistake that gives what was typed; empty where none does."""
    if mistake.fitted or not mistake.exact:
        return ""
    for case in cases:
        for plant in mistake.at(case):
            try:
                value = answer_of(lesson, plant.case.derivation, trace)
            except (AttnError, ValueError, IndexError, KeyError):
                continue  # the mistake cannot be made with these shapes, or leaves out what is asked
            if would_give(typed, value):
                words, fix = spoken(mistake, plant.detail, plan_as_stated(trace), plant.fix)
                return f"it is what you get when {words}: {fix}"
    return ""


def answer_of(lesson: Lesson, derivation: Derivation, trace: Trace) -> Value:
    """The answer to a lesson that these lines give, on what the trace was made of."""
    made_of = {name: trace[name] for name in derivation.given if name in trace}
    values = carry_out(derivation, made_of, "float64").values
    steps = {step.name: step for step in derivation if step.name in values}
    return evaluate(lesson.answer, Trace(steps, values, trace.header))


def case_of(trace: Trace, step: str) -> WrongStep:
    """The step as check would look at it, were all of it wrong, with nothing recorded between."""
    leaves = [name for name, step in trace.steps.items() if isinstance(step.op, Given)]
    record = Record(trace.select([*leaves, step]), plan_as_stated(trace))
    walk = Walk.over(record, trace.derivation)
    recorded = record.value(step)
    return WrongStep(
        trace.derivation,
        record,
        step,
        recorded,
        exactly(recorded),
        differs=np.ones(recorded.shape, bool),
        walk=walk,
    )


def other_cells(lesson: Lesson, typed: Typed, trace: Trace) -> Iterator[MistakeFound]:
    """The cells of the step that hold what was typed, where one of its cells is asked for."""
    try:
        address = parse_address(lesson.answer).spell_out(trace)
        expected = address.cell(trace)
    except AttnError:  # not one cell
        return

    array = trace[address.step].astype(np.float64)
    spell = Speller(trace)
    for cell in np.ndindex(*array.shape):
        if typed.could_be(np.asarray(array[cell])):
            words = f"that is {spell(address.step, cell)}; asked is {spell(address.step, expected)}"
            yield MistakeFound("other-cell", words)


def of_cell(lesson: Lesson, answer: Any, trace: Trace, right: Value, folder: str) -> AnswerVerdict:
    if not isinstance(right, tuple):
        raise lesson.refusal("answer", AttnError("no cell; write one with largest(…) or smallest(…)"))
    text = answer_text(answer)
    address = parse_address(text).spell_out(trace)
    if address.step not in trace:
        raise AttnError(f"{quote(text)} is no cell; write one like attention_weights[0,love,AI]")

    cell = address.cell(trace)
    step, cells = right
    if address.step == step and cell in cells:
        return AnswerVerdict(True, "right")

    for wrong in lesson.wrong:
        other = evaluate(wrong.answer, trace) if wrong.answer else None
        if isinstance(other, tuple) and other[0] == address.step and cell in other[1]:
            return AnswerVerdict(False, wrong.says, wrong.mistake or None)

    spelled = Speller(trace)(address.step, cell)
    if address.step != step:
        says = f"{spelled} is a cell of {address.step}; look at {step}"
        return AnswerVerdict(False, says, "other-step")
    value = float(trace[address.step][cell])
    return AnswerVerdict(False, f"{spelled} holds {value:.4g}, and is not the cell that is asked for")


def of_step(lesson: Lesson, answer: Any, trace: Trace, right: Value, folder: str) -> AnswerVerdict:
    if not isinstance(right, str):
        raise lesson.refusal("answer", AttnError("no step; write first_wrong()"))
    name = Address(answer_text(answer)).spell_out(trace).step
    if name not in trace:
        raise AttnError(f"no step {name!r} in this dump; there are {', '.join(trace)}")
    if name == right:
        return AnswerVerdict(True, "right")

    for wrong in lesson.wrong:
        if wrong.answer and evaluate(wrong.answer, trace) == name:
            return AnswerVerdict(False, wrong.says, wrong.mistake or None)

    order = list(trace)
    if order.index(name) > order.index(right):
        says = f"{name} comes after the first wrong step: a slip is made earlier"
        return AnswerVerdict(False, says, "later-step")
    return AnswerVerdict(False, f"{name} is right: it follows from what stands before it", "right-step")


def of_dump(lesson: Lesson, answer: Any, trace: Trace, right: Value, folder: str) -> AnswerVerdict:
    """A dump of a program of one's own, about the lesson's own numbers, checked step by step."""
    settings = lesson.settings
    name = answer_text(answer)
    exercise = read_unfinished(str(Path(folder) / name) if name != STDIN else f"./{STDIN}", {}, named=False)
    arrays = under_our_names(exercise, settings)
    to_write = steps_to_write(lesson, trace)
    written = set(arrays) - exercise.begun
    ahead = [step for step in to_write if step.name not in written]
    if len(ahead) == len(to_write):
        return AnswerVerdict(None, f"next is {ahead[0].name}: {formula_of(ahead[0])}")

    strange = [name for name in arrays if np.isnan(arrays[name]).any() and name not in exercise.begun]
    if strange:
        return AnswerVerdict(False, f"{', '.join(strange)} holds NaN", "not-finite")

    report = check(arrays, settings)
    given = [name for name, step in trace.steps.items() if isinstance(step.op, Given)]
    both = [name for name in (*given, "X") if name in report.trace and name in trace]
    other = [name for name in both if not same_to_float32(report.trace, trace, name)]
    if other:
        return AnswerVerdict(False, f"{', '.join(other)} is not what the lesson gives", "other-numbers")
    if report.findings:
        return verdict_on(report.findings[0])

    wanted = lesson.answer.strip()
    if wanted not in written:
        finished = all_of(step.name for step in to_write if step not in ahead)
        says = f"right so far: {finished}; next is {ahead[0].name}: {formula_of(ahead[0])}"
        return AnswerVerdict(None, says)
    if not report.agrees:
        return AnswerVerdict(None, conclusion(report))
    if not same_to_float32(report.trace, trace, wanted):
        words = f"every step follows from those before it, but {wanted} is not that of this lesson"
        return AnswerVerdict(False, words, "other-numbers")
    return AnswerVerdict(True, "right")


def verdict_on(first: Finding) -> AnswerVerdict:
    """The verdict on a dump with this first wrong step."""
    says = f"{first.step} is the first wrong step"
    if not first.mistake:
        return AnswerVerdict(False, f"{says}; no known mistake gives its numbers")
    words = f"{says}: it is what you get when {first.words}: {first.fix}"
    return AnswerVerdict(False, words, first.mistake, first.also)


GRADERS = {NUMBER: of_numbers, MATRIX: of_numbers, CELL: of_cell, STEP: of_step, DUMP: of_dump}


def same_to_float32(theirs: Trace, ours: Trace, name: str) -> bool:
    a = np.squeeze(np.asarray(theirs[name]))
    b = np.squeeze(np.asarray(ours[name]))
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-4))


def answers_for(lesson: Lesson, trace: Trace) -> Iterator[str]:
    """Yield right answers to a lesson, as they would be typed."""
    right = lesson.right(trace)
    if isinstance(right, tuple):
        step, cells = right
        yield from (Speller(trace)(step, cell) for cell in cells)
    elif isinstance(right, str):
        yield right
    elif lesson.kind == DUMP:
        yield f"a dump with {lesson.answer}"
    else:
        array = as_numbers(right)
        yield f"{array:.5g}" if array.ndim == 0 else str(np.round(array, 4).tolist())


# --- numbers as a person types them, with the digits they are written to ---

NUMERAL = re.compile(r"([-+−]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,2}))?\s*(%?)")
BETWEEN = re.compile(r"(?<=[\w.%\]∞])\s+(?=[-+−.\w\[∞])")
"""The space between two numbers, or two rows, where no comma stands."""

ENOUGH = 0.1
"""The last place that is typed must be at most so much of the number: two digits that count."""

EXACT = 0.01
"""Where the last place is at most so much, three digits, it may be off by one."""


@dataclass(frozen=True)
class Typed:
    """Numbers as they were typed, and what a unit of the last place of each is."""

    numbers: Array
    unit: Array

    def could_be(self, right: Array) -> bool:
        """True where these are the right numbers, each rounded at the last place that was typed.

        A number with fewer places than others may lack zeros at its end: 0.5 beside 0.25 and 0.25.
        """
        if right.shape != self.numbers.shape or not right.size:
            return False
        if (np.isneginf(right) != np.isneginf(self.numbers)).any():
            return False
        size = np.abs(np.where(np.isfinite(right), right, 0))
        slack = np.maximum(1e-12, 1e-9 * size)  # what counting in another order does to float64
        finest = np.asarray(self.unit.min())
        tolerance = np.maximum(self.rounding(right, self.unit), self.rounding(right, finest))
        return bool((self.off(right) <= slack + tolerance).all())

    def rounding(self, right: Array, unit: Array) -> Array:
        """What rounding to this last place may do; nothing where that says too little of a number."""
        tells_enough = unit <= ENOUGH * self.size(right)
        return np.where(tells_enough, self.tolerance(right, unit), 0.0)

    def off(self, right: Array) -> Array:
        """Return each number's error, 0 where not both are finite."""
        finite = np.isfinite(right)
        return np.abs(np.where(finite, self.numbers - np.where(finite, right, 0), 0))

    def tolerance(self, right: Array, unit: Array | None = None) -> Array:
        """Rounding; from three digits on one unit of the last. A whole number without decimals is exact."""
        unit = self.unit if unit is None else unit
        by_one = np.where(unit <= EXACT * self.size(right), 1.5, 0.5)
        return np.where((right == np.round(right)) & (unit >= 1), 0.0, by_one * unit)

    def size(self, right: Array) -> float:
        """Return the root mean square of the finite numbers."""
        finite = right[np.isfinite(right)]
        return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0

    def too_short(self, right: Array) -> bool:
        """True where so few digits are typed that they tell nothing, though they are right."""
        if right.shape != self.numbers.shape or not np.isfinite(right).all() or not self.numbers.any():
            return False
        return not self.could_be(right) and bool((self.off(right) <= self.unit / 2).all())


def read_number(text: str) -> Typed:
    """0.62, 62 %, 1e-3, -inf. Raises AttnError for what is no number."""
    word = text.strip()
    if word.lower() in {"-inf", "-.inf", "-infinity", "−∞", "-∞"}:
        return Typed(np.array(-np.inf), np.array(1.0))

    numeral = NUMERAL.fullmatch(word)
    if not numeral or not (numeral[2] or numeral[3]):
        has_comma = re.fullmatch(r"[-+]?[0-9]+,[0-9]+", word)
        advice = "write a point for the comma" if has_comma else "write one like 0.62"
        written = quote(word) if word else "nothing"
        raise AttnError(f"{written} is not a number; {advice}")

    sign, whole, decimals, power, percent = numeral.groups()
    exponent = int(power or 0) - (2 if percent else 0)
    minus = "-" if sign in {"-", "−"} else ""
    value = float(f"{minus}{whole or '0'}.{decimals or '0'}e{exponent}")
    unit = 10.0 ** (exponent - len(decimals or ""))
    return Typed(np.array(value), np.array(unit))


def read_matrix(value: Any) -> Typed:
    """Nested lists of numbers as YAML has them, or 0.1 0.9; 0.5 0.5 for rows. Raises AttnError."""
    data = split_rows(value) if isinstance(value, str) else value
    cells: list[Typed] = []

    def to_lists(part: Any, depth: int) -> Any:
        if isinstance(part, Mapping):
            raise AttnError(
                "a mapping where numbers are wanted; write rows, like [[0.12, 0.88], [0.54, 0.46]]"
            )
        if isinstance(part, Sequence) and not isinstance(part, str):
            if depth > 4:
                raise AttnError("too many brackets; write rows, like [[0.12, 0.88], [0.54, 0.46]]")
            return [to_lists(inner, depth + 1) for inner in part]
        cells.append(read_number(str(part)))
        return float(cells[-1].numbers)

    rows = to_lists(data, 0)
    if not isinstance(rows, list) or not cells:
        raise AttnError("no matrix; write its rows, like [[0.12, 0.88], [0.54, 0.46]]")
    try:
        array = np.array(rows, dtype=np.float64)
    except ValueError:
        raise AttnError("rows of different lengths; write them all as long as the first") from None
    return Typed(array, np.array([cell.unit for cell in cells]).reshape(array.shape))


def split_rows(text: str) -> Any:
    """Rows as people type them, or as NumPy prints them: spaces between numbers do as well as commas."""
    if text.lstrip().startswith(("[", "{")):
        return yaml.read(BETWEEN.sub(", ", text), "the answer")[0]

    rows = [row.strip() for row in re.split(r"[;\n]", text.replace(" %", "%")) if row.strip()]
    words = [[word.strip(",") for word in row.split()] for row in rows]
    if len(words) != 1:
        return words
    (only_row,) = words
    if len(only_row) != 1:
        return only_row

    (word,) = only_row
    if "," in word and "." in word:  # 0.1,0.9 is two numbers; 0,9 is one, with a comma for the point
        return word.split(",")
    return yaml.read(text, "the answer")[0]


def fit_shape(typed: Typed, shape: tuple[int, ...]) -> Typed:
    """Return the numbers in a shape that only has axes of size 1 more or fewer."""
    sizes = [size for size in typed.numbers.shape if size != 1]
    if sizes == [size for size in shape if size != 1]:
        return Typed(typed.numbers.reshape(shape), typed.unit.reshape(shape))
    return typed

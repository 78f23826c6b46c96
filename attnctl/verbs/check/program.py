"""Judges an attention of a program: the output decides, and what is wrong is shown at its expression.

If the weights and the output that the program made are those that were asked for, nothing on the way is
wrong, whatever it is called. Otherwise the first wrong step is that of a check, and its culprit the first
expression of that step whose value is not right while its operands are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.setting import Given
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, OUTPUT, SCALED, WEIGHTS, X
from attnctl.sources.program import RecordedProgram
from attnctl.sources.program.named import Steps
from attnctl.sources.program.place import Expression, call_of, line_of, place_of, point_at
from attnctl.sources.program.relations import HIDDEN, Array, is_near, softmax
from attnctl.verbs.check.report import Finding, Report, StepPlace, Unjudged

Check = Callable[[Mapping[str, Array], Settings], Report]
MakeSettings = Callable[[Given], Settings]

ENDS = (OUTPUT, CONCAT, HEAD_OUTPUTS)
"""What comes out, the last first: one of these decides."""

LATER = (WEIGHTS, HEAD_OUTPUTS, CONCAT, OUTPUT)
OF_OUTPUT = {OUTPUT, "W_O", "b_O"}
OF_INPUT = {X, "memory", "embeddings", *(f"{kind}_{name}" for kind in "Wb" for name in "QKV")}

MASK_MADE_WRONG = frozenset({"causal-offset", "causal-strict", "mask-diagonal"})
"""Mistakes in the mask itself, however right it is laid over the scores."""

MASKS = frozenset({"where", "masked_fill", "+", "*", "in place", "in place +", "masked_fill_", "multiply"})


AXES = frozenset({"axis", "dim", "dims", "axes"})
AXIS_PASSED = re.compile(r"\b(axis|dim)s?\s*=\s*[a-zA-Z_]")
"""An axis that a function does not say itself."""


def over_shown(shown: Mapping[str, Any], asked: Mapping[str, Any]) -> Given:
    """What a person asked for, over what a program shows; what neither says is as usual.

    Heads are as many as the program has. Asked for rotary positions, a person does not say by which
    angles: these are the program's own, until --theta says otherwise. Where nothing tells whether Q and
    K are turned, these are taken as they are.
    """
    together = {**shown, **asked}
    if shown.get("heads", 1) > 1:
        together["heads"] = shown["heads"]
    if "kv_heads" not in shown:
        together.pop("kv_heads", None)
    if "window" in shown:
        together["window"] = shown["window"]
    if asked.get("positions") == Rotary() and "positions" in shown:
        together["positions"] = shown["positions"]
    return together


class Accusation(NamedTuple):
    """A finding, and the expression that makes it."""

    finding: Finding
    event: int
    place: Expression
    lines: list[str]
    """The line of the program with a caret, and who called it."""


class AttentionJudgement(NamedTuple):
    report: Report
    accusations: list[Accusation]


class ProgramJudge:
    """Judges the attentions of one program."""

    def __init__(self, program: RecordedProgram, check: Check, make_settings: MakeSettings) -> None:
        self.program = program
        self.graph = program.graph
        self.check = check
        self.make_settings = make_settings
        self.judged: dict[int, AttentionJudgement] = {}
        """What was said of an attention, by the event of its output."""

    def judge(self, steps: Steps) -> AttentionJudgement:
        """The report of one attention. Raises AttnError where nothing of it can be compared."""
        output = steps.attention.output
        if output not in self.judged:
            self.judged[output] = self.judge_anew(steps)
        return self.judged[output]

    def judge_anew(self, steps: Steps) -> AttentionJudgement:
        settings = self.make_settings(steps.options)
        whole = self.check_most(steps, settings)
        whole = replace(whole, notes=(*steps.notes, *whole.notes))
        if whole.agrees is not True and self.ends_agree(steps, settings):
            # Law one: the output decides.
            whole = self.check(self.ends_of(steps), settings)
            note = "Its weights and its output are right; what lies between is not called as it is here."
            whole = replace(whole, notes=(*whole.notes, note))
        if steps.unexplained and not whole.findings:
            whole = replace(whole, cannot_tell=(*whole.cannot_tell, *self.taken_as_made(steps)))
        if steps.dropped is not None and not whole.findings and not self.has_twin_without_dropout(steps):
            place = place_of(self.graph, steps.dropped)
            why = f"dropout at {place} made some weights 0, other ones each time"
            unjudged = Unjudged(HEAD_OUTPUTS, why, (), "Run it with dropout off, as model.eval() does")
            whole = replace(whole, cannot_tell=(*whole.cannot_tell, unjudged))
        accusations = [self.accuse(steps, whole, finding) for finding in whole.findings]
        whole = replace(whole, findings=tuple(accusation.finding for accusation in accusations))
        # What is handed in as variables stands in no line.
        places = {
            accusation.finding.step: StepPlace(
                str(accusation.place), tuple(accusation.lines), accusation.place.to_dict()
            )
            for accusation in accusations
            if accusation.place.line
        }
        return AttentionJudgement(replace(whole, places=places), accusations)

    def has_twin_without_dropout(self, steps: Steps) -> bool:
        """True if the same expression was carried out without dropout, too, and is judged there."""
        site = self.graph.events[steps.attention.product].site
        return any(
            other.dropped is None and self.graph.events[other.attention.product].site == site
            for other in self.program.steps
        )

    # --- verdicts ---

    def check_most(self, steps: Steps, settings: Settings) -> Report:
        """Check all its steps; where these do not go together, those that do."""
        arrays = {name: numbers(array, name) for name, array in steps.arrays.items()}
        problem: AttnError | None = None
        for left_out in (set(), OF_OUTPUT, OF_OUTPUT | OF_INPUT):
            try:
                return self.check(
                    {name: array for name, array in arrays.items() if name not in left_out}, settings
                )
            except AttnError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def ends_of(self, steps: Steps) -> dict[str, Array]:
        ends = [name for name in ENDS if name in steps.arrays][:1]
        kept = {*steps.given, WEIGHTS, *ends}
        return {name: numbers(array, name) for name, array in steps.arrays.items() if name in kept}

    def ends_agree(self, steps: Steps, settings: Settings) -> bool:
        """True if the weights and the output are right, from what the attention was given alone."""
        if steps.unused:
            return False  # a weight that was made for it was not read
        try:
            return self.check(self.ends_of(steps), settings).agrees is True
        except AttnError:
            return False

    def taken_as_made(self, steps: Steps) -> Iterator[Unjudged]:
        for name, event in steps.unexplained.items():
            place = place_of(self.graph, event)
            why = f"it was taken as {place} makes it: how it came about is not known here"
            yield Unjudged(name, why, (), "Everything after it was judged")

    # --- culprits ---

    def accuse(self, steps: Steps, report: Report, finding: Finding) -> Accusation:
        suspect = self.suspect(steps, finding.step, finding.mistake)
        event = Truth(self, steps, report).move_on(finding.step, suspect)
        made = None
        if steps.triangle is not None and finding.step in {MASKED, WEIGHTS}:
            made = (steps.triangle, "the mask was made at")
        call = self.call_to_blame(steps, event, finding.mistake)
        place = place_of(self.graph, event, call)
        lines = point_at(self.graph, event, made, call)
        return Accusation(without_name(finding), event, place, lines)

    def call_to_blame(self, steps: Steps, event: int, mistake: str | None) -> int | None:
        """The call that is wrong, where the function that it calls is right when others call it."""
        graph = self.graph
        handed_on = graph.events[event].returned_at
        if mistake == "projection-mixed-up" and handed_on:
            return handed_on[0]

        if (mistake or "").startswith("softmax-over") and self.is_axis_passed(event):
            return call_of(graph, event)

        if mistake in {"rotary-start", "rotary-one-sided"} and self.is_helper_of_both(steps, event):
            return call_of(graph, event)

        site = graph.events[event].site
        callers = graph.events[event].callers
        likes = [n for n in steps.attention.events if n != event and graph.events[n].site == site]
        if mistake == "mask-unasked":
            likes += [
                n for other in self.program.steps if other is not steps for n in other.attention.events
            ]
            likes = [n for n in likes if graph.events[n].site == site]
        elif not (mistake or "").endswith("twice") or steps.attention.parts:
            return None
        for like in likes:
            for depth, (mine, other) in enumerate(zip(callers, graph.events[like].callers, strict=False)):
                # Two calls on one line are told apart by nothing but that it is called twice.
                if depth and (mine != other or mistake != "mask-unasked"):
                    return call_of(graph, event, depth)
        return None

    def is_helper_of_both(self, steps: Steps, event: int) -> bool:
        """True if one expression turns queries and keys: what it was called with is wrong then."""
        graph = self.graph
        site = graph.events[event].site
        for name in "QK":
            made = steps.events.get(f"{name}_rotated", ())
            made_of = [m for n in made for m in (n, *graph.ancestors(n))]
            if all(graph.events[n].site != site for n in made_of):
                return False
        return True

    def is_axis_passed(self, event: int) -> bool:
        """True if the axis of an expression is what its function was called with: axis=axis."""
        graph = self.graph
        site = graph.site(event)
        call = call_of(graph, event)
        text = line_of(graph, site.file, site.line)
        return (
            call is not None and bool(AXIS_PASSED.search(text)) and bool(AXES & {*graph.sites[call].words})
        )

    def suspect(self, steps: Steps, step: str, mistake: str | None) -> int:
        """The expression that is likely to make a step wrong, among those that make it."""
        if steps.written_over is not None:
            return steps.written_over
        if steps.attention.suspect is not None and step in ENDS:
            return steps.attention.suspect

        named = mistake or ""
        if named == "query-key-swapped":
            return steps.attention.product
        mask = self.suspect_of_mask(steps, step, named)
        if mask is not None:
            return mask

        events = steps.events.get(step) or steps.events.get(WEIGHTS) or [steps.attention.output]
        if step in {"Q", "K", "V"}:
            return self.suspect_of_operand(steps, step, events, named)
        if step in {"scores", SCALED} and "tiled" in named:
            return steps.events.get("K_shared", events)[0]
        if named.startswith(("scale", "no-scale")) and step != "scores":
            scaled = steps.scale_events or steps.events.get(SCALED) or steps.events.get("scores")
            return (scaled or events)[-1]
        if named.startswith("alibi") and "alibi_scores" in steps.events:
            return steps.events["alibi_scores"][-1]
        if step == WEIGHTS:
            return self.suspect_of_weights(steps, events)
        return events[0] if step == CONCAT else events[-1]

    def suspect_of_mask(self, steps: Steps, step: str, mistake: str) -> int | None:
        """What makes a mask wrong: itself, slots that are no keys, or what it hid and nobody read."""
        if mistake in MASK_MADE_WRONG:
            return steps.triangle
        if step not in {MASKED, WEIGHTS}:
            return None
        if steps.empty_slots is not None or mistake != "mask-ignored":
            return steps.empty_slots

        graph = self.graph
        for n in steps.score_events:
            for child in graph.made_from(n):
                is_masked = graph.op(child) in MASKS and graph.value(child).shape == graph.value(n).shape
                if is_masked and not graph.children[child]:
                    return child
        return next(iter(steps.weight_events), None)

    def suspect_of_operand(self, steps: Steps, step: str, events: Sequence[int], mistake: str) -> int:
        if len(events) < 2 or not mistake or steps.unused:
            weight = steps.events.get(f"W_{step}")
            return events[0] if weight or not mistake else events[-1]
        if "split" in mistake or "tiled" in mistake or "batch" in mistake:
            return next((n for n in events[1:] if self.graph.op(n) != "contiguous"), events[0])
        return events[0]

    def suspect_of_weights(self, steps: Steps, events: Sequence[int]) -> int:
        """What follows the last of the weights that are the softmax of these scores."""
        scored = [name for name in steps.arrays if name.endswith("scores")]
        by_event = {line.n: line.array for line in steps.attention.lines}
        if not scored or not steps.weight_events:
            return events[-1]
        right = softmax(steps.arrays[scored[-1]].astype(float))
        for number in reversed(range(len(steps.weight_events))):
            array = by_event.get(steps.weight_events[number])
            if array is not None and is_near(array.reshape(-1), right.reshape(-1), 1e-3):
                if number + 1 < len(steps.weight_events):
                    return steps.weight_events[number + 1]
                return steps.score_events[-1]
        return events[-1]


class Truth:
    """What each step should be, from what the attention was given."""

    def __init__(self, judge: ProgramJudge, steps: Steps, report: Report) -> None:
        self.graph = judge.graph
        self.steps = steps
        walk = report.walk
        self.values: dict[str, Array] = {}
        for name, known in walk.values.items():
            value = getattr(known, "value", None)
            if isinstance(value, np.ndarray):
                self.values[name] = value
        for name in LATER:
            known = walk.expect(name) if name in walk.derivation else None
            if known is not None:
                self.values[name] = known.value

    def move_on(self, step: str, suspect: int) -> int:
        """The first event of a step from the suspect on that is wrong."""
        events = self.steps.events.get(step, [])
        if suspect not in events or not self.is_right(suspect):
            return suspect
        for event in events[events.index(suspect) :]:
            if not self.is_right(event):
                return event
        return suspect

    def is_right(self, n: int) -> bool:
        """True if an array is a step as it should be, in a layout that a step has."""
        value = self.graph.value(n)
        if MASKED in self.values and hides_as(value, self.values[MASKED]):
            return True
        candidates = [*self.values.values(), *self.steps.given.values()]
        return any(array.size == value.size and is_laid_out(value, array) for array in candidates)


def is_laid_out(value: Array, array: Array) -> bool:
    """True if an array holds these numbers with its axes moved, or merged with the next."""
    shape = [size for size in value.shape if size > 1]
    for order in permutations(range(array.ndim)):
        moved = array.transpose(order)
        if merges([size for size in moved.shape if size > 1], shape):
            back = value.reshape(moved.shape).transpose(np.argsort(order))
            if is_alike(back, array):
                return True
    return False


def merges(sizes: Sequence[int], into: Sequence[int]) -> bool:
    """True if sizes become others by merging neighbours."""
    if not sizes or not into:
        return not sizes and not into
    size = 1
    for number, one in enumerate(sizes):
        size *= one
        if size == into[0] and merges(sizes[number + 1 :], into[1:]):
            return True
    return False


def is_alike(value: Array, step: Array) -> bool:
    """True if it is a step; or scores less a number of each row, or exp of these."""
    if value.dtype.kind not in "fiub" or step.dtype.kind not in "fiub":
        return False
    if np.allclose(value, step, rtol=1e-3, atol=1e-5):
        return True
    with np.errstate(all="ignore"):
        as_scores = value.astype(float)
        for scores in (as_scores, np.log(as_scores)):
            if is_shifted(scores, step):
                return True
    return False


def is_shifted(scores: Array, step: Array) -> bool:
    """True if each row differs from that of a step by one number, but for what is hidden in both."""
    hidden = scores < HIDDEN
    meant = step < HIDDEN
    if not (hidden == meant).all() or np.isnan(scores[~hidden]).any() or step.shape[-1] <= 2:
        return False
    off = np.where(hidden, np.nan, scores - step)
    first = np.nanmax(np.where(np.isnan(off), -np.inf, off), axis=-1, keepdims=True)
    return bool(np.isfinite(first).all() and np.nanmax(np.abs(off - first), initial=0.0) < 1e-4)


def hides_as(value: Array, scores: Array) -> bool:
    """True for 0 and 1, or 0 and what stands for −∞, where the scores are hidden that were to be hidden."""
    hidden = scores < HIDDEN
    zeros = value == 0
    if value.ndim < 2 or not (zeros | (value == 1) | (value < HIDDEN)).all():
        return False
    if value.shape[-2:] != hidden.shape[-2:]:
        return False
    shape = value.shape[-hidden.ndim :]
    if any(a not in (1, b) for a, b in zip(shape[::-1], hidden.shape[::-1], strict=False)):
        return False
    if value.size != np.prod(shape):
        return False
    return any(
        (np.broadcast_to(each.reshape(shape), hidden.shape) == hidden).all() for each in (zeros, ~zeros)
    )


def without_name(finding: Finding) -> Finding:
    """A finding without --name, which says what an array of a file is: a program has none to be called."""
    return replace(finding, fix=finding.fix.partition("; or say --name")[0])


def numbers(array: Array, name: str) -> Array:
    """An array as a check takes it: whole numbers are read as others."""
    keeps = array.dtype.kind in "fb" or name == "key_lengths"
    return np.ascontiguousarray(array, dtype=None if keeps else float)

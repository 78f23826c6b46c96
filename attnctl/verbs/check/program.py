"""Judges an attention of a program: the output decides, and what is wrong is shown at its expression.

If the weights and the output that the program made are those that were asked for, nothing on the way is
wrong, whatever it is called. Otherwise the first wrong step is that of a check, and its culprit the first
expression of that step whose value is not right while its operands are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.setting import Given
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math.derivation import Rotary
from attnctl.math.names import (
    CONCAT,
    EMBEDDINGS,
    HEAD_OUTPUTS,
    MASKED,
    OUTPUT,
    POSITIONS,
    SCALED,
    W_O,
    WEIGHTS,
    X,
)
from attnctl.record import LAID_OUT, Trace
from attnctl.sources.program import RecordedProgram
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.handed import Handing
from attnctl.sources.program.named import Steps
from attnctl.sources.program.operands import TURNING
from attnctl.sources.program.place import Expression, call_of, line_of, path_of, place_of, point_at
from attnctl.sources.program.relations import HIDDEN_IN_EFFECT, Array, is_near, is_same, softmax
from attnctl.sources.program.sinusoids import where_waves_are_made
from attnctl.sources.program.visibility import TRIANGLES, causal_hides, triangle_of
from attnctl.verbs.check.around import broken_around
from attnctl.verbs.check.report import ENDS, Finding, ProgramListing, Report, StepPlace, Unjudged
from attnctl.verbs.check.shown import Accused, shown_mistake
from attnctl.verbs.check.truth import Truth

Check = Callable[[Mapping[str, Array], Settings], Report]
MakeSettings = Callable[[Given], Settings]

OF_OUTPUT = {OUTPUT, "W_O", "b_O"}
OF_INPUT = {X, "memory", "embeddings", *(f"{kind}_{name}" for kind in "Wb" for name in "QKV")}

MASK_MADE_WRONG = frozenset({"causal-offset", "causal-strict", "mask-diagonal"})
"""Mistakes in the mask itself, however right it is laid over the scores."""

SOFTMAX_MODULE = "Softmax"
MULTI_HEAD_MODULE = "MultiheadAttention"
"""torch's, which is told its axis where it is made."""

ROTATED = frozenset({"Q_rotated", "K_rotated"})

OF_ANOTHER_LAYER = "weights-of-another-layer"

MASKS = frozenset({"where", "masked_fill", "+", "*", "in place", "in place +", "masked_fill_", "multiply"})

COMPARISONS = frozenset({"compare", "less", "less_equal", "greater", "greater_equal", *TRIANGLES})

NEAR_MASK = 30
"""Arrays between scores and the comparison that their mask is made of."""

AXIS_PASSED = re.compile(r"\b(axis|dim)s?\s*=\s*(?!None\b)[a-zA-Z_]")
"""An axis that a function does not say itself: its call says it, or leaves it to a default."""


def over_shown(shown: Mapping[str, Any], asked: Mapping[str, Any]) -> Given:
    """What a person asked for, over what a program shows; what neither says is as usual.

    Heads are as many as the program has. Asked for rotary positions, a person does not say by which
    angles: these are the program's own, until --theta says otherwise. Where nothing tells whether Q and
    K are turned, these are taken as they are. Cross-attention is not causal beside a decoder that is.
    """
    together = {**shown, **asked}
    if shown.get("heads", 1) > 1:
        together["heads"] = shown["heads"]
    if "kv_heads" not in shown:
        together.pop("kv_heads", None)
    if "window" in shown:
        together["window"] = shown["window"]
    if shown.get("causal") is False:
        together["causal"] = False
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
        self.handing = Handing(program.graph)
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
        if any(finding.step == POSITIONS and finding.mistake is None for finding in whole.findings):
            # No table that anybody gets by mistake: positions of a kind that is not known here.
            steps = without_table(steps)
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
        if steps.options.get("causal") is False:
            accusations = [
                accusation._replace(finding=of_another_sentence(accusation.finding))
                for accusation in accusations
            ]
        whole = replace(whole, findings=tuple(accusation.finding for accusation in accusations))
        # What is handed in as variables stands in no line.
        places = {
            accusation.finding.step: StepPlace(
                str(accusation.place), tuple(accusation.lines), accusation.place.to_dict()
            )
            for accusation in accusations
            if accusation.place.line
        }
        if not accusations:
            earlier = [
                other for other in self.program.steps if other.attention.output < steps.attention.output
            ]
            broken = broken_around(self.handing, steps, earlier)
            whole = replace(whole, broken=(*whole.broken, *broken))
        whole = replace(whole, places=places, program=self.listing(steps))
        return AttentionJudgement(whole, accusations)

    def listing(self, steps: Steps) -> ProgramListing | None:
        """The text of the program, and the last line that makes each step; None of variables alone."""
        recording = self.graph.recording
        if not recording.path:
            return None

        product = self.graph.site(steps.attention.product)
        made = {}
        for name, events in steps.events.items():
            # Where Q and K are multiplied they may be turned once more, as by K.T.
            before = [event for event in events if self.graph.site(event).line != product.line]
            if events:
                last = events[-1] if name not in "QKV" or not before else before[-1]
                place = place_of(self.graph, last)
                made[name] = (place.path, place.line)
        files = {path_of(self.graph, file): text for file, text in recording.files.items()}
        return ProgramListing(files=files, made=made)

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
                kept = {name: array for name, array in arrays.items() if name not in left_out}
                return self.check(laid_out(kept), settings)
            except AttnError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def ends_of(self, steps: Steps) -> Trace:
        ends = [name for name in ENDS if name in steps.arrays][:1]
        kept = {*steps.given, WEIGHTS, *ends}
        return laid_out(
            {name: numbers(array, name) for name, array in steps.arrays.items() if name in kept}
        )

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
        event = Truth(self.graph, steps, report, finding.step).move_on(finding.step, suspect)
        made = None
        is_of_mask = (finding.mistake or "").startswith(("mask", "causal"))
        if steps.triangle is not None and (is_of_mask or finding.step in {MASKED, WEIGHTS}):
            made = (steps.triangle, "the mask was made at")
        call = self.other_place(steps, report, finding, event)
        shown = shown_mistake(Accused(self.graph, steps, report, finding, event))
        if shown is not None:
            finding = replace(finding, mistake=shown.mistake, words=shown.words, fix=shown.fix, hint="")
            event = event if shown.event is None else shown.event
            call = shown.site
        place = place_of(self.graph, event, call)
        lines = point_at(self.graph, event, made, call)
        if weight_of(finding.step) in steps.borrowed:
            finding = of_another_layer(finding)
        return Accusation(without_name(finding), event, place, lines)

    def other_place(self, steps: Steps, report: Report, finding: Finding, event: int) -> int | None:
        """What is to blame in place of the expression that made a step: a call, or what it handed on."""
        passed = self.passed_wrongly(steps, finding.step, event) or self.passed_for_one(steps, finding.step)
        if passed is not None:
            return passed
        if steps.attention.over_heads:
            return self.passed_to_product(steps.attention.product)
        if finding.mistake == "batch-first":
            return self.handing.module_made(event, MULTI_HEAD_MODULE)
        if finding.mistake == "bias-missing" and self.is_projected_alike(steps, event):
            return call_of(self.graph, event)
        if finding.mistake == "rotary-on-values":
            return self.call_of_helper(steps, event)
        if finding.mistake == "output-projection-missing":
            return self.handing.returned_as_it_is(event)
        is_unknown = finding.mistake is None or self.is_single_query(steps)  # tells no kind
        is_one_of_two = is_unknown and not {*report.walk.wrong} >= ROTATED
        is_start = finding.mistake in {"rotary-start", "rotary-one-sided"}
        if finding.step in ROTATED and (is_one_of_two or is_start) and self.is_helper_of_both(steps, event):
            return self.where_positions_are_made(event) or call_of(self.graph, event)
        return self.call_to_blame(steps, event, finding.mistake)

    def is_single_query(self, steps: Steps) -> bool:
        return "Q" in steps.arrays and steps.arrays["Q"].shape[-2] == 1

    def call_to_blame(self, steps: Steps, event: int, mistake: str | None) -> int | None:
        """The call that is wrong, where the function that it calls is right when others call it."""
        graph = self.graph
        handed_on = graph.events[event].returned_at
        if mistake == "projection-mixed-up" and handed_on:
            return handed_on[0]

        if (mistake or "").startswith("softmax-over"):
            if graph.op(event) == SOFTMAX_MODULE:
                return self.handing.module_made(event, SOFTMAX_MODULE)
            if self.is_axis_passed(event):
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

    def passed_wrongly(self, steps: Steps, step: str, event: int) -> int | None:
        """The call that handed a function the weight of another layer."""
        weight = weight_of(step)
        if weight not in steps.borrowed:
            return None
        read = steps.events[weight][0]
        product = next((n for n in (event, *self.graph.parents(event)) if self.graph.product(n)), None)
        if product is None:
            return None
        passed = self.handing.passed(product, lambda node: operand_of(self.graph, product, node, read))
        return None if passed is None else passed.call

    def passed_for_one(self, steps: Steps, step: str) -> int | None:
        """The call that handed a function rows for K alone, or for V alone: those of another sentence."""
        if step not in {"K", "V"} or not {"K", "V"} <= steps.inputs.keys():
            return None
        if is_same(steps.inputs["K"].array, steps.inputs["V"].array):
            return None
        calls = set()
        names = set()
        for name in "QKV":
            projection = steps.attention.origins[name][0].projection
            if projection is None:
                return None
            passed = self.handing.passed(projection.n, first_argument, farthest=1)
            if passed is None:
                return None
            calls.add(passed.call)
            names.add(passed.name)
        # A function of query, key and value reads what it is given; one of fewer rows chose among them.
        return calls.pop() if len(calls) == 1 and len(names) == 3 else None

    def is_projected_alike(self, steps: Steps, event: int) -> bool:
        """True if the line that projects an operand projects others, too: in a function that is called."""
        place = place_of(self.graph, event)
        projections = [origins[0].projection for origins in steps.attention.origins.values()]
        lines = [place_of(self.graph, each.n).line for each in projections if each is not None]
        return lines.count(place.line) > 1

    def passed_to_product(self, product: int) -> int | None:
        """The call that handed Q to the function that multiplies it by K."""
        multiplied = self.graph.product(product)
        if multiplied is None:
            return None
        passed = self.handing.passed(
            product, lambda node: operand_of(self.graph, product, node, multiplied.left)
        )
        return None if passed is None else passed.call

    def call_of_helper(self, steps: Steps, event: int) -> int | None:
        """The call of a function that turns what it is given, from where Q and K are multiplied."""
        around = len(self.graph.events[steps.attention.product].callers)
        depth = len(self.graph.events[event].callers) - around
        return call_of(self.graph, event, depth) if depth > 0 else None

    def where_positions_are_made(self, event: int) -> int | None:
        """Where the function that calls a rotation makes the positions that it hands to it."""
        call = call_of(self.graph, event)
        if call is None:
            return None
        return self.handing.made_for_call(event, call)

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
        return call is not None and bool(AXIS_PASSED.search(text))

    def suspect(self, steps: Steps, step: str, mistake: str | None) -> int:
        """The expression that is likely to make a step wrong, among those that make it."""
        if steps.written_over is not None:
            return steps.written_over
        if steps.attention.suspect is not None and step in ENDS:
            return steps.attention.suspect

        named = mistake or ""
        if named == "query-key-swapped" or steps.attention.over_heads:
            return steps.attention.product
        mask = self.suspect_of_mask(steps, step, named)
        if mask is not None:
            return mask

        events = steps.events.get(step) or steps.events.get(WEIGHTS) or [steps.attention.output]
        if step in {"Q", "K", "V"}:
            return self.suspect_of_operand(steps, step, events, named)
        if step in {POSITIONS, *ROTATED}:
            return self.suspect_of_positions(step, events, named)
        if step in {"scores", SCALED} and "tiled" in named:
            return steps.events.get("K_shared", events)[0]
        if named.startswith(("scale", "no-scale")) and step != "scores":
            scaled = steps.scale_events or steps.events.get(SCALED) or steps.events.get("scores")
            return (scaled or events)[-1]
        if step == WEIGHTS and not named.startswith(("alibi", "softcap")):
            return self.suspect_of_weights(steps, events, named)
        return self.suspect_of_scores(steps, step, events, named)

    def suspect_of_positions(self, step: str, events: Sequence[int], mistake: str) -> int:
        """Where waves were given their lengths, or Q and K turned: what follows only moves these."""
        if mistake == "sinusoid-waves-wrong":
            return where_waves_are_made(self.graph, events[0])
        if step == POSITIONS or not mistake:
            return events[0]
        turned = [n for n in events if self.graph.op(n) in TURNING]
        return (turned or events)[-1]

    def suspect_of_scores(self, steps: Steps, step: str, events: Sequence[int], mistake: str) -> int:
        """Where a bias was made, or a cap begins; of what heads give where they begin to be merged."""
        if mistake.startswith("alibi"):
            return self.bias_added(steps, (steps.events.get("alibi_scores") or events)[-1])
        if mistake.startswith("softcap"):
            return next((n for n in steps.score_events if self.graph.op(n) == "tanh"), events[-1])
        return events[0] if step == CONCAT else events[-1]

    def bias_added(self, steps: Steps, sum_event: int) -> int:
        """The bias that is added to scores, where it is an array of its own; else where it is added."""
        graph = self.graph
        scores = {*steps.score_events, steps.attention.product}
        biases = [m for m in graph.parents(sum_event) if m not in scores and graph.value(m).ndim > 1]
        return biases[0] if len(biases) == 1 else sum_event

    def suspect_of_mask(self, steps: Steps, step: str, mistake: str) -> int | None:
        """What makes a mask wrong: itself, slots that are no keys, or what it hid and nobody read."""
        if mistake in MASK_MADE_WRONG:
            return steps.triangle
        if mistake == "window-off-by-one":
            return self.where_window_ends(steps)
        if step in ENDS and mistake == "mask-inverted" and steps.score_events:
            return steps.score_events[-1]  # what a library was handed
        if step not in {MASKED, WEIGHTS}:
            return None
        is_of_mask = not mistake or mistake.startswith("mask-inverted")
        if step == MASKED and is_of_mask and self.is_added_triangle(steps):
            return steps.triangle
        if mistake in {"mask-inverted", "mask-transposed"} or steps.is_mask_inverted:
            return self.mask_to_blame(steps, mistake)
        if steps.empty_slots is not None or mistake != "mask-ignored":
            return steps.empty_slots

        return self.mask_without_effect(steps)

    def where_window_ends(self, steps: Steps) -> int | None:
        """The comparison by which the last query does not see the first key."""
        graph = self.graph
        for n in reversed(steps.score_events):
            for m in graph.ancestors(n, most=NEAR_MASK):
                value = graph.value(m)
                if graph.op(m) not in COMPARISONS or value.ndim < 2:
                    continue
                last = value.reshape(-1, *value.shape[-2:])[0, -1]
                if last[0] != last[-1]:
                    return m
        return None

    def mask_without_effect(self, steps: Steps) -> int | None:
        """What was to hide keys and does not: its result is read by nothing, or it hides none."""
        graph = self.graph
        for n in steps.score_events:
            for child in graph.made_from(n):
                is_masked = graph.op(child) in MASKS and graph.value(child).shape == graph.value(n).shape
                if is_masked and not graph.children[child]:
                    return child
        if steps.triangle is not None:
            for n in reversed(steps.score_events):
                if graph.op(n) in MASKS and triangle_of(graph, n) == steps.triangle:
                    return n  # it was laid over the scores, and hides nothing
            return self.unread_mask(steps.triangle)
        return next(iter(steps.weight_events), None)

    def is_added_triangle(self, steps: Steps) -> bool:
        """True for a triangle of what is added to scores that hides other keys than later ones."""
        if steps.triangle is None:
            return False
        graph = self.graph
        made = [n for n in graph.made_from(steps.triangle) if n not in steps.score_events]
        offset = steps.options.get("causal_offset", 0)
        for n in (steps.triangle, *made):
            value = graph.value(n)
            if not graph.is_float(n) or value.ndim < 2 or value.min() > HIDDEN_IN_EFFECT:
                continue
            queries, keys = value.shape[-2:]
            return bool(((value < HIDDEN_IN_EFFECT) != causal_hides(queries, keys, offset)).any())
        return False

    def unread_mask(self, triangle: int) -> int:
        """What became of a triangle that hides nothing, as far as the program went with it."""
        graph = self.graph
        n = triangle
        while graph.made_from(n):
            n = graph.made_from(n)[-1]
        return n

    def mask_to_blame(self, steps: Steps, mistake: str) -> int | None:
        """The mask itself, where it is added in the wrong sense, or its last axis is that of queries."""
        graph = self.graph
        for n in reversed(steps.score_events):
            if graph.op(n) not in MASKS:
                continue
            size = graph.value(n).size
            masks = [m for m in graph.parents(n) if graph.value(m).ndim > 1 and graph.value(m).size < size]
            if len(masks) != 1:
                continue
            is_added = graph.op(n) in {"+", "in place +"} and mistake != "mask-transposed"
            is_beside_rows = mistake == "mask-transposed" and graph.value(masks[0]).shape[-1] == 1
            if is_added or is_beside_rows:
                return masks[0]
        return None

    def suspect_of_operand(self, steps: Steps, step: str, events: Sequence[int], mistake: str) -> int:
        if step in steps.in_vain:
            of_others = {n for name in "QKV" if name != step for n in steps.events.get(name, ())}
            turned = [n for n in steps.events.get(f"{step}_rotated", ()) if self.graph.op(n) in TURNING]
            own = turned[-1:] or [n for n in events if n not in of_others]
            product = steps.attention.output if step == "V" else steps.attention.product
            return own[0] if own else product
        if step in {"K", "V"} and is_one_for_all(steps.attention, step):
            second = steps.attention.parts[1]
            return second.product if step == "K" else second.output
        written = [n for n in events if self.graph.op(n) == "in place"]
        if written and not mistake:
            return written[-1]
        if len(events) < 2 or not mistake or steps.unused:
            weight = steps.events.get(f"W_{step}")
            return events[0] if weight or not mistake else events[-1]
        if "split" in mistake or "tiled" in mistake or "batch" in mistake:
            return next((n for n in events[1:] if self.graph.op(n) != "contiguous"), events[0])
        return events[0]

    def suspect_of_weights(self, steps: Steps, events: Sequence[int], mistake: str) -> int:
        """What follows the last of the weights that are the softmax of these scores."""
        if mistake == "no-max-subtraction":
            return next((n for n in events if self.graph.op(n) == "exp"), events[-1])
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
        if mistake:
            return events[-1]
        return self.power_of_other_scores(steps, steps.arrays[scored[-1]]) or events[-1]

    def power_of_other_scores(self, steps: Steps, scores: Array) -> int | None:
        """The exponential of scores less another number for each key, as a maximum over queries is."""
        by_event = {line.n: line.array for line in steps.attention.lines}
        for n in steps.weight_events:
            array = by_event.get(n)
            if array is None or self.graph.op(n) != "exp" or array.size != scores.size:
                continue
            with np.errstate(all="ignore"):
                taken_off = scores - np.log(array.reshape(scores.shape).astype(float))
            known = np.isfinite(taken_off)
            apart = np.where(known, taken_off, np.nan)
            rows = apart[known.any(-1)]
            is_of_rows = np.nanmax(rows, axis=-1) - np.nanmin(rows, axis=-1) < 1e-3
            return None if is_of_rows.all() else n
        return None


def without_table(steps: Steps) -> Steps:
    """Steps whose X is given, and not the sum of embeddings and positions."""
    left_out = {POSITIONS, EMBEDDINGS}
    arrays = {name: array for name, array in steps.arrays.items() if name not in left_out}
    options = {name: value for name, value in steps.options.items() if name != POSITIONS}
    return replace(steps, arrays=arrays, options=options)


def is_one_for_all(attention: Attention, step: str) -> bool:
    """True if the heads of a loop all read the keys, or the values, of one, and queries of their own."""
    if len(attention.parts) < 2:
        return False
    first = attention.parts[0].arrays
    others = [part.arrays for part in attention.parts[1:]]
    is_one = all(np.array_equal(other[step], first[step]) for other in others)
    return is_one and not any(np.array_equal(other["Q"], first["Q"]) for other in others)


def operand_of(graph: Graph, n: int, node: ast.expr, operand: int) -> ast.expr | None:
    """The part of a product's expression that stands for an operand: right of @, or second in a call."""
    product = graph.product(n)
    if product is None:
        return None
    origins = {product.left, *graph.ancestors(product.left, most=4)}
    is_left = operand in origins
    if isinstance(node, ast.BinOp):
        return node.left if is_left else node.right
    if isinstance(node, ast.Call):
        arrays = [each for each in node.args if not isinstance(each, ast.Constant)]
        return arrays[0 if is_left else 1] if len(arrays) > 1 else None
    return None


def first_argument(node: ast.expr) -> ast.expr | None:
    """What a layer is called with, or a weight multiplied by."""
    match node:
        case ast.Call(args=[first, *_]):
            return first
        case ast.BinOp(left=left):
            return left
    return None


def weight_of(step: str) -> str:
    """The matrix that an operand, or the output, is projected by."""
    return W_O if step in ENDS else f"W_{step}"


def of_another_layer(finding: Finding) -> Finding:
    weight = weight_of(finding.step)
    words = f"{finding.step} is made with {weight} of another layer"
    fix = f"use the {weight} that was made for this one, which nothing reads"
    return replace(finding, mistake=OF_ANOTHER_LAYER, words=words, fix=fix, hint="")


def of_another_sentence(finding: Finding) -> Finding:
    """A causal mask over another sentence, beside a causal attention of the sentence with itself."""
    if finding.option != "--causal":
        return finding
    words = "a causal mask hides keys of another sentence"
    fix = "hide what pads these keys, if anything: they have no order with the queries"
    return replace(finding, words=words, fix=fix)


def without_name(finding: Finding) -> Finding:
    """A finding without --name, which says what an array of a file is: a program has none to be called."""
    return replace(finding, fix=finding.fix.partition("; or say --name")[0])


def laid_out(arrays: Mapping[str, Array]) -> Trace:
    """The arrays of an attention, its matrices (in, out): the program shows how they are multiplied."""
    return replace(trace_of_arrays(arrays), header={LAID_OUT: True})


def numbers(array: Array, name: str) -> Array:
    """An array as a check takes it: whole numbers are read as others."""
    keeps = array.dtype.kind in "fb" or name == "key_lengths"
    return np.ascontiguousarray(array, dtype=None if keeps else float)

"""How one number of a trace came about: its line, its arithmetic, the cells that were read for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum, isfinite, isinf, isnan, sqrt
from sys import maxsize
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import number_text
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Cell
from attnctl.math.arithmetic import Expr, Number, abridge, code, evaluate, numbers
from attnctl.math.derivation import Step
from attnctl.math.filling import filler, form_of, one_sum
from attnctl.math.names import POSITIONS, is_gradient, leaves
from attnctl.math.notation import positions
from attnctl.math.ops import Given, Hide, MatMulT, Scale, Softmax, Unstated
from attnctl.record import Trace
from attnctl.record.cells import Address, Speller, parse_address, parse_start
from attnctl.record.linear import ApartError, course

if TYPE_CHECKING:
    from attnctl.inputs.plan import DumpPlan

Reference = tuple[str, Cell]

COMPUTED = "not in this dump: computed from what is"
HIDDEN = "hidden by {}"
EDITED = "edited: {}"
ROW_EDITED = "changed by an edit of this step: its row was made to sum to 1 again"
BY_HAND = "edited"
"""What stands beside a cell, and for the formula of one whose number was put there by hand."""

LONG = 64
"""A sum of more terms is long."""

SHOWN = 12
"""So many of the largest terms of a long sum are written out; the rest is one number."""

NEGLIGIBLE = 1e-13
"""Rounding below this part of a value is not worth a term of its own."""

MISFIT = (ArithmeticError, LookupError, TypeError, ValueError)
"""What comes of arithmetic on arrays that do not go together, as a dump of others may have them."""


@dataclass(frozen=True)
class Explanation:
    """A number with the arithmetic that gave it, and the cells it was made of.

    `expr` is its arithmetic, on the numbers of `inputs`. The value that was recorded differs from
    what the arithmetic comes to by `rounding`; where that is more than rounding, `gives` is what
    the arithmetic comes to and `rounding` is 0. `unlisted` cells were read for terms of long sums
    that are not written out; `left_out` are those terms, a number for each sum.
    """

    step: Step
    cell: Cell
    name: str
    value: float
    expr: Expr
    inputs: tuple[Reference, ...] = ()
    rounding: float = 0.0
    gives: float | None = None
    notes: tuple[str, ...] = ()
    unlisted: int = 0

    @property
    def left_out(self) -> list[Number]:
        return [number for number in numbers(self.expr) if number.terms]

    @property
    def expression(self) -> str:
        """The arithmetic in full digits: it evaluates to `value` (unless it `gives` another)."""
        if not isfinite(self.value) and self.gives is None:
            return number_text(self.value)
        if not self.rounding:
            return code(self.expr)
        return code(one_sum((self.expr, Number(self.rounding))))

    _repr_mimebundle_ = Displayed._repr_mimebundle_

    def __str__(self) -> str:
        return f"{self.name} = {self.step.formula}\n  = {self.expression}\n  = {number_text(self.value)}"


@dataclass(frozen=True)
class Node:
    """A cell in the tree that goes back from another: explained, unless it is too far down.

    `repeated` says that it is explained above already; `why_not` why it cannot be explained.
    """

    step: str
    cell: Cell
    name: str
    value: float
    explanation: Explanation | None
    children: Iterator[Node]
    repeated: bool = False
    why_not: str = ""


class Explainer:
    """Explains cells of one trace.

    `settings` say what kind of attention a foreign dump's numbers are meant to be. Raises
    AttnError where they are given and the dump says so itself. Unless `full`, long sums are abridged.
    `height` is how many lines there are from a step back to what was given.
    """

    def __init__(self, trace: Trace, settings: Settings | None = None, *, full: bool = True) -> None:
        self.trace = restate(trace, settings)
        self.full = full
        self.dtype = np.dtype("float64" if settings is None else settings.dtype)
        self.recorded = set(trace)
        self.spell = Speller(self.trace)
        self.edits = tuple(edits_of(self.trace))
        self.forms: dict[str, Callable[[Cell], Expr]] = {}
        self.height: dict[str, int] = {}
        for name, line in self.trace.steps.items():
            highest_input = max((self.height.get(input_, 1) for input_ in line.inputs), default=0)
            # A recurrent line reads its own earlier cells: how far back it goes, its inputs do not say.
            self.height[name] = maxsize if line.op.recurrent else 1 + highest_input

    def explain(self, step: str, cell: Cell) -> Explanation:
        """The explanation of one cell. Raises AttnError where the dump lacks what it came from."""
        for edit in self.edits:
            if edit.changes(step, cell):
                return self.explain_edit(step, cell, EDITED.format(edit.text))

        try:
            with np.errstate(all="ignore"):
                explanation = self.work_out(step, cell)
        except MISFIT as error:
            raise AttnError(
                f"{self.spell(step, cell)}: the line that the dump gives for it does not fit its numbers "
                f"({error}); attnctl check goes through them all"
            ) from error

        gives_another = explanation.gives is not None
        if gives_another and any(edit.step == step for edit in self.edits):
            return self.explain_edit(step, cell, ROW_EDITED)
        return explanation

    def explain_edit(self, step: str, cell: Cell, note: str) -> Explanation:
        line = self.trace.steps[step]
        by_hand = replace(line, op=Given(), inputs=(), formula=BY_HAND)
        value = float(self.trace[step][cell])
        return Explanation(by_hand, cell, self.spell(step, cell), value, expr=Number(value), notes=(note,))

    def work_out(self, step: str, cell: Cell) -> Explanation:
        line = self.trace.steps[step]
        inputs = self.inputs_of(line)
        expr = self.arithmetic(line, cell, inputs)
        shown = expr if self.full else abridge(expr, SHOWN, LONG)
        inputs_shown = read_by(shown, line)

        value = float(self.trace[step][cell])
        kinds = [self.dtype, self.trace[step].dtype, *(array.dtype for array in inputs)]
        outcome = settle(expr, shown, value, kinds)

        return Explanation(
            step=line,
            cell=cell,
            name=self.spell(step, cell),
            value=value,
            expr=shown,
            inputs=inputs_shown,
            rounding=outcome.rounding,
            gives=outcome.gives,
            notes=tuple(self.notes(line, cell)),
            unlisted=len(read_by(expr, line)) - len(inputs_shown),
        )

    def arithmetic(self, line: Step, cell: Cell, inputs: Sequence[Array]) -> Expr:
        if isinstance(line.op, Given):
            return Number(float(self.trace[line.name][cell]))
        if line.name not in self.forms:
            self.forms[line.name] = filler(form_of(line.op, len(cell), inputs), inputs)
        return self.forms[line.name](cell)

    def inputs_of(self, line: Step) -> list[Array]:
        """The arrays that a line reads. Raises AttnError naming those that are not there."""
        if isinstance(line.op, Unstated):
            unknown = "this dump does not say how it came about, and the steps it could have come from"
            keep = "keep Q, K and V (or X and the weights) beside it"
            meant = "or say what was meant (--causal, --window, …)"
            raise AttnError(f"{line.name}: {unknown} are not in it; {keep}, {meant}")

        lacking = [name for name in line.inputs if name not in self.trace]
        if lacking:
            verb, them = ("is", "it") if len(lacking) == 1 else ("are", "them")
            sources = " and ".join(line.inputs)
            absent = f"{' and '.join(lacking)} {verb} not in this dump"
            steps = ",".join((*line.inputs, line.name))
            raise AttnError(
                f"{line.name}: it comes from {sources}, but {absent}; keep {them} too (--step {steps})"
            )
        return [self.trace[name] for name in line.reads]

    def notes(self, line: Step, cell: Cell) -> Iterator[str]:
        if line.name not in self.recorded:
            yield COMPUTED

        # A weight is 0 where its score is hidden.
        score = line.inputs[0] if isinstance(line.op, Softmax) else line.name
        if score not in self.trace:
            return
        score_line = self.trace.steps[score]
        if not isinstance(score_line.op, Hide):
            return

        masks = [self.trace[name] for name in score_line.inputs[1:] if name in self.trace]
        reason = score_line.op.reason(cell, self.trace[score].shape, *masks)
        if reason >= 0:
            yield HIDDEN.format(reasons(score_line.op)[reason])

    def root(self, address: Address, depth: int = 1) -> Node:
        """The tree back from a cell, `depth` lines in all. Raises AttnError where a source is missing."""
        address = address.spell_out(self.trace)
        node = self.tree(address.step, address.cell(self.trace), depth)
        if node.why_not:
            raise AttnError(node.why_not)
        return node

    def parts(self, node: Node) -> Parts | None:
        """The parts of a score where positions are added; None for anything else."""
        if node.explanation is None or not node.explanation.inputs:
            return None
        try:
            with np.errstate(all="ignore"):
                return parts_of(self.trace, node.step, node.cell)
        except MISFIT:
            return None

    def forward_of(self, step: str) -> dict[str, list[str]]:
        """The steps of the forward pass that a gradient `reads`, and those `behind` what else it reads.

        They are what a kernel has to keep, or to compute again; nothing for what is no gradient.
        """
        lines = self.trace.steps
        read = self.read_in(step) if is_gradient(step) else ()
        reached = set(read)
        for name in reversed(lines):
            if name in reached and is_gradient(name):
                reached.update(self.read_in(name))

        forward = [name for name in lines if name in reached and not is_gradient(name)]
        return {
            "reads": [name for name in forward if name in read],
            "behind": [name for name in forward if name not in read],
        }

    def read_in(self, name: str) -> Sequence[str]:
        """The steps whose numbers a line reads; where some are not there, all that it names."""
        line = self.trace.steps[name]
        if isinstance(line.op, Given | Unstated) or not all(input_ in self.trace for input_ in line.inputs):
            return line.inputs
        form = form_of(line.op, self.trace[name].ndim, self.inputs_of(line))
        return [line.reads[position] for position in positions(form)]

    def tree(self, step: str, cell: Cell, depth: int, seen: dict[Reference, int] | None = None) -> Node:
        """The cell, explained where it can be, and the cells it came from, found as they are asked for.

        A cell is explained once, and `repeated` after that; `seen` holds how far back each was followed.
        """
        seen = {} if seen is None else seen
        value = float(self.trace[step][cell])
        bare = Node(step, cell, self.spell(step, cell), value, explanation=None, children=iter(()))
        if depth < 1:
            return bare

        depth = min(depth, self.height[step])
        if seen.get((step, cell), 0) >= depth and self.trace.steps[step].inputs:
            return replace(bare, repeated=True)
        seen[step, cell] = depth

        try:
            explanation = self.explain(step, cell)
        except AttnError as error:
            return replace(bare, why_not=str(error))
        children = (self.tree(*input_, depth - 1, seen) for input_ in explanation.inputs)
        return replace(bare, explanation=explanation, children=children)


def reasons(op: Hide) -> list[str]:
    """The rules and masks that may hide a score, in the order in which `Hide.hidden_by` counts."""
    return [*(rule.label for rule in op.rules), "the given mask"]


def explain(trace: Trace, address: str | Address, settings: Settings | None = None) -> Explanation:
    """Explain one cell: ``explain(trace, "attention_weights[0,love,AI]")``.

    `settings` say what kind of attention a foreign dump's numbers are meant to be. Raises
    AttnError where there is no such cell, or where the dump lacks what it came from.
    """
    if isinstance(address, str):
        address = parse_address(address)
    node = Explainer(trace, settings).root(address)
    assert node.explanation is not None
    return node.explanation


def read_by(expr: Expr, line: Step) -> tuple[Reference, ...]:
    """The cells that an expression's numbers were read from, each once."""
    sources = (number.source for number in numbers(expr) if number.source)
    return tuple(dict.fromkeys((line.reads[position], cell) for position, cell in sources))


class Settled(NamedTuple):
    """What rounding added to a value; or, where that is another number, what the arithmetic `gives`."""

    rounding: float
    gives: float | None = None


def settle(expr: Expr, shown: Expr, value: float, kinds: list[np.dtype[Any]]) -> Settled:
    """Hold a value to its arithmetic.

    `expr` is all of the arithmetic, `shown` what is written of it: added up in another order, so
    that rounding differs. `kinds` are the types of number it was worked out in; the coarsest decides
    what rounding may do.
    """
    limits = [np.finfo(kind) for kind in kinds if kind.kind == "f"]
    coarsest = max(limits, key=lambda limit: limit.eps)
    result, slack = evaluate(expr, float(coarsest.eps), float(coarsest.smallest_subnormal))
    if result == value and shown is expr:
        return Settled(0.0)
    if isnan(result) and isnan(value):
        return Settled(0.0)

    same_sign = (result > 0) == (value > 0)
    if isinf(value) and abs(result) + slack > float(coarsest.max) and same_sign:
        return Settled(0.0)  # an overflow
    # Written so that a gap of NaN counts as large.
    if result != value and not abs(value - result) <= slack:
        return Settled(0.0, gives=result)

    difference = value - evaluate(shown, 0.0).value
    is_shown = abs(difference) > NEGLIGIBLE * abs(value)
    return Settled(difference if is_shown else 0.0)


class RecordedEdit(NamedTuple):
    """An edit that a dump records: its text, its step, and where it applies."""

    text: str
    step: str
    places: tuple[int | slice, ...]
    """Of the cells, by axis; a slice is a whole axis."""

    def changes(self, step: str, cell: Cell) -> bool:
        if step != self.step:
            return False
        pairs = zip(cell, self.places, strict=True)
        return all(isinstance(edited, slice) or edited == place for place, edited in pairs)


def edits_of(trace: Trace) -> Iterator[RecordedEdit]:
    """Every edit that the dump records and whose step is in it. Raises AttnError where it is no edit."""
    recorded = trace.header.get("edits", [])
    for edit in recorded if isinstance(recorded, list) else [None]:
        text = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(text, str):
            raise AttnError('$.edits: expected a list of objects with the text of an "edit"')
        address, _ = parse_start(text)
        if address.step in trace:
            yield RecordedEdit(text, address.step, address.resolve(trace))


def labels(trace: Trace, step: str, cell: Cell) -> Mapping[str, str]:
    """The tokens of a cell by axis: {"query": "love", "key": "AI"}."""
    words: dict[str, str] = {}
    for number, (axis, place) in enumerate(zip(trace.steps[step].axes, cell, strict=True)):
        tokens = trace.tokens_along(step, number)
        if tokens is not None:
            words[axis] = tokens[place]
    return words


# --- a score split by what it came from: tokens, their positions, biases ---
#
# Where positions are added, X = embeddings + positions, and queries and keys are linear in X. With
# t what came from the token, p what came from its position and b the bias, q·k is
# (t + p + b)·(t' + p' + b'): four products of tokens and positions, and those that a bias is in.
# Rotary positions, shared heads, a cache and every other line that is linear keep the parts apart. What no
# position was added to (the other sentence of cross-attention, the keys of a cache) counts as token.

Parts = dict[str, float]  # what each pair of parts gave to a score, by name; they add up to the score
Sides = dict[str, Array]  # a row of Q or K in parts that add up to it

TOKEN = "token"  # noqa: S105 - a part of a score
POSITION = "position"
BIAS = "bias"
REST = "rest"  # what the parts do not account for: rounding, or a number that was changed on the way
CLOSE = 1e-12  # a rest below this part of the score is not worth a line


def parts_of(trace: Trace, step: str, cell: Cell) -> Parts | None:
    """The parts of a cell of `scores` or `scaled_scores`; None for others, and without positions."""
    line = trace.steps[step]
    if any(name not in trace for name in line.inputs):
        return None
    match line.op:
        case MatMulT():
            parts = parts_of_product(trace, line.inputs, cell)
        case Scale(d_k, factor):
            unscaled = parts_of(trace, line.inputs[0], cell)
            by = 1 / sqrt(d_k) if factor is None else factor
            parts = scale_parts(unscaled, by) if unscaled else None
        case _:
            return None

    value = float(trace[step][cell])
    if parts is None or not isfinite(value):
        return None
    rest = value - fsum(parts.values())
    if abs(rest) > CLOSE * abs(value):
        parts[REST] = rest
    return parts


def scale_parts(parts: Parts, by: float) -> Parts:
    """The parts, scaled, without the rest, which is found anew."""
    return {name: part * by for name, part in parts.items() if name != REST}


def parts_of_product(trace: Trace, inputs: tuple[str, ...], cell: Cell) -> Parts | None:
    """None where no position was added."""
    *lead, row, column = cell
    try:
        query = parts_of_row(trace, inputs[0], (*lead, row))
        key = parts_of_row(trace, inputs[1], (*lead, column))
    except ApartError:
        return None
    if POSITION not in query | key:
        return None

    parts = {f"{a}×{b}": 0.0 for a, b in product((TOKEN, POSITION), repeat=2)}
    if BIAS in query | key:
        parts[BIAS] = 0.0
    for (a, left), (b, right) in product(query.items(), key.items()):
        name = BIAS if BIAS in {a, b} else f"{a}×{b}"
        parts[name] = fsum([parts[name], *(left * right).tolist()])
    return parts


def parts_of_row(trace: Trace, name: str, at: Cell) -> Sides:
    """The row of Q or K at ([batch,] head, row) in parts. Raises ApartError where lines mix them."""
    row: Sides = {}
    for leaf in trace.steps.values():
        is_weight = leaf.symbol == "W"
        if is_weight or any(input_ in trace for input_ in leaf.inputs):
            continue
        lines = course(trace, leaf.name, name)
        if not lines:
            continue

        pushed = lines.push(leaf.name, trace[leaf.name].astype(float))
        missing_axes = len(at) + 1 - pushed.ndim  # it may lack leading axes
        row_of_leaf = pushed[at[missing_axes:]].astype(float)
        part = part_of_leaf(leaf)
        row[part] = row[part] + row_of_leaf if part in row else row_of_leaf
    return row


def part_of_leaf(leaf: Step) -> str:
    if leaf.name == POSITIONS:
        return POSITION
    return BIAS if leaf.symbol == "b" else TOKEN


# --- lines that a foreign dump does not state, from what they were meant to be ---


class Filled(Mapping[str, Array]):
    """The arrays of a dump, kept once read; steps that it leaves out are computed when asked for."""

    def __init__(self, recorded: Mapping[str, Array], steps: Mapping[str, Step]) -> None:
        self.recorded = recorded
        self.steps = steps
        self.known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name in self.recorded and name not in self.known:
            self.known[name] = self.recorded[name]
        elif name not in self.known:
            step = self.steps[name]
            with np.errstate(all="ignore"):
                self.known[name] = step.op.apply(*(self[input_] for input_ in step.inputs))
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)


def restate(trace: Trace, settings: Settings | None) -> Trace:
    """The trace in our layout, every step with its line as far as it can be told, gaps filled on demand.

    `settings` say what kind of attention it is meant to be. Raises AttnError where the dump says so itself.
    """
    if any(isinstance(step.op, Unstated) for step in trace.steps.values()):
        from attnctl.inputs.plan.intended import derive_plan

        ours, plan = derive_plan(trace, settings or Settings())
    elif settings is not None:
        raise AttnError(
            "this dump says itself how each number came about; leave out the options for attention "
            "(they say what the arrays of other programs were meant to be)"
        )
    else:
        as_configured = plan_of_config(trace)
        if as_configured is None:
            return replace(trace, arrays=Filled(trace, trace.steps))
        ours, plan = as_configured

    arrays = {**trace, **ours}
    lines = {step.name: step for step in available(plan.derivation, arrays)}
    others = {name: step for name, step in {**trace.steps, **ours.steps}.items() if name not in lines}
    steps = {name: describe_step(step, arrays) for name, step in {**lines, **others}.items()}
    return replace(trace, steps=steps, arrays=Filled(arrays, steps))


def plan_of_config(trace: Trace) -> tuple[Trace, DumpPlan] | None:
    """The lines that a dump leaves out, as its config says them; None where there is nothing to add.

    Of a model's layer, and after an edit, the config does not tell all.
    """
    is_complete = all(name in trace for step in trace.steps.values() for name in step.inputs)
    if is_complete or not trace.config or {"model", "edits"} & trace.header.keys():
        return None

    from attnctl.inputs.plan.intended import plan_dump

    try:
        return plan_dump(trace)
    except AttnError:
        return None


def describe_step(step: Step, arrays: Mapping[str, Array]) -> Step:
    """The step with as many axes as its numbers have; one that can only have been handed in says so."""
    if step.name in arrays and len(step.axes) != arrays[step.name].ndim:
        axes = tuple(f"axis {number}" for number in range(arrays[step.name].ndim))
        step = replace(step, axes=axes)
    if isinstance(step.op, Unstated) and step.name in leaves():
        return replace(step, op=Given(), inputs=(), formula="given")
    return step


def available(lines: Iterable[Step], arrays: Mapping[str, Array]) -> Iterator[Step]:
    """The lines whose numbers are recorded, or can be computed from those that are."""
    known = set(arrays)
    for step in lines:
        is_computed = not isinstance(step.op, Given | Unstated)
        if step.name in arrays or (is_computed and known.issuperset(step.inputs)):
            known.add(step.name)
            yield step

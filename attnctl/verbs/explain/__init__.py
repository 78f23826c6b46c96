"""How one number of a trace came about: its line, its arithmetic, the cells that were read for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum, isfinite, isinf, isnan, sqrt
from sys import maxsize
from typing import Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import number_text
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import derive_plan, plan_dump
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

Reference = tuple[str, Cell]

COMPUTED = "not in this dump: computed from what is"
HIDDEN = "hidden by {}"
EDITED = "edited: {}"
ROW_EDITED = "changed by an edit of this step: its row was made to sum to 1 again"
BY_HAND = "edited"
"""What stands beside a cell, and for the formula of one whose number was put there by hand."""

LONG, SHOWN = 64, 12
"""A sum of more terms is long: so many of its largest are written out, the rest is one number."""

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
        self.own = set(trace)
        self.spell = Speller(self.trace)
        self.edits = tuple(edits_of(self.trace))
        self.forms: dict[str, Callable[[Cell], Expr]] = {}
        self.height: dict[str, int] = {}
        for name, line in self.trace.steps.items():
            below = max((self.height.get(input_, 1) for input_ in line.inputs), default=0)
            self.height[name] = maxsize if line.op.recurrent else 1 + below

    def explain(self, step: str, cell: Cell) -> Explanation:
        """The explanation of one cell. Raises AttnError where the dump lacks what it came from."""
        for text, edited, index in self.edits:
            places = zip(cell, index, strict=True)  # a slice is a whole axis
            if edited == step and all(isinstance(at, slice) or at == own for own, at in places):
                return self.explain_edit(step, cell, EDITED.format(text))
        try:
            with np.errstate(all="ignore"):
                found = self.work_out(step, cell)
        except MISFIT as error:
            raise AttnError(
                f"{self.spell(step, cell)}: the line that the dump gives for it does not fit its numbers "
                f"({error}); attnctl check goes through them all"
            ) from error
        if found.gives is not None and any(edited == step for _, edited, _ in self.edits):
            return self.explain_edit(step, cell, ROW_EDITED)
        return found

    def explain_edit(self, step: str, cell: Cell, note: str) -> Explanation:
        own = self.trace.steps[step]
        line = Step(step, Given(), (), own.axes, BY_HAND, own.symbol)
        value = float(self.trace[step][cell])
        return Explanation(line, cell, self.spell(step, cell), value, Number(value), notes=(note,))

    def work_out(self, step: str, cell: Cell) -> Explanation:
        line = self.trace.steps[step]
        inputs = self.inputs_of(line)
        expr = self.arithmetic(line, cell, inputs)
        shown = expr if self.full else abridge(expr, SHOWN, LONG)
        read = read_by(shown, line)
        value = float(self.trace[step][cell])
        kinds = [self.dtype, self.trace[step].dtype, *(array.dtype for array in inputs)]
        rounding, gives = settle(expr, shown, value, kinds)
        name, notes = self.spell(step, cell), tuple(self.notes(line, cell))
        unlisted = len(read_by(expr, line)) - len(read)
        return Explanation(line, cell, name, value, shown, read, rounding, gives, notes, unlisted)

    def arithmetic(self, line: Step, cell: Cell, inputs: Sequence[Array]) -> Expr:
        if isinstance(line.op, Given):
            return Number(float(self.trace[line.name][cell]))
        if line.name not in self.forms:
            self.forms[line.name] = filler(form_of(line.op, len(cell), inputs), inputs)
        return self.forms[line.name](cell)

    def inputs_of(self, line: Step) -> list[Array]:
        """The arrays that a line reads. Raises AttnError naming those that are not there."""
        if isinstance(line.op, Unstated):
            raise AttnError(
                f"{line.name}: this dump does not say how it came about, and the steps it could have "
                "come from are not in it; keep Q, K and V (or X and the weights) beside it, or say what "
                "was meant (--causal, --window, …)"
            )
        lacking = [name for name in line.inputs if name not in self.trace]
        if lacking:
            verb, them = ("is", "it") if len(lacking) == 1 else ("are", "them")
            raise AttnError(
                f"{line.name}: it comes from {' and '.join(line.inputs)}, but {' and '.join(lacking)} "
                f"{verb} not in this dump; keep {them} too (--step {','.join((*line.inputs, line.name))})"
            )
        return [self.trace[name] for name in line.reads]

    def notes(self, line: Step, cell: Cell) -> Iterator[str]:
        if line.name not in self.own:
            yield COMPUTED
        score = line.inputs[0] if isinstance(line.op, Softmax) else line.name
        op = self.trace.steps[score].op if score in self.trace else None
        if isinstance(op, Hide):
            masks = [self.trace[name] for name in self.trace.steps[score].inputs[1:] if name in self.trace]
            first = op.reason(cell, self.trace[score].shape, *masks)
            if first >= 0:
                yield HIDDEN.format(reasons(op)[first])

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
        own = self.read_in(step) if is_gradient(step) else ()
        reached = set(own)
        for name in reversed(lines):
            if name in reached and is_gradient(name):
                reached.update(self.read_in(name))
        forward = [name for name in lines if name in reached and not is_gradient(name)]
        return {
            "reads": [name for name in forward if name in own],
            "behind": [name for name in forward if name not in own],
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
        value, name = float(self.trace[step][cell]), self.spell(step, cell)
        bare = Node(step, cell, name, value, None, iter(()))
        if depth < 1:
            return bare
        depth = min(depth, self.height[step])
        if seen.get((step, cell), 0) >= depth and self.trace.steps[step].inputs:
            return replace(bare, repeated=True)
        seen[step, cell] = depth
        try:
            found = self.explain(step, cell)
        except AttnError as error:
            return replace(bare, why_not=str(error))
        children = (self.tree(*input_, depth - 1, seen) for input_ in found.inputs)
        return replace(bare, explanation=found, children=children)


def reasons(op: Hide) -> list[str]:
    """The rules and masks that may hide a score, in the order in which `Hide.hidden_by` counts."""
    return [*(rule.label for rule in op.rules), "the given mask"]


def explain(trace: Trace, address: str | Address, settings: Settings | None = None) -> Explanation:
    """Explain one cell: ``explain(trace, "attention_weights[0,love,AI]")``.

    `settings` say what kind of attention a foreign dump's numbers are meant to be. Raises
    AttnError where there is no such cell, or where the dump lacks what it came from.
    """
    found = Explainer(trace, settings).root(parse_address(address) if isinstance(address, str) else address)
    assert found.explanation is not None
    return found.explanation


def read_by(expr: Expr, line: Step) -> tuple[Reference, ...]:
    """The cells that an expression's numbers were read from, each once."""
    sources = (number.source for number in numbers(expr) if number.source)
    return tuple(dict.fromkeys((line.reads[position], cell) for position, cell in sources))


def settle(expr: Expr, shown: Expr, value: float, kinds: list[np.dtype[Any]]) -> tuple[float, float | None]:
    """(what rounding added, None), or (0, what the arithmetic gives) where that is another number.

    `expr` is all of the arithmetic, `shown` what is written of it: added up in another order, so
    that rounding differs. `kinds` are the types of number it was worked out in; the coarsest decides
    what rounding may do.
    """
    coarsest = max((np.finfo(kind) for kind in kinds if kind.kind == "f"), key=lambda kind: kind.eps)
    found, slack = evaluate(expr, float(coarsest.eps), float(coarsest.smallest_subnormal))
    if (found == value and shown is expr) or (isnan(found) and isnan(value)):
        return 0.0, None
    if isinf(value) and abs(found) + slack > float(coarsest.max) and (found > 0) == (value > 0):
        return 0.0, None
    if found != value and not abs(value - found) <= slack:
        return 0.0, found
    difference = value - evaluate(shown, 0.0)[0]
    # Rounding below this part of a value is not worth a term of its own.
    return (difference if abs(difference) > 1e-13 * abs(value) else 0.0), None


def edits_of(trace: Trace) -> Iterator[tuple[str, str, tuple[int | slice, ...]]]:
    """Every edit that the dump records and whose step is in it: its text, its step, where it applies."""
    recorded = trace.header.get("edits", [])
    for edit in recorded if isinstance(recorded, list) else [None]:
        text = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(text, str):
            raise AttnError('$.edits: expected a list of objects with the text of an "edit"')
        address, _ = parse_start(text)
        if address.step in trace:
            yield text, address.step, address.resolve(trace)


def labels(trace: Trace, step: str, cell: Cell) -> Mapping[str, str]:
    """The tokens of a cell by axis: {"query": "love", "key": "AI"}."""
    along = (trace.tokens_along(step, axis) for axis in range(len(cell)))
    places = zip(trace.steps[step].axes, along, cell, strict=True)
    return {axis: tokens[at] for axis, tokens, at in places if tokens is not None}


# --- a score split by what it came from: tokens, their positions, biases ---
#
# Where positions are added, X = embeddings + positions, and queries and keys are linear in X. With
# t what came from the token, p what came from its position and b the bias, q·k is
# (t + p + b)·(t' + p' + b'): four products of tokens and positions, and those that a bias is in.
# Rotary positions, shared heads, a cache and every other line that is linear keep the parts apart. What no
# position was added to (the other sentence of cross-attention, the keys of a cache) counts as token.

Parts = dict[str, float]  # what each pair of parts gave to a score, by name; they add up to the score
Sides = dict[str, Array]  # a row of Q or K in parts that add up to it

TOKEN, POSITION, BIAS = "token", "position", "bias"
REST = "rest"  # what the parts do not account for: rounding, or a number that was changed on the way
CLOSE = 1e-12  # a rest below this part of the score is not worth a line


def parts_of(trace: Trace, step: str, cell: Cell) -> Parts | None:
    """The parts of a cell of `scores` or `scaled_scores`; None for others, and without positions."""
    line = trace.steps[step]
    if any(name not in trace for name in line.inputs):
        return None
    value = float(trace[step][cell])
    match line.op:
        case MatMulT():
            parts = parts_of_product(trace, line.inputs, cell)
        case Scale(d_k, factor):
            whole = parts_of(trace, line.inputs[0], cell)
            by = 1 / sqrt(d_k) if factor is None else factor
            parts = {name: part * by for name, part in whole.items() if name != REST} if whole else None
        case _:
            return None
    if parts is None or not isfinite(value):
        return None
    rest = value - fsum(parts.values())
    return parts | ({REST: rest} if abs(rest) > CLOSE * abs(value) else {})


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
    parts |= {BIAS: 0.0} if BIAS in query | key else {}
    for (a, left), (b, right) in product(query.items(), key.items()):
        name = BIAS if BIAS in {a, b} else f"{a}×{b}"
        parts[name] = fsum([parts[name], *(left * right).tolist()])
    return parts


def parts_of_row(trace: Trace, name: str, at: Cell) -> Sides:
    """The row of Q or K at ([batch,] head, row) in parts. Raises ApartError where lines mix them."""
    out: Sides = {}
    for leaf in trace.steps.values():
        if leaf.symbol == "W" or any(input_ in trace for input_ in leaf.inputs):
            continue
        if lines := course(trace, leaf.name, name):
            part = POSITION if leaf.name == POSITIONS else BIAS if leaf.symbol == "b" else TOKEN
            pushed = lines.push(leaf.name, trace[leaf.name].astype(float))
            row = pushed[at[len(at) + 1 - pushed.ndim :]].astype(float)  # it may lack leading axes
            out[part] = out[part] + row if part in out else row
    return out


# --- lines that a foreign dump does not state, from what they were meant to be ---


class Filled(Mapping[str, Array]):
    """The arrays of a dump, kept once read; steps that it leaves out are computed when asked for."""

    def __init__(self, recorded: Mapping[str, Array], steps: Mapping[str, Step]) -> None:
        self.recorded, self.steps = recorded, steps
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
        ours, plan = derive_plan(trace, settings or Settings())
    elif settings is not None:
        raise AttnError(
            "this dump says itself how each number came about; leave out the options for attention "
            "(they say what the arrays of other programs were meant to be)"
        )
    else:
        lacks = any(name not in trace for step in trace.steps.values() for name in step.inputs)
        tells = trace.config and not {"model", "edits"} & trace.header.keys()
        try:  # what was left out follows from what is there, as the config says
            found = plan_dump(trace) if lacks and tells else None
        except AttnError:
            found = None
        if found is None:
            return replace(trace, arrays=Filled(trace, trace.steps))
        ours, plan = found
    arrays = {**trace, **ours}
    lines = {step.name: step for step in available(plan.derivation, arrays)}
    others = {name: step for name, step in {**trace.steps, **ours.steps}.items() if name not in lines}
    steps = {name: describe_step(step, arrays) for name, step in {**lines, **others}.items()}
    return replace(trace, steps=steps, arrays=Filled(arrays, steps))


def describe_step(step: Step, arrays: Mapping[str, Array]) -> Step:
    """The step with as many axes as its numbers have; one that can only have been handed in says so."""
    if step.name in arrays and len(step.axes) != arrays[step.name].ndim:
        step = replace(step, axes=tuple(f"axis {at}" for at in range(arrays[step.name].ndim)))
    if isinstance(step.op, Unstated) and step.name in leaves():
        return replace(step, op=Given(), inputs=(), formula="given")
    return step


def available(lines: Iterable[Step], arrays: Mapping[str, Array]) -> Iterator[Step]:
    """The lines whose numbers are recorded, or can be computed from those that are."""
    there = set(arrays)
    for step in lines:
        stated = not isinstance(step.op, Given | Unstated)
        if step.name in arrays or (stated and there.issuperset(step.inputs)):
            there.add(step.name)
            yield step

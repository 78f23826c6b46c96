"""A line of a derivation, name = op(inputs); the list of them; the lines that lead back to gradients."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from attnctl.base.dataclass import dataclass
from attnctl.math.names import DELTA, HEAD_OUTPUTS, LOGSUMEXP, OUTPUT, TABLE, gradient_of, gradient_via
from attnctl.math.ops import Given, MatMul, Op
from attnctl.math.ops.base import AddAll, Gradients, Line

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One line of the derivation: name = op(inputs)."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    axes: Axes
    formula: str
    symbol: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The steps whose cells its form reads: its inputs, and itself where it is recurrent."""
        return (*self.inputs, self.name) if self.op.recurrent else self.inputs

    @property
    def is_n_by_n(self) -> bool:
        """True where it is computed for each query and key."""
        return self.axes[-2:] == ("query", "key") and not isinstance(self.op, Given)


@dataclass(frozen=True)
class Derivation:
    """The lines in order; each reads only names that stand above it."""

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> Step:
        return self.by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    @cached_property
    def by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    @property
    def given(self) -> tuple[str, ...]:
        """The names that must be handed in."""
        return tuple(step.name for step in self.steps if isinstance(step.op, Given))


Lines = Iterator[Step]


# --- the backward pass: more lines of the same list, from its last to its first ---
#
# Each line gives, by the adjoint of its op, the lines of the gradients by its inputs. What several
# lines read has a gradient by each of the ways, and their sum.


def backward(steps: Sequence[Step], given: Mapping[str, str]) -> Lines:
    """The gradient of the loss by every name that what attention gives follows from.

    `given` says how what is handed in came about: `d_output`, or `d_head_outputs` where there is no
    projection, and `d_logsumexp` where the loss is a function of that, too.
    """
    by_name = {step.name: step for step in steps}
    roots = [root_of(by_name)]
    if gradient_of(LOGSUMEXP) in given:
        roots.append(LOGSUMEXP)

    leading = ancestors(steps, roots)
    reached = [step for step in steps if step.name in leading]
    readers = {step.name: [reader for reader in reached if step.name in reader.inputs] for step in reached}

    for root in roots:
        name = gradient_of(root)
        yield like(by_name[root], name, Given(), inputs=(), formula=given.get(name, "given"))

    terms: dict[str, list[str]] = {}  # the gradients by what several lines read, one for each of these
    for step in reversed(reached):
        for line in gradients(step, by_name, readers):
            if line.by not in step.inputs:
                rows = step.axes[:-1]  # a number for each row of the weights
                yield Step(line.by, line.op, line.inputs, rows, formula=line.formula, symbol="δ")
                continue
            if line.by not in by_name:  # nobody recorded it
                continue

            source = by_name[line.by]
            is_sum = len(readers[source.name]) > 1
            name = gradient_via(source.name, step.name) if is_sum else gradient_of(source.name)
            yield like(source, name, line.op, inputs=line.inputs, formula=line.formula)

            parts = terms.setdefault(source.name, [])
            parts.append(name)
            if is_sum and len(parts) == len(readers[source.name]):
                total = gradient_of(source.name)
                yield like(source, total, AddAll(), inputs=tuple(parts), formula=" + ".join(parts))


def root_of(steps: Container[str]) -> str:
    """Return the step the loss is a function of: the output, or the heads' where nothing projects it."""
    return OUTPUT if OUTPUT in steps else HEAD_OUTPUTS


def ancestors(steps: Iterable[Step], wanted: Iterable[str]) -> set[str]:
    found = set(wanted)
    for step in reversed(list(steps)):
        if step.name in found:
            found |= set(step.inputs)
    return found


def gradients(step: Step, steps: Mapping[str, Step], readers: Mapping[str, Sequence[Step]]) -> Gradients:
    """The lines that the adjoint of a step gives.

    Σ over keys of A ∘ d_A, which softmax needs, is Σ over d_v of Z ∘ d_Z where Z = A V: a sum over fewer
    numbers, of what is kept anyway (Dao et al. 2022, appendix B.2).
    """
    axes = tuple(steps[name].axes if name in steps else TABLE[name].axes for name in step.inputs)
    line = Line(step.name, step.inputs, axes)
    for line_back in step.op.adjoint(line, gradient_of(step.name)):
        if line_back.by != DELTA or not isinstance(readers[step.name][0].op, MatMul):
            yield line_back
            continue

        mixed = readers[step.name][0].name
        formula = f"Σ over d_v of {gradient_of(mixed)} ∘ {mixed}"
        yield line_back._replace(inputs=(gradient_of(mixed), mixed), formula=formula)


def like(step: Step, name: str, op: Op, *, inputs: tuple[str, ...], formula: str) -> Step:
    """The gradient by a step: a line with its axes."""
    return Step(name, op, inputs, step.axes, formula=formula, symbol=f"d{step.symbol}")

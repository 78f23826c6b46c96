"""Which part of a trace is looked at, and what is said of a step."""

from __future__ import annotations

from attnctl.base.dataclass import dataclass
from attnctl.base.trace import Trace
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS, result_in


@dataclass(frozen=True)
class View:
    """The part of a trace to show: which steps (None: all) and heads, how many decimals, how much of it.

    `brief` is attention weights and result only; `full` shortens nothing on a terminal. `heat` draws
    heat maps instead of numbers, by logarithm or without the first key if asked.
    """

    steps: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None
    precision: int = 4
    brief: bool = False
    full: bool = False
    heat: bool = False
    log: bool = False
    without_first: bool = False


def steps_of(trace: Trace, view: View) -> list[Step]:
    """The steps to show, in order.

    Raises AttnError naming each that is not there.
    """
    if view.steps is not None:
        return list(trace.select(view.steps).steps.values())
    if view.brief:
        return [step for step in trace.steps.values() if step.name in (WEIGHTS, *result_in(trace))]
    return list(trace.steps.values())


def formula_of(step: Step) -> str:
    """`A = softmax over keys`; a formula that begins with its own symbol says it all."""
    own = step.formula.startswith(f"{step.symbol} ")
    return step.formula if own else f"{step.symbol} = {step.formula}"


def shape_of(trace: Trace, step: Step) -> str:
    """`2 × 3 × 3 (head, query, key)`."""
    shape = trace[step.name].shape
    return f"{' × '.join(map(str, shape))} ({', '.join(step.axes)})" if shape else "a single number"

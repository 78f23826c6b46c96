"""What a calculator makes of explanations: an evaluator of its own, and every cell of a trace."""

from __future__ import annotations

import math
import random

import numpy as np

from attnctl.verbs.explain import Explainer

FUNCTIONS = {name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh", "cos", "sin")}
TOLERANCE = 1e-12


def evaluated(expression: str) -> float:
    """The value of an expression of numbers, + - * / ( ) and these functions, and nothing else."""
    if expression in {"Infinity", "-Infinity", "NaN"}:
        return float(expression)
    return float(eval(compile(expression, "", "eval"), {"__builtins__": {}}, FUNCTIONS))


def close(actual: float, expected: float) -> bool:
    """Equal within 1e-12 of the expected value itself, whatever cancelled on the way."""
    return actual == expected or abs(actual - expected) <= TOLERANCE * abs(expected)


def check_cells(trace, most=None):
    """Explain every cell (or `most` of each step) and evaluate it; returns how many were."""
    explainer = Explainer(trace)
    count = 0
    for name in trace:
        cells = list(np.ndindex(trace[name].shape))
        if most is not None and len(cells) > most:
            cells = random.Random(0).sample(cells, most)
        for cell in cells:
            found = explainer.explain(name, cell)
            assert found.gives is None, (found.name, found.gives, found.value)
            assert found.value == float(trace[name][cell])
            assert close(evaluated(found.expression), found.value), (found.name, found.expression)
            for step, at in found.inputs:
                assert step in trace.steps[name].inputs
                assert len(at) == trace[step].ndim
        count += len(cells)
    return count

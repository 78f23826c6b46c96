"""Read who sees whom off the scores: −∞ is a key that its query does not see."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.base.trace import Trace
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import MASK, WEIGHTS
from attnctl.math.ops import Add, Hide, SinkSoftmax, Softmax

EDIT, OVERFLOW = "an edit", "overflow"
"""What hides a key that no rule, mask or bias hides."""


class Visible:
    """The keys that each query of a trace sees, and what hides the others."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.found: dict[str, tuple[list[str], Array]] = {}

    @property
    def source(self) -> str:
        """The scores that softmax made the weights of; empty where these are not what it made."""
        step = self.trace.steps.get(WEIGHTS)
        made = step is not None and isinstance(step.op, Softmax | SinkSoftmax)
        if step is None or not made or WEIGHTS in self.trace.edited or step.inputs[0] not in self.trace:
            return ""
        return step.inputs[0]

    def reasons(self, name: str) -> tuple[list[str], Array]:
        """The causes that hide keys, and for each score the number of its cause; −1 where it is seen.

        It is what made the score −∞ first, and it stayed so.
        """
        if name not in self.found:
            self.found[name] = self.read_reasons(name)
        return self.found[name]

    def read_reasons(self, name: str) -> tuple[list[str], Array]:
        words: list[str] = []
        why = np.full(self.trace[name].shape, -1)
        for step in self.chain(name):
            hidden = np.isneginf(self.trace[step.name])
            why[~hidden] = -1
            for word, where in self.causes(step):
                new = hidden & (why < 0) & where
                if new.any():
                    words += [word] * (word not in words)
                    why[new] = words.index(word)
        return words, why

    def chain(self, name: str) -> list[Step]:
        found: list[Step] = []
        while name in self.trace and self.trace.steps[name].axes[-2:] == ("query", "key"):
            found.insert(0, self.trace.steps[name])
            name = (*found[0].inputs, "")[0]
        return found

    def causes(self, step: Step) -> Iterator[tuple[str, Array]]:
        """Each cause that may have made scores −∞ at a step, and where, the first that did so first."""
        shape = self.trace[step.name].shape
        others = [np.asarray(self.trace[name]) for name in step.inputs[1:] if name in self.trace]
        if isinstance(step.op, Hide):
            by = step.op.hidden_by(shape, *others)
            names = [rule.name for rule in step.op.rules] + [MASK] * len(others)
            yield from ((word, by == at) for at, word in enumerate(names))
        if isinstance(step.op, Add) and others:
            yield step.inputs[1], np.broadcast_to(np.isneginf(others[0]), shape)
        yield EDIT if step.name in self.trace.edited else OVERFLOW, np.ones(shape, bool)

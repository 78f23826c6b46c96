"""Every wrong kernel held to a criterion: which pass, how wrong they are, and what tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, floor, inf, log10
from typing import Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import round_in
from attnctl.math import Array
from attnctl.mistakes.examples import RIGHT
from attnctl.verbs.mutants.criterion import Criterion, KernelOutcome, Outputs, hold
from attnctl.verbs.mutants.inputs import Inputs
from attnctl.verbs.mutants.kernel import Kernel
from attnctl.verbs.mutants.mutants import Mutant, make_mutants


@dataclass
class Runs:
    """What kernels give on some inputs; the right output of each kind is computed once, in float64."""

    inputs: Inputs
    criterion: Criterion
    asked: dict[frozenset[str], tuple[dict[str, Any], Outputs]] = field(default_factory=dict)
    """By options the arguments, and what is right."""

    def near(self, array: Array) -> Array:
        return round_in(self.inputs.dtype, array)

    def outcome(self, name: str, kernel: Kernel) -> KernelOutcome:
        arguments, right = self.meant(kernel)
        found = tuple(map(self.near, self.call(kernel, arguments)))
        return hold(name, found, right, self.criterion)

    def meant(self, kernel: Kernel) -> tuple[dict[str, Any], Outputs]:
        """The arguments of a kernel, and what is right; numbers of no shape where none is."""
        if kernel.options not in self.asked:
            arguments = self.inputs.arrays(kernel.options)
            wide = {name: widen(value) for name, value in arguments.items()}
            exact = replace(kernel, lines="", meant=kernel.options)
            self.asked[kernel.options] = arguments, self.call(exact, wide)
        return self.asked[kernel.options]

    def call(self, kernel: Kernel, arguments: Mapping[str, Any]) -> Outputs:
        """The outputs of a kernel; none of a shape where it cannot be called so."""
        with np.errstate(all="ignore"):
            try:
                found = kernel.made(near=self.near)(**arguments)
            except (ValueError, IndexError):
                return (np.zeros(0),) * (3 if kernel.backward else 1)
        return found if isinstance(found, tuple) else (found,)


def widen(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


# --- what tells them apart ---

SMALL = (2, 4, 37, 16)
"""Few numbers in each row, and no whole blocks: where most mistakes show most."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Bound:
    """A criterion that right programs meet on some inputs, and the wrong ones that do not."""

    inputs: Inputs
    criterion: Criterion
    told: frozenset[str]

    @property
    def command(self) -> str:
        return f"attnctl mutants {self.criterion.words()} {self.inputs.words()}"


def candidates(asked: Inputs) -> Iterator[Inputs]:
    """Inputs that may tell more, those nearest to what was asked for first."""
    yield asked
    for dtype in dict.fromkeys((asked.dtype, "float32")):
        for draw in ("randn", "activations"):
            yield replace(asked, shape=SMALL, draw=draw, dtype=dtype)


def bound_of(
    inputs: Inputs, wrong: Sequence[KernelOutcome], right: Sequence[KernelOutcome]
) -> Bound | None:
    """The least tolerance of one digit that is twice what right programs are off; None without end."""
    most = 2 * max(outcome.error for outcome in right)
    if not 0 < most < inf:
        return None
    digit = 10.0 ** floor(log10(most))
    criterion = Criterion(0.0, float(f"{ceil(most / digit) * digit:.1g}"))
    told = frozenset(outcome.name for outcome in wrong if outcome.error > (criterion.atol or 0.0))
    return Bound(inputs, criterion, told)


def fewest(bounds: Sequence[Bound], wanted: frozenset[str]) -> Iterator[Bound]:
    """The bounds that tell most of what is wanted, one after the other, those of the first type first."""
    for several in ([bound for bound in bounds if bound.inputs.dtype == bounds[0].inputs.dtype], bounds):
        while several:
            best = max(several, key=lambda bound: len(bound.told & wanted))  # the first of the best
            if not best.told & wanted:
                break
            yield best
            wanted -= best.told


# --- the survey ---


@dataclass(frozen=True)
class Survey:
    """What a criterion lets pass on some inputs."""

    criterion: Criterion
    inputs: Inputs
    mutants: tuple[Mutant, ...]
    wrong: tuple[KernelOutcome, ...]
    """What became of each mutant."""
    right: tuple[KernelOutcome, ...]
    bounds: tuple[Bound, ...]
    """What tells survivors apart, together."""
    left_out: Mapping[str, str]
    """Entries of the catalogue that are no kernel of Q, K and V, or not a wrong one, and why."""

    @property
    def survivors(self) -> list[KernelOutcome]:
        """Those that pass, the most wrong first."""
        return sorted((outcome for outcome in self.wrong if outcome.passes), key=lambda x: -x.relative)

    @property
    def agrees(self) -> bool:
        return not self.survivors

    def told_by(self, name: str) -> int | None:
        """The number of the first of the bounds by which it is told apart, from 1."""
        return next((at for at, bound in enumerate(self.bounds, 1) if name in bound.told), None)

    def to_dict(self) -> dict[str, Any]:
        inputs, mutants = self.inputs, {mutant.name: mutant for mutant in self.mutants}
        return {
            "schema": "attnctl.mutants/1",
            "criterion": {name: value for name, value in vars(self.criterion).items() if value is not None},
            "inputs": {**vars(inputs), "shape": list(inputs.shape)},
            "mutants": len(self.mutants),
            "survivors": [
                {**outcome.to_dict(), "mistake": mutants[outcome.name].mistake.name,
                 "words": mutants[outcome.name].words, "told_by": self.told_by(outcome.name)}
                for outcome in self.survivors
            ],
            "right": [outcome.to_dict() for outcome in self.right],
            "told_apart": [
                {"command": bound.command, "survivors": [
                    outcome.name for outcome in self.survivors if outcome.name in bound.told]}
                for bound in self.bounds
            ],
            "left_out": dict(self.left_out),
        }  # fmt: skip

    __str__ = Displayed.__str__
    _repr_mimebundle_ = Displayed._repr_mimebundle_


def survey(inputs: Inputs, criterion: Criterion, progress: Progress | None = None) -> Survey:
    """Hold every wrong kernel to a criterion, and look for what tells those that pass apart."""
    mutants, left_out = make_mutants(backward=inputs.backward)
    meant = Runs(inputs, criterion).meant
    small = [mutant for mutant in mutants if not all(array.size for array in meant(mutant.kernel)[1])]
    left_out |= {mutant.name: "the inputs are too small for its kind of attention" for mutant in small}
    mutants = [mutant for mutant in mutants if mutant not in small]
    tried = [*dict.fromkeys(candidates(inputs))]
    total, done = len(tried) * len(mutants), 0

    def outcomes(tried: Inputs) -> tuple[tuple[KernelOutcome, ...], tuple[KernelOutcome, ...]]:
        nonlocal done
        runs, wrong = Runs(tried, criterion), list[KernelOutcome]()
        for mutant in mutants:
            wrong.append(runs.outcome(mutant.name, mutant.kernel))
            done += 1
            if progress:
                progress(done, total)
        kernels = {name: Kernel(lines=lines, backward=inputs.backward) for name, lines in RIGHT.items()}
        return tuple(wrong), tuple(runs.outcome(name, kernel) for name, kernel in kernels.items())

    wrong, right = outcomes(inputs)
    survivors = frozenset(outcome.name for outcome in wrong if outcome.passes)
    more = ((other, *outcomes(other)) for other in tried[1:]) if survivors else ()
    bounds = [bound_of(*found) for found in ((inputs, wrong, right), *more)]
    told = fewest([bound for bound in bounds if bound], survivors)
    return Survey(criterion, inputs, tuple(mutants), wrong, right, tuple(told), left_out)

"""Every wrong kernel held to a criterion: which pass, how wrong they are, and what tells them apart.

They are tried on Q, K and V of a shape, as benchmarks draw them or models have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import product
from math import ceil, floor, inf, isfinite, log10, prod
from typing import Any, NamedTuple

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.workers import Engine, Result, call_each
from attnctl.evidence.precision import round_in
from attnctl.inputs.plan.tensors import stream
from attnctl.math import Array
from attnctl.math.rules import alibi_slopes
from attnctl.mistakes.examples import RIGHT
from attnctl.verbs.mutants.kernel import OPTIONS, Kernel, make_mutants

# --- what they are tried on ---

NUMBERS = {"window": (1, 1), "strided": 3, "softcap": 3.0}
"""What a kernel is handed for options of any inputs."""

SLOTS = 16
"""The keys of a page."""

DRAWS = ("rand", "randn", "activations")
TYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Inputs:
    """A draw of Q, K and V: batch, heads, tokens and columns; of a type, from a seed."""

    shape: tuple[int, int, int, int]
    draw: str = "randn"
    dtype: str = "float32"
    seed: int = 0
    backward: bool = False

    def words(self) -> str:
        """The options of the command line that say it."""
        shape = ",".join(map(str, self.shape))
        words = f"--dtype {self.dtype} --shape {shape} --draw {self.draw}"
        if self.backward:
            words += " --backward"
        if self.seed != 0:
            words += f" --seed {self.seed}"
        return words

    def arrays(self, options: Collection[str]) -> dict[str, Any]:
        """The arguments of a kernel with these options, by name."""
        batch, heads, n, d = self.shape
        kv_heads = max(heads // 2, 1) if "grouped" in options else heads
        queries = n - n // 4 if "cached" in options else n

        keys = (batch, kv_heads, n, d)
        if "paged" in options:
            pages = batch * -(-n // SLOTS) + 1  # the first is no member's
            keys = (pages, SLOTS, kv_heads, d)
        sizes = {"q": (batch, heads, queries, d), "k": keys, "v": keys}

        arrays = {}
        if self.backward:
            arrays["d_output"] = self.normal("d_output", sizes["q"])
        for name, size in sizes.items():
            arrays[name] = self.numbers(name, size)

        arguments: dict[str, Any] = {name: round_in(self.dtype, array) for name, array in arrays.items()}
        for option in sorted(options):
            if OPTIONS[option]:
                arguments[OPTIONS[option]] = self.argument(option)
        return arguments

    def argument(self, option: str) -> Any:
        """What a kernel is handed for an option; a mask has a row that sees the last key alone."""
        batch, heads, n, _ = self.shape
        match option:
            case "documents":
                return (0, n // 4, n // 2 + 1)
            case "mask":
                seen = stream(self.seed, "mutants", "mask", count=n * n).random_sample((n, n)) < 0.7
                seen |= np.eye(n, dtype=bool)  # what a row that sees nothing gives is a convention
                seen[n // 2] = np.arange(n) == n - 1
                return seen
            case "padded":
                return n - np.arange(batch) * (n // 3) // max(batch - 1, 1)
            case "paged":
                pages = np.arange(batch * -(-n // SLOTS)) + 1
                return pages[::-1].reshape(batch, -1)
            case "alibi":
                return round_in(self.dtype, alibi_slopes(heads))
            case "bias":
                return round_in(self.dtype, self.normal("bias", (n, n)))
            case "sink":
                return round_in(self.dtype, self.normal("sink", (heads,)))
        return NUMBERS.get(option, True)

    def normal(self, name: str, size: tuple[int, ...]) -> Array:
        return stream(self.seed, "mutants", name, count=prod(size)).standard_normal(size)

    def numbers(self, name: str, size: tuple[int, ...]) -> Array:
        """As torch.rand draws them, as torch.randn does, or as they are in trained models.

        Activations: columns of different sizes, values with a mean of their own, and heads that go from
        nearly even weights to one key for each query, so that some scores are far above 100.
        """
        if self.draw == "rand":
            return stream(self.seed, "mutants", name, count=prod(size)).random_sample(size)
        drawn = self.normal(name, size)
        if self.draw == "randn":
            return drawn

        drawn = drawn * np.exp(self.normal(f"{name} columns", size[-1:]) / 2)
        if name == "q":
            sharpness = 2 ** np.linspace(-1, 6, size[1])
            drawn = drawn * sharpness[:, None, None]
        if name == "v":
            drawn = drawn + self.normal("means", size[-1:]) / 2
        return drawn


# --- when they pass ---

Outputs = tuple[Array, ...]


@dataclass(frozen=True)
class Criterion:
    """When an output passes: how close its numbers are, which share of them, and its direction."""

    rtol: float | None = None
    atol: float | None = None
    ratio: float | None = None
    cosine: float | None = None

    def words(self) -> str:
        """The options of the command line that say it."""
        return " ".join(f"--{name} {value:g}" for name, value in vars(self).items() if value is not None)

    @property
    def by_number(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def outside(self, off: Array, right: Array) -> float:
        """The share of numbers that are too far off."""
        allowed = (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(right)
        return float(np.mean(~(off <= allowed)))

    def passes(self, found: Array, right: Array, outside: float) -> bool:
        if self.by_number:
            wanted_share = 1.0 if self.ratio is None else self.ratio
            if outside > 1 - wanted_share:
                return False
        return self.cosine is None or cosine_of(found, right) >= self.cosine


def cosine_of(found: Array, right: Array) -> float:
    """Of all numbers as one vector; that of zeros is 0."""
    a = found.ravel().astype(np.float64)
    b = right.ravel().astype(np.float64)
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


ASSERT_CLOSE = {
    "float64": Criterion(1e-7, 1e-7),
    "float32": Criterion(1.3e-6, 1e-5),
    "float16": Criterion(1e-3, 1e-5),
    "bfloat16": Criterion(1.6e-2, 1e-5),
}
"""What torch.testing.assert_close takes where nothing is said."""


@dataclass(frozen=True)
class KernelOutcome:
    name: str
    passes: bool
    error: float
    """The largest difference; ∞ where there is one without end, or another shape."""
    relative: float
    """The largest difference, by the largest right number of the same array."""
    outside: float
    """The share of numbers outside the criterion."""

    def to_dict(self) -> dict[str, Any]:
        return {name: "Infinity" if value == inf else value for name, value in vars(self).items()}


@np.errstate(all="ignore")  # a wrong kernel's numbers may have no end
def hold(name: str, found: Outputs, right: Outputs, criterion: Criterion) -> KernelOutcome:
    """Hold what came out to what is right, array by array; all have to pass."""
    error = 0.0
    relative = 0.0
    outside = 0.0
    passes = True
    for array, expected in zip(found, right, strict=True):
        if array.shape != expected.shape:
            return KernelOutcome(name, passes=False, error=inf, relative=inf, outside=1.0)

        off = np.abs(array - expected)
        largest = float(off.max(initial=0.0))
        if not isfinite(largest):  # NaN is as far off as ∞
            largest = inf
        largest_right = float(np.abs(expected).max(initial=0.0)) or 1.0
        outside_here = criterion.outside(off, expected)

        passes &= criterion.passes(array, expected, outside_here)
        error = max(error, largest)
        relative = max(relative, largest / largest_right)
        outside = max(outside, outside_here)
    return KernelOutcome(name, passes, error=error, relative=relative, outside=outside)


# --- kernels on some inputs ---


def hold_kernel(name: str, kernel: Kernel, inputs: Inputs, criterion: Criterion) -> KernelOutcome:
    arguments, right = ask(inputs, kernel.options)
    outputs = call_kernel(kernel, inputs, arguments)
    rounded = tuple(round_in(inputs.dtype, array) for array in outputs)
    return hold(name, rounded, right, criterion)


@lru_cache(maxsize=8)
def hold_right_ones(inputs: Inputs, criterion: Criterion) -> tuple[KernelOutcome, ...]:
    """What right programs give, each of which rounds in its own way."""
    outcomes = []
    for name, lines in RIGHT.items():
        kernel = Kernel(lines=lines, backward=inputs.backward)
        outcomes.append(hold_kernel(name, kernel, inputs, criterion))
    return tuple(outcomes)


@lru_cache(maxsize=32)
def ask(inputs: Inputs, options: frozenset[str]) -> tuple[dict[str, Any], Outputs]:
    """The arguments of a kernel with these options, and what is right, computed in float64."""
    arguments = inputs.arrays(options)
    wide = {name: widen(value) for name, value in arguments.items()}
    right = Kernel(options, meant=options, backward=inputs.backward)
    return arguments, call_kernel(right, inputs, wide)


def widen(value: Any) -> Any:
    is_real = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float64) if is_real else value


def call_kernel(kernel: Kernel, inputs: Inputs, arguments: Mapping[str, Any]) -> Outputs:
    """The outputs of a kernel; numbers of no shape where it cannot be called so."""
    with np.errstate(all="ignore"):
        try:
            result = kernel.made(near=partial(round_in, inputs.dtype))(**arguments)
        except (ValueError, IndexError):
            return (np.zeros(0),) * (3 if kernel.backward else 1)
    return result if isinstance(result, tuple) else (result,)


# --- what tells them apart ---

SMALL = (2, 4, 37, 16)
"""Few numbers in each row, and no whole blocks: where most mistakes show most."""

Progress = Callable[[int, int], None]

Bounds = dict[str, frozenset[str]]
"""Commands whose tolerance right programs meet, and the kernels that do not."""


def least_tolerance(right: tuple[KernelOutcome, ...]) -> float | None:
    """The least tolerance of one digit that is twice what right programs are off; None without end."""
    least = 2 * max(outcome.error for outcome in right)
    if not 0 < least < inf:
        return None
    digit = 10.0 ** floor(log10(least))
    return float(f"{ceil(least / digit) * digit:.1g}")


def fewest(bounds: Mapping[str, Bounds], wanted: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Those of bounds, by type, that tell most of what is wanted, one by one; of the first type first."""
    by_type = [*bounds.values()]
    of_all_types = {command: told for of_type in by_type for command, told in of_type.items()}
    for candidates in (*by_type[:1], of_all_types):
        while candidates:
            best = max(
                candidates, key=lambda command: len(candidates[command] & wanted)
            )  # the first of these
            if not candidates[best] & wanted:
                break
            yield best, candidates[best]
            wanted -= candidates[best]


def tell(mutant: Kernel) -> tuple[Inputs, KernelOutcome] | None:
    """Small inputs on which it is further off than right programs are; None where none were found."""
    for dtype, draw in product(("float32", "float64"), ("randn", "activations")):
        inputs = Inputs(SMALL, draw, dtype, backward=mutant.backward)
        outcome = hold_kernel(mutant.name, mutant, inputs, Criterion())
        least = least_tolerance(hold_right_ones(inputs, Criterion()))
        if least and outcome.error > least:
            return inputs, outcome
    return None


# --- by whom ---

AT_ONCE = 16
"""Kernels that a worker is told of at once."""


class KernelTask(NamedTuple):
    """Kernels to hold, by their names, as a worker makes them itself."""

    inputs: Inputs
    criterion: Criterion
    names: tuple[str, ...]


def hold_task(task: KernelTask, known: Mapping[str, Kernel] | None = None) -> list[KernelOutcome]:
    kernels = mutants_by_name(backward=task.inputs.backward) if known is None else known
    return [hold_kernel(name, kernels[name], task.inputs, task.criterion) for name in task.names]


@dataclass
class Trial:
    """Holds kernels to a criterion, here or by workers, and says how far it is."""

    mutants: Sequence[Kernel]
    criterion: Criterion
    total: int
    progress: Progress | None = None
    engine: Engine | None = None
    done: int = 0

    def hold(self, *several: Inputs) -> dict[Inputs, tuple[KernelOutcome, ...]]:
        tasks = list(self.tasks(several))
        held: dict[int, list[KernelOutcome]] = {}
        for number, outcomes in self.results(tasks):
            held[number] = outcomes
            self.done += len(outcomes)
            if self.progress:
                self.progress(self.done, self.total)

        # Workers answer in any order.
        by_inputs: dict[Inputs, tuple[KernelOutcome, ...]] = dict.fromkeys(several, ())
        for number, task in enumerate(tasks):
            by_inputs[task.inputs] += tuple(held[number])
        return by_inputs

    def tasks(self, several: Sequence[Inputs]) -> Iterator[KernelTask]:
        names = [mutant.name for mutant in self.mutants]
        at_once = 1 if self.engine is None else AT_ONCE
        for inputs in several:
            for start in range(0, len(names), at_once):
                yield KernelTask(inputs, self.criterion, tuple(names[start : start + at_once]))

    def results(self, tasks: Sequence[KernelTask]) -> Iterator[Result]:
        if self.engine is not None:
            yield from call_each(self.engine, hold_task, tasks)
            return
        known = {mutant.name: mutant for mutant in self.mutants}
        for number, task in enumerate(tasks):
            yield Result(number, hold_task(task, known))


@cache
def mutants_by_name(*, backward: bool) -> dict[str, Kernel]:
    return {mutant.name: mutant for mutant in make_mutants(backward=backward)[0]}


# --- the survey ---


@dataclass(frozen=True)
class Survey:
    criterion: Criterion
    inputs: Inputs
    mutants: tuple[Kernel, ...]
    wrong: tuple[KernelOutcome, ...]
    """What became of each mutant."""
    right: tuple[KernelOutcome, ...]
    bounds: Bounds
    """What tells survivors apart, together."""
    left_out: Mapping[str, str]
    """Entries of the catalogue that are no kernel of Q, K and V, or not a wrong one, and why."""

    @property
    def survivors(self) -> list[KernelOutcome]:
        """Those that pass, the most wrong first."""
        passing = [outcome for outcome in self.wrong if outcome.passes]
        return sorted(passing, key=lambda outcome: -outcome.relative)

    @property
    def agrees(self) -> bool:
        return not self.survivors

    def told_by(self, name: str) -> int | None:
        """The number of the first of the bounds by which it is told apart, from 1."""
        for number, told in enumerate(self.bounds.values(), 1):
            if name in told:
                return number
        return None

    def to_dict(self) -> dict[str, Any]:
        mutants = {mutant.name: mutant for mutant in self.mutants}
        survivors = []
        for outcome in self.survivors:
            told_by = self.told_by(outcome.name)
            survivors.append({**outcome.to_dict(), **mutants[outcome.name].said, "told_by": told_by})

        told_apart = []
        for command, told in self.bounds.items():
            names = [outcome.name for outcome in self.survivors if outcome.name in told]
            told_apart.append({"command": command, "survivors": names})

        return {
            "schema": "attnctl.mutants/1",
            "criterion": {name: value for name, value in vars(self.criterion).items() if value is not None},
            "inputs": {**vars(self.inputs), "shape": list(self.inputs.shape)},
            "mutants": len(self.mutants),
            "survivors": survivors,
            "right": [outcome.to_dict() for outcome in self.right],
            "told_apart": told_apart,
            "left_out": dict(self.left_out),
        }

    __str__ = Displayed.__str__
    _repr_mimebundle_ = Displayed._repr_mimebundle_


def survey(
    inputs: Inputs, criterion: Criterion, progress: Progress | None = None, engine: Engine | None = None
) -> Survey:
    """Hold every wrong kernel to a criterion, and look for what tells those that pass apart."""
    every, left_out = make_mutants(backward=inputs.backward)
    mutants = []
    for mutant in every:
        _, right = ask(inputs, mutant.options)
        if all(array.size for array in right):
            mutants.append(mutant)
        else:
            left_out[mutant.name] = "the inputs are too small for its kind of attention"

    # Small inputs, in the type that is asked for first.
    others = []
    for dtype, draw in product((inputs.dtype, "float32"), ("randn", "activations")):
        others.append(replace(inputs, shape=SMALL, dtype=dtype, draw=draw))
    tried = [*dict.fromkeys((inputs, *others))]

    trial = Trial(mutants, criterion, len(tried) * len(mutants), progress=progress, engine=engine)
    outcomes = trial.hold(inputs)
    survivors = frozenset(outcome.name for outcome in outcomes[inputs] if outcome.passes)
    if survivors:
        outcomes |= trial.hold(*tried[1:])

    bounds: dict[str, Bounds] = {}
    for other, wrong in outcomes.items():
        least = least_tolerance(hold_right_ones(other, criterion))
        if least:
            command = f"attnctl mutants {Criterion(0.0, least).words()} {other.words()}"
            told = frozenset(outcome.name for outcome in wrong if outcome.error > least)
            bounds.setdefault(other.dtype, {})[command] = told

    return Survey(
        criterion,
        inputs,
        tuple(mutants),
        wrong=outcomes[inputs],
        right=hold_right_ones(inputs, criterion),
        bounds=dict(fewest(bounds, survivors)),
        left_out=left_out,
    )

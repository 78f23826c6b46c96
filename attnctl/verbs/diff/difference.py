"""Two traces, step by step: where they part, by how much, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.display import Displayed
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.values import Path
from attnctl.evidence.allowed import Tolerance
from attnctl.inputs.config.settings import dotted_path
from attnctl.math import Array
from attnctl.math.names import SYMBOLS, results
from attnctl.math.ops import MatMulT
from attnctl.record import Trace
from attnctl.verbs.diff.align import HEAD, Alignment, ApartError, head_counts, sides_of, single
from attnctl.verbs.diff.elements import USUAL, Measure, measure_difference
from attnctl.verbs.diff.split import Change, split


@dataclass(frozen=True)
class StepDifference:
    """A step that both traces have, compared.

    `cell` is the address of what differs most, in A, `a` and `b` are the two numbers there;
    `whole` is False where tokens that only one side has were left out.
    """

    measure: Measure
    cell: str | None
    a: float | None
    b: float | None
    whole: bool

    @property
    def same(self) -> bool:
        return not self.measure.differing


@dataclass(frozen=True)
class Difference(Displayed):
    """Two traces, compared: steps in order, configs, tokens.

    `skipped` says of steps that both have why they were not compared; `left_out` are the tokens
    of A and of B that stand beside nothing; `configs` holds the values of A and B by path.
    `split` says what the change of the outputs is made of, `no_split` why that cannot be said of all.
    """

    steps: dict[str, StepDifference]
    skipped: dict[str, str]
    only_in_a: list[str]
    only_in_b: list[str]
    left_out: tuple[list[str], list[str]]
    configs: dict[str, tuple[Any, Any]]
    split: list[Change]
    no_split: str | None = None
    heads: list[str] = field(default_factory=list)
    """How the heads of one make up the head of the other, where their numbers differ."""
    alignment: Alignment | None = field(default=None, repr=False, compare=False)
    """The two traces and how their places pair up: what a picture of the difference is made of."""
    tolerance: Tolerance = field(default=USUAL, repr=False, compare=False)

    @property
    def same(self) -> bool:
        """True if every step that both have was compared whole, and no number of it differs."""
        whole = all(step.whole for step in self.steps.values())
        return self.first is None and whole and not self.skipped

    @property
    def first(self) -> str | None:
        return next((name for name, step in self.steps.items() if not step.same), None)

    def to_dict(self) -> dict[str, Any]:
        from attnctl.store.codec import as_json_data

        out: dict[str, Any] = {
            "same": self.same,
            "first": self.first,
            "steps": {
                name: {**asdict(step.measure), "cell": step.cell, "a": step.a, "b": step.b}
                for name, step in self.steps.items()
            },
            "skipped": self.skipped,
            "only_in_a": self.only_in_a,
            "only_in_b": self.only_in_b,
            "left_out": dict(zip("ab", self.left_out, strict=True)),
            "configs": {
                path: {side: value for side, value in zip("ab", values, strict=True) if value is not ABSENT}
                for path, values in self.configs.items()
            },
            "split": split_dict(self.split),
            **({"no_split": self.no_split} if self.no_split else {}),
            "heads": self.heads,
        }
        return dict(as_json_data(out))


def split_dict(changes: Sequence[Change]) -> dict[str, Any]:
    """{"head_outputs": [one for each head], "output": …}."""
    out: dict[str, Any] = {}
    for change in changes:
        found = asdict(change)
        step, head = found.pop("step"), found.pop("head")
        if head is None:
            out[step] = found
        else:
            out.setdefault(step, []).append(found)
    return out


def diff(
    a: Trace,
    b: Trace,
    tolerance: Tolerance = USUAL,
    *,
    steps: Sequence[str] | None = None,
    by_position: bool = False,
    why: bool = True,
) -> Difference:
    """Compare two traces step by step; of each only one step is in memory at a time.

    `steps` names the ones to compare. Sentences that differ are aligned by token unless
    `by_position`. `why` asks for the split of the outputs.

    Raises AttnError where there is nothing to compare.
    """
    alignment = Alignment(a, b, by_position)
    found: dict[str, StepDifference] = {}
    skipped: dict[str, str] = {}
    for name in steps_of_both(a, b, steps):
        try:
            found[name] = compare_step(alignment, name, tolerance)
        except ApartError as error:  # the two cannot be laid side by side
            skipped[name] = str(error)
    if steps is not None:
        raise_all(f"{name} cannot be compared: {reason}" for name, reason in skipped.items())
    if not any(step.measure.of for step in found.values()):
        raise AttnError(["nothing to compare", *(f"{name}: {reason}" for name, reason in skipped.items())])
    changes: list[Change] = []
    no_split = None
    heads = what_the_split_did(alignment, tolerance) if steps is None else []
    if why and not heads and any(name in found and not found[name].same for name in results()):
        try:
            changes, no_split = split(alignment)
        except ApartError as error:
            no_split = str(error)
    partial = not all(step.whole for step in found.values())
    return Difference(
        steps=found,
        skipped=skipped,
        only_in_a=[name for name in a if name not in b] if steps is None else [],
        only_in_b=[name for name in b if name not in a] if steps is None else [],
        left_out=alignment.left_out() if partial else ([], []),
        configs={dotted_path(path): values for path, values in walk(dict(a.config), dict(b.config), ())},
        split=changes,
        no_split=no_split,
        heads=heads,
        alignment=alignment,
        tolerance=tolerance,
    )


def steps_of_both(a: Trace, b: Trace, steps: Sequence[str] | None) -> list[str]:
    """The steps that both have, in the order of the derivation; of these only the named ones.

    Raises AttnError for a named step that is not in both, and where there is none in common.
    """
    both = [name for name in a if name in b]
    if not both:
        raise AttnError(
            f"nothing to compare: no step in common; A has {', '.join(a)}; B has {', '.join(b)}"
        )
    if steps is None:
        return both
    steps = [SYMBOLS.get(name, name) for name in steps]
    raise_all(
        f"no step {name!r} in {'A' if name in b else 'B' if name in a else 'either'}; "
        f"both have {', '.join(both)}"
        for name in steps
        if name not in both
    )
    return [name for name in both if name in steps]


def compare_step(alignment: Alignment, name: str, tolerance: Tolerance) -> StepDifference:
    """Compare one step of both. Raises ApartError where the two cannot be laid side by side."""
    sides = sides_of(alignment, name)
    found = measure_difference(sides.a, sides.b, tolerance)
    if found.at is None or found.max_rel_at is None:
        return StepDifference(found, None, None, None, sides.whole)
    values = float(sides.a[found.at]), float(sides.b[found.at])
    placed = replace(found, at=sides.at(found.at), max_rel_at=sides.at(found.max_rel_at))
    return StepDifference(placed, sides.cell(found.at), *values, sides.whole)


def what_the_split_did(alignment: Alignment, tolerance: Tolerance) -> list[str]:
    """Sentences on how the heads of one trace make up the single head of the other."""
    said = []
    for name, step in alignment.a.steps.items():
        counts = head_counts(alignment, name)
        if not isinstance(step.op, MatMulT) or counts is None or min(counts) != 1:
            continue
        one, many = (alignment.a, alignment.b) if counts[0] == 1 else (alignment.b, alignment.a)
        sums, whole = sum_over_heads(many, name), sum_over_heads(one, name)
        if sums.shape == whole.shape and not measure_difference(sums, whole, tolerance).differing:
            which = "BA" if one is alignment.a else "AB"
            said.append(
                f"{name} of the {max(counts)} heads of {which[0]} add up to those of the one head of "
                f"{which[1]}: each head has its own columns of Q and K"
            )
    return said


def sum_over_heads(trace: Trace, name: str) -> Array:
    at = trace.steps[name].axes.index(HEAD)
    total: Array = single(trace[name].sum(axis=at, dtype=np.float64), 2)
    return total


# --- configs ---

ABSENT: Any = object()
"""What a config has at a path that it does not have."""


def walk(a: Any, b: Any, path: Path) -> Iterator[tuple[Path, tuple[Any, Any]]]:
    """The values of A and B where they differ; into mappings and lists of one length, nothing else."""
    match a, b:
        case dict(), dict():
            for key in {**a, **b}:
                yield from walk(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)))
        case list(), list() if len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from walk(x, y, (*path, i))
        case _:
            if a != b or isinstance(a, bool) != isinstance(b, bool):
                yield path, (a, b)

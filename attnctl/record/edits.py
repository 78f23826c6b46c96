"""Edits of a what-if: a step's numbers are changed before the next step reads them.

An edit is ``CELL=VALUE``: a step, or the part of one that an address of `attnctl.record.cells` names, and
a number, or ``@FILE`` for the same cells of another dump. ``+=`` and ``*=`` add and multiply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import add, mul
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, collect_problems, raise_all
from attnctl.base.words import dims, quote
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.names import BIAS, MASKED, SYMBOLS, TABLE, WEIGHTS
from attnctl.record import Trace
from attnctl.record.cells import Address, parse_start, unknown_step

Header = dict[str, Any]

CHANGES: dict[str, Callable[[Any, Any], Any]] = {"=": lambda _, new: new, "+=": add, "*=": mul}
RULE = re.compile(r"\s*(=|\+=|\*=)\s*(.*\S)\s*", re.DOTALL)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|-inf(inity)?")
WORDS = {"true": 1.0, "false": 0.0}

MEAN = "mean"

LIKE = (
    "write it like attention_weights[0,love,:]=0, X[love]=[1, 0, 0, 1], head_outputs[1]*=2 or "
    "attention_weights=@other.json"
)


@dataclass(frozen=True)
class Edit:
    """One change: the cells, = or += or *=, and a number, rows of numbers or the cells of another dump.

    A `MEAN` is that of the step's rows, over all positions.
    """

    text: str
    address: Address
    rule: str
    value: float | Array | Trace | str

    @property
    def step(self) -> str:
        return self.address.step

    def apply(self, array: Array, step: Step, header: Header) -> Array:
        try:
            places = self.address.resolve(Trace({step.name: step}, {step.name: array}, header))
            value = self.value
            if isinstance(value, Trace):
                value = self.patch(value)
            elif isinstance(value, str):
                value = mean_rows(array, step)[places]
            self.check(array[places], value)

            out = array.copy()
            with np.errstate(all="ignore"):  # what grows too large is refused in words
                out[places] = CHANGES[self.rule](out[places], value)
            self.check_result(out[places])
        except AttnError as error:
            raise AttnError(f"edit {quote(self.text)}: {problem}" for problem in error.problems) from None
        return out

    def patch(self, other: Trace) -> Array:
        if self.step not in other:
            raise AttnError(f"the other one: {unknown_step(self.step, other)}")
        return np.asarray(other[self.step][self.address.resolve(other)])

    def check(self, cells: Array, value: float | Array) -> None:
        """Refuse a value of another shape than the cells, and a number where these are true or false."""
        if np.shape(value) != np.shape(cells) and not isinstance(value, float):
            where = "in the other dump" if isinstance(self.value, Trace) else "in the brackets"
            raise AttnError(f"{dims(np.shape(cells))} here, but {dims(np.shape(value))} {where}")

        sets_truth = self.rule == "=" and np.isin(value, (0, 1)).all()
        if cells.dtype == bool and not sets_truth:
            raise AttnError(f"{self.step} is true or false; only =1 and =0 can change it")

    def check_result(self, changed: Array) -> None:
        """Refuse what is no finite number, but for the −∞ that hides a score."""
        hides = TABLE[self.step].symbol in {TABLE[MASKED].symbol, TABLE[BIAS].symbol}
        wrong = ~np.isfinite(changed)
        if hides:
            wrong &= ~np.isneginf(changed)
        if not wrong.any():
            return

        value = np.asarray(changed)[wrong][0]
        expected = "a finite number or -inf" if hides else "a finite number; only scores can be -inf"
        raise AttnError(f"{self.step} would be {value} as {changed.dtype}, expected {expected}")


@dataclass(frozen=True)
class WhatIf:
    """The edits of a run, in order; `renormalize` makes the weights they change sum to 1 again."""

    edits: tuple[Edit, ...] = ()
    renormalize: bool = False

    @property
    def edited(self) -> frozenset[str]:
        return frozenset(edit.step for edit in self.edits)

    def changes(self, derivation: Derivation, header: Header) -> dict[str, Callable[[Array], Array]]:
        """The edits of each step. Raises AttnError with every edit of a step that is not in this run."""
        names = ", ".join(derivation.by_name)
        raise_all(
            f"edit {quote(edit.text)}: no step {edit.step!r} in this run; it has {names}"
            for edit in self.edits
            if edit.step not in derivation
        )
        return {
            step.name: partial(self.apply_edits, step=step, header=header)
            for step in derivation
            if step.name in self.edited
        }

    def apply_edits(self, array: Array, *, step: Step, header: Header) -> Array:
        out = array
        for edit in self.edits:
            if edit.step == step.name:
                out = edit.apply(out, step, header)

        if self.renormalize and step.name == WEIGHTS:
            return renormalize(out, array)
        return out

    def mark_edited(self, step: Step) -> Step:
        return replace(step, formula=f"{step.formula}, edited") if step.name in self.edited else step

    def record(self) -> list[dict[str, str]]:
        return [{"step": edit.step, "edit": edit.text} for edit in self.edits]


ReadDump = Callable[[str], Trace]
"""What reads the dump at a path."""


def what_if(texts: Sequence[str], read: ReadDump, *, renormalize: bool = False) -> WhatIf:
    """The edits that texts spell; a dump they name is read once. Raises AttnError with every problem."""
    read_once = lru_cache(maxsize=None)(read)
    edits: list[Edit] = []
    problems: list[str] = []
    for text in texts:
        with collect_problems(problems, f"edit {quote(text)}: "):
            edits.append(parse_edit(text, read_once))
    raise_all(problems)

    if renormalize and not any(edit.step == WEIGHTS for edit in edits):
        raise AttnError(f"renormalize: no edit of {WEIGHTS}, so there is nothing to make sum to 1 again")
    return WhatIf(tuple(edits), renormalize)


def parse_edit(text: str, read: ReadDump) -> Edit:
    address, rest = parse_start(text)
    if not address.parts and address.step[-1] in "+*":  # no bracket between the step and its rule
        rest = address.step[-1] + rest
        address = Address(address.step[:-1])
    address = Address(SYMBOLS.get(address.step, address.step), address.parts)

    change = RULE.fullmatch(rest)
    if change is None:
        raise AttnError(f"expected =, += or *= and a value after the cell; {LIKE}")

    rule, word = change.groups()
    value: float | Array | Trace | str
    if word.startswith("@"):
        value = read(word[1:])
    elif word == MEAN:
        value = MEAN
    elif word.startswith("["):
        value = read_rows(word)
    else:
        value = read_number(word)
    return Edit(text, address, rule, value)


def mean_rows(array: Array, step: Step) -> Array:
    """The mean row of a step in place of each. Raises AttnError where it has no rows, or rows of keys."""
    axes = [number for number, axis in enumerate(step.axes) if axis in {"token", "query", "key"}]
    if len(axes) != 1 or array.dtype == bool:
        raise AttnError(
            f"{step.name} has no row for each position, whose mean is meant; head_outputs has one"
        )
    return np.broadcast_to(array.mean(axis=axes[0], keepdims=True), array.shape)


def read_number(word: str) -> float:
    digits = word.replace("−", "-").lower()
    if digits in WORDS:
        return WORDS[digits]
    if not NUMBER.fullmatch(digits):
        raise AttnError(f"{quote(word)} is neither a number, {MEAN} nor @FILE; {LIKE}")
    return float(digits)


def read_rows(word: str) -> Array:
    """The numbers of [0, 1, 0], or of [[1, 0], [0, 1]]. Raises AttnError where rows are not as long."""
    import json

    def as_json(found: re.Match[str]) -> str:
        return repr(read_number(found[0])).replace("inf", "Infinity")

    try:
        rows = json.loads(re.sub(r"[^\[\],\s]+", as_json, word))
        return np.array(rows, dtype=np.float64)
    except (ValueError, TypeError, RecursionError):
        raise AttnError(f"{quote(word)} is no row or matrix; write [0, 1, 0] or [[1, 0], [0, 1]]") from None


def renormalize(weights: Array, before: Array) -> Array:
    """The rows that differ from `before` made to sum to 1; rows of zeros stay."""
    differs = (weights != before).any(axis=-1, keepdims=True)
    is_changed = differs & weights.any(axis=-1, keepdims=True)
    total = weights.sum(axis=-1, keepdims=True)

    is_divisor = (total > 0) & np.isfinite(total)
    wrong = np.argwhere(is_changed & ~is_divisor)
    if len(wrong):
        *row, _ = wrong[0].tolist()
        sum_text = f"{WEIGHTS}{row} sums to {total[tuple(wrong[0])]:g}"
        raise AttnError(f"renormalize: {sum_text}; only a sum above 0 can be made 1")

    divisor = np.where(is_changed, total, 1)
    return np.where(is_changed, weights / divisor, weights)

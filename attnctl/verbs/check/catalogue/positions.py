"""Mistakes in telling tokens where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from attnctl.ops import Copy, Op, Rotate
from attnctl.verbs.check.mistake import Case, Mistake, Plant, everywhere_or_once


def rotary(make: Callable[[Rotate], Op]) -> Callable[[Case], Iterator[Plant]]:
    """Plants another op for the rotations of Q and K, both or one."""

    def plants(case: Case) -> Iterator[Plant]:
        turned = {name: case.op(name) for name in ("Q_rotated", "K_rotated")}
        right = {name: op for name, op in turned.items() if isinstance(op, Rotate)}
        for names in everywhere_or_once(*right):
            yield Plant(case.put_all({name: make(right[name]) for name in names}))

    return plants


POSITIONS = (
    Mistake(
        "rotary-pairs-wrong",
        ("Q_rotated", "K_rotated"),
        "the wrong columns are turned together: neighbours for halves, or halves for neighbours",
        "Llama and GPT-NeoX turn column i with i + d/2, GPT-J column 2i with 2i + 1 (--interleaved)",
        rotary(lambda op: replace(op, interleaved=not op.interleaved)),
    ),
    Mistake(
        "rotary-missing",
        ("Q_rotated", "K_rotated"),
        "queries and keys are not rotated",
        "turn Q and K by their positions before Q Kᵀ",
        rotary(lambda _: Copy()),
    ),
)

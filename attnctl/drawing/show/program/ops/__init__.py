"""How each op is written as a line of a program: a function for each, which gives its expression.

A function is handed a `Writing`, which has the op, the variables it reads and their shapes, and takes lines
that stand before the op's own (`let`), functions it calls (`helper`) and numbers it knows by itself
(`numbers`). What is here is held to each op's `apply` by the tests, which run the programs.
"""

from attnctl.drawing.show.program.ops import chunks, heads, norms, positions, products, scores
from attnctl.drawing.show.program.ops.writing import WRITERS, NotWrittenError, Writing

__all__ = ["MODULES", "WRITERS", "NotWrittenError", "Writing"]

MODULES = (products, scores, chunks, positions, heads, norms)
"""Whose functions register themselves when they are imported."""

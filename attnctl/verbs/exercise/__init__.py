"""Exercises: handed out with blanks, collected, graded."""

from attnctl.verbs.exercise.copies import with_copies
from attnctl.verbs.exercise.grade import Mark, Sheet, grade
from attnctl.verbs.exercise.make import make, seed_from, sheet_text

__all__ = ["Mark", "Sheet", "grade", "make", "seed_from", "sheet_text", "with_copies"]

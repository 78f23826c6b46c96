"""Exercises: handed out with blanks, collected, graded."""

from attnctl.verbs.exercise.copies import with_copies
from attnctl.verbs.exercise.grade import Assignment, HandIn, Mark, grade
from attnctl.verbs.exercise.make import make, seed_from, sheet_text
from attnctl.verbs.exercise.seal import own_key, own_or_new_key, seal_exercise

__all__ = [
    "Assignment",
    "HandIn",
    "Mark",
    "grade",
    "make",
    "own_key",
    "own_or_new_key",
    "seal_exercise",
    "seed_from",
    "sheet_text",
    "with_copies",
]

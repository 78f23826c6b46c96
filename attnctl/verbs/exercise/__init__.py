"""Exercises: handed out with blanks, collected, graded."""

from attnctl.verbs.exercise.copies import with_copies
from attnctl.verbs.exercise.grade import Assignment, HandIn, Mark, grade
from attnctl.verbs.exercise.make import Exercise, make, seed_from
from attnctl.verbs.exercise.roster import place_sheets, read_roster
from attnctl.verbs.exercise.seal import own_key, own_or_new_key, seal_exercise
from attnctl.verbs.exercise.sheet import sheet_text

__all__ = [
    "Assignment",
    "Exercise",
    "HandIn",
    "Mark",
    "grade",
    "make",
    "own_key",
    "own_or_new_key",
    "place_sheets",
    "read_roster",
    "seal_exercise",
    "seed_from",
    "sheet_text",
    "with_copies",
]

"""Exercises: handed out with blanks, collected, graded."""

from attnctl.verbs.exercise.grade import Assignment, HandIn, Mark, grade
from attnctl.verbs.exercise.gradebook import AUTOGRADERS, as_data, csv_text
from attnctl.verbs.exercise.make import Exercise, make, place_sheets, read_roster, seed_from
from attnctl.verbs.exercise.sheet import sheet_text
from attnctl.verbs.exercise.view import grade_lines

__all__ = [
    "AUTOGRADERS",
    "Assignment",
    "Exercise",
    "HandIn",
    "Mark",
    "as_data",
    "csv_text",
    "grade",
    "grade_lines",
    "make",
    "place_sheets",
    "read_roster",
    "seed_from",
    "sheet_text",
]

"""Lessons: predict, then reveal."""

from attnctl.verbs.learn.grade import AnswerVerdict, grade
from attnctl.verbs.learn.lesson import Lesson, lessons

__all__ = ["AnswerVerdict", "Lesson", "grade", "lessons"]

"""Lessons: predict, then reveal."""

from attnctl.verbs.learn.grade import Verdict, grade
from attnctl.verbs.learn.lesson import Lesson, lessons

__all__ = ["Lesson", "Verdict", "grade", "lessons"]

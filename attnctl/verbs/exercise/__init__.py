"""Exercises: handed out with blanks, collected, graded."""

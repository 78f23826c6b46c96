"""Runs and arithmetic in the languages that people write mathematics in: LaTeX, Typst, Markdown."""

"""Explain how one number of a trace came about."""

from attnctl.verbs.explain.line import Explainer, Explanation, Node, explain, labels
from attnctl.verbs.explain.parts import Parts, parts_of

__all__ = ["Explainer", "Explanation", "Node", "Parts", "explain", "labels", "parts_of"]

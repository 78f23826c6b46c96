"""How one number of a trace came about."""

from attnctl.explain.line import Explainer, Explanation, Node, explain, labels
from attnctl.explain.parts import Parts, parts_of

__all__ = ["Explainer", "Explanation", "Node", "Parts", "explain", "labels", "parts_of"]

"""The operations a derivation is made of; adding one is adding a small class to this package."""

from attnctl.ops.base import Add, Block, Copy, Given, Op, RowWise, Unstated
from attnctl.ops.placed import Hide, Placed, Slope
from attnctl.ops.scores import MatMul, MatMulT, Scale, Softmax, Squeeze
from attnctl.ops.vectors import Append, Merge, Project, Repeat, Rotate, Sinusoid

__all__ = [
    "Add",
    "Append",
    "Block",
    "Copy",
    "Given",
    "Hide",
    "MatMul",
    "MatMulT",
    "Merge",
    "Op",
    "Placed",
    "Project",
    "Repeat",
    "Rotate",
    "RowWise",
    "Scale",
    "Sinusoid",
    "Slope",
    "Softmax",
    "Squeeze",
    "Unstated",
]

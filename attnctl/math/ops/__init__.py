"""The operations a derivation is made of; adding one is adding a small class to this package."""

from attnctl.math.ops.base import OPS, Add, Backward, Block, Copy, Given, Op, RowWise, Unstated
from attnctl.math.ops.chunks import ChunkLogSumExp, ChunkOutputs, MergeChunks, MergeLogSumExp, Shares
from attnctl.math.ops.models import AddScaled, Beside, Buckets, Gate, Remainder, SinkSoftmax
from attnctl.math.ops.norms import LayerNorm, RMSNorm
from attnctl.math.ops.placed import Hide, Placed, Slope
from attnctl.math.ops.scores import LogSumExp, MatMul, MatMulT, Scale, Softmax, Squeeze
from attnctl.math.ops.vectors import Append, Merge, Project, Repeat, Rotate, Sinusoid

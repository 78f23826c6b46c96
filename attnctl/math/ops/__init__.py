"""The operations a derivation is made of; adding one is adding a small class to this package.

The ops of every sentence are imported at once, the others when one of them, or OPS, is first asked for:
a start is not to wait for ops of trained models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnctl.math.ops.base import Add, Backward, Block, Copy, Given, Op, RowWise, Unstated
from attnctl.math.ops.scores import Hide, LogSumExp, MatMul, MatMulT, Placed, Scale, Slope, Softmax, Squeeze
from attnctl.math.ops.vectors import Append, Merge, Project, Repeat, Rotate, Sinusoid

if TYPE_CHECKING:  # what type checkers and editors read
    from attnctl.math.ops.base import OPS
    from attnctl.math.ops.chunks import ChunkLogSumExp, ChunkOutputs, MergeChunks, MergeLogSumExp, Shares
    from attnctl.math.ops.delta import Convolve, Fade, LogDecay, Sigmoid, SwishGate, Write
    from attnctl.math.ops.distances import AddByDistance, WithDistances
    from attnctl.math.ops.lookups import LookUp
    from attnctl.math.ops.models import AddScaled, Beside, Buckets, Gate, Remainder, SinkSoftmax, Temper
    from attnctl.math.ops.norms import LayerNorm, RMSNorm, ScaleColumns, ScaleHeads
    from attnctl.math.ops.pages import Gather
    from attnctl.math.ops.states import AddSkipped, MixTokens, Multiply, NormInGroups, ScaleTokens, StepSize
else:

    def __getattr__(name: str) -> Any:
        """Import every file of ops, as OPS is whole only then, and return what one of them has."""
        from pkgutil import iter_modules

        from attnctl.base.plugins import added
        from attnctl.math.ops.base import OPS

        files = [import_module(module.name) for module in iter_modules(__path__, f"{__name__}.")]
        own = [name for name, op in OPS.items() if op.__module__.startswith(f"{__name__}.")]
        OPS.update(added("ops", Op, taken=own, named=False))
        found = [vars(file)[name] for file in files if name in vars(file)]
        if not found:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, found[0])

"""Two hundred mistakes, class by class."""

from trial.heads import HEADS
from trial.kernels import KERNEL, NUMBERS
from trial.masks import MASK
from trial.positions import POSITION
from trial.projections import PROJECTION
from trial.scores import SCALE, SOFTCAP, SOFTMAX

CLASSES = {
    "scale": SCALE,
    "softmax": SOFTMAX,
    "mask": MASK,
    "projection": PROJECTION,
    "heads": HEADS,
    "position": POSITION,
    "softcap": SOFTCAP,
    "kernel": KERNEL,
    "numbers": NUMBERS,
}

"""Every mistake that `check` knows, in the order in which it prefers them.

Where several reproduce the recorded numbers (with one head, say, or a symmetric matrix), the one
that leaves the fewest later steps unexplained is named, and of those the first in this order; the
others are listed as also fitting.
"""

from attnctl.verbs.check.catalogue.biases import BIASES
from attnctl.verbs.check.catalogue.heads import HEADS
from attnctl.verbs.check.catalogue.kernels import KERNELS
from attnctl.verbs.check.catalogue.masks import MASKS, PARTIAL_MASKS
from attnctl.verbs.check.catalogue.models import MODELS
from attnctl.verbs.check.catalogue.numbers import NUMBERS
from attnctl.verbs.check.catalogue.positions import FITTED_POSITIONS, POSITIONS
from attnctl.verbs.check.catalogue.projections import FITTED, PROJECTIONS
from attnctl.verbs.check.catalogue.scores import OTHER_SCALE, SCALING, SOFTCAP
from attnctl.verbs.check.catalogue.softmax import SOFTMAX, SUMS
from attnctl.verbs.check.catalogue.visibility import VISIBILITY
from attnctl.verbs.check.mistake import Mistake

CATALOGUE: tuple[Mistake, ...] = (
    *SCALING,
    *SOFTMAX,
    *MASKS,
    *PROJECTIONS,
    *HEADS,
    *POSITIONS,
    *MODELS,
    *SOFTCAP,
    *BIASES,
    *KERNELS,
    *PARTIAL_MASKS,
    *VISIBILITY,
    *SUMS,
    *FITTED_POSITIONS,
    *FITTED,
    *OTHER_SCALE,
    *NUMBERS,
)

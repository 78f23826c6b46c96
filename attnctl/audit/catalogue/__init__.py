"""Every mistake that `check` knows, in the order in which it prefers them.

Where several reproduce the recorded numbers (with one head, say, or a symmetric matrix), the one
that leaves the fewest later steps unexplained is named, and of those the first in this order; the
others are listed as also fitting.
"""

from attnctl.audit.catalogue.heads import HEADS
from attnctl.audit.catalogue.masks import MASKS, PARTIAL_MASKS
from attnctl.audit.catalogue.numbers import NUMBERS
from attnctl.audit.catalogue.positions import POSITIONS
from attnctl.audit.catalogue.projections import PROJECTIONS
from attnctl.audit.catalogue.scores import SCALING, SOFTCAP
from attnctl.audit.catalogue.softmax import SOFTMAX
from attnctl.audit.mistake import Mistake

CATALOGUE: tuple[Mistake, ...] = (
    *SCALING,
    *SOFTMAX,
    *MASKS,
    *PROJECTIONS,
    *HEADS,
    *POSITIONS,
    *SOFTCAP,
    *PARTIAL_MASKS,
    *NUMBERS,
)

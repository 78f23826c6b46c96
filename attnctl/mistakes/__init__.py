"""Every mistake that `check` knows, in the order in which it prefers them.

Where several reproduce the recorded numbers (with one head, say, or a symmetric matrix), the one
that leaves the fewest later steps unexplained is named, and of those the first in this order; the
others are listed as also fitting.

An entry has the steps where it shows, its name, what it is, what to write instead, and the derivations of
programs that make it, in the words of `mistakes/plants.py`: `about(WEIGHTS)("no-softmax", "there is no
softmax", "take softmax over keys (axis=-1)", at(WEIGHTS, Softmax).without())`; what several have in common
is said once, `of_softmax = about(WEIGHTS, …)`. A wrong op that is needed stands in `mistakes/wrong.py`. For
its page (`check --about`) it says `why` people make it, and has lines of NumPy that do, `example`, on one
of the kinds of attention of `mistakes/examples.py`: tests plant it with these, written as people write
them, not with the catalogue's op. `tests/check/planted.py` and `tests/check/trial/` are programs to plant
it in, where it has more shapes than that.
"""

from attnctl.base.plugins import added
from attnctl.mistakes.backward import BACKWARD
from attnctl.mistakes.caches import CACHES
from attnctl.mistakes.chunks import CHUNKS
from attnctl.mistakes.embedded import EMBEDDED, FITTED_EMBEDDED
from attnctl.mistakes.heads import HEADS
from attnctl.mistakes.kernels import KERNELS, NUMBERS, SERVING
from attnctl.mistakes.masks import MASKS, PARTIAL_MASKS
from attnctl.mistakes.members import MEMBERS
from attnctl.mistakes.mistake import Mistake
from attnctl.mistakes.models import EPSILON, MODELS
from attnctl.mistakes.positions import FITTED_POSITIONS, POSITIONS
from attnctl.mistakes.projections import FITTED, PROJECTIONS
from attnctl.mistakes.relative import RELATIVE
from attnctl.mistakes.scores import BIASES, OTHER_SCALE, SCALING, SOFTCAP
from attnctl.mistakes.softmax import SOFTMAX, SUMS
from attnctl.mistakes.visibility import VISIBILITY

CATALOGUE: tuple[Mistake, ...] = (
    *SERVING, *SCALING, *SOFTMAX, *MASKS, *PROJECTIONS, *HEADS, *POSITIONS, *EMBEDDED, *MODELS, *SOFTCAP,
    *BIASES, *RELATIVE, *CACHES,
    *CHUNKS, *BACKWARD, *KERNELS, *PARTIAL_MASKS, *MEMBERS, *VISIBILITY, *SUMS, *FITTED_POSITIONS,
    *FITTED_EMBEDDED, *EPSILON, *FITTED, *OTHER_SCALE, *NUMBERS,
)  # fmt: skip
CATALOGUE += tuple(added("mistakes", Mistake, taken={mistake.name for mistake in CATALOGUE}).values())

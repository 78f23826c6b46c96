"""What is attention, and none of softmax: told by its weights, which values of unit vectors show.

Each kind is a function of the scores, or of Q and K, up to a factor of each row: what rows are divided by
is another matter. A softmax, whatever its scale, temperature or sink, is none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.ops.scores import Softmax
from attnctl.verbs.conform.held import MOST_NUMBERS, Cause, compute_steps, read_weights
from attnctl.verbs.conform.stored import EIGHT_BITS, precision_in
from attnctl.verbs.conform.suite import CaseResult, Suite

NOT_SOFTMAX = "not-softmax"

ROUNDING = 64
"""Units in the last place, of a row's length, by which weights may be off."""

HALVINGS = 60
"""After so many a threshold has every digit of float64."""

SCALES_FROM = 1e-3
"""The least spread of cosines in a case that tells their scale."""


@dataclass(frozen=True)
class Operands:
    """What weights are made of, over (batch, head, query, key or column)."""

    q: Array
    k: Array
    scores: Array
    """Scaled and masked: −∞ where a key is hidden."""
    found: Array
    """The weights that came back."""

    @property
    def seen(self) -> Array:
        return np.isfinite(self.scores)

    @cached_property
    def directions(self) -> Array:
        """The weights that came back, without the factor of each row."""
        return unit(self.found)

    @cached_property
    def unscaled(self) -> Array:
        return self.scores * np.sqrt(self.q.shape[-1])

    @cached_property
    def cosines(self) -> Array:
        return unit(self.q) @ unit(self.k).swapaxes(-1, -2)


def unit(rows: Array) -> Array:
    """Rows of length 1; those of 0 stay."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.where(length == 0, 1.0, length))


# --- the kinds ---


def give_sparsemax(scores: Array) -> Array:
    """Martins and Astudillo (2016): scores are projected to where weights are positive and sum to 1."""
    ordered = -np.sort(-scores, axis=-1)
    sums = np.where(np.isfinite(ordered), ordered, 0.0).cumsum(axis=-1)
    count = np.arange(1, scores.shape[-1] + 1)
    support = (1 + count * ordered > sums).sum(axis=-1, keepdims=True)
    last = np.take_along_axis(sums, np.maximum(support - 1, 0), axis=-1)
    threshold = (last - 1) / np.maximum(support, 1)
    return np.maximum(scores - threshold, 0.0)


def give_entmax(scores: Array) -> Array:
    """Peters et al. (2019) with α = 1.5: squares of half the scores above a threshold, found by halving."""
    half = scores / 2
    above = half.max(axis=-1, keepdims=True)
    below = above - 1.0
    for _ in range(HALVINGS):
        threshold = (above + below) / 2
        total = square_relu(half - threshold).sum(axis=-1, keepdims=True)
        is_enough = total >= 1
        below = np.where(is_enough, threshold, below)
        above = np.where(is_enough, above, threshold)
    return square_relu(half - below)


def give_sigmoid_less(scores: Array) -> Array:
    """Ramapuram et al. (2024): less log n, so that the weights of n keys begin with a sum of about 1."""
    keys = scores.shape[-1]
    return np.asarray(1 / (1 + keys * np.exp(-scores)))


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def square_relu(x: Array) -> Array:
    return np.square(relu(x))


OF_SCORES = {
    "ReLU": relu,
    "squared ReLU": square_relu,
    "sigmoid less log n": give_sigmoid_less,
    "sparsemax": give_sparsemax,
    "1.5-entmax": give_entmax,
}
"""What makes weights of a row of scores in place of softmax, and is no mistake of the catalogue."""


def elu_plus_one(x: Array) -> Array:
    below = np.exp(np.minimum(x, 0.0))
    return np.where(x > 0, x + 1, below)


Features = Callable[[Array], Array]

FEATURES: dict[str, Features] = {"ELU + 1": elu_plus_one, "ReLU": relu, "exp": np.exp, "x": np.asarray}
"""What linear attention makes of a row of Q, and of K, before their product (Katharopoulos et al. 2020)."""


# --- which of them it is ---


def read_operands(suite: Suite, result: CaseResult) -> Operands | None:
    """Read what the weights of a case are made of; None where they cannot be read off."""
    case = result.case
    if result.answer.error or case.weights > MOST_NUMBERS or min(case.queries, case.keys) < 2:
        return None
    if case.dtype in EIGHT_BITS:
        return None  # weights of so few digits are those of many kinds
    found = read_weights(suite, case)
    if found is None or not np.isfinite(found).all():
        return None

    problem = suite.problem(case)
    derivation = problem.plan.derivation
    values = compute_steps(derivation, problem.given)
    names = [name for name in values if name.endswith("scores")]
    q, k = derivation["scores"].inputs
    return Operands(q=values[q], k=values[k], scores=values[names[-1]], found=found)


def fits(given: Operands, weights: Array, dtype: str) -> bool:
    """Whether these are the weights that came back, up to a factor of each row."""
    expected = np.where(given.seen, weights, 0.0)
    if not np.isfinite(expected).all() or not expected.any():
        return False
    off = np.abs(given.directions - unit(expected)).max()
    return bool(off <= ROUNDING * precision_in(dtype).unit)


def find_cosine_scale(given: Operands) -> float | None:
    """The scale of a softmax of cosines that the logarithms of the weights tell; None where none may."""
    if not given.seen.all() or (given.found <= 0).any():
        return None
    logarithms = np.log(given.found)
    centred = logarithms - logarithms.mean(axis=-1, keepdims=True)
    cosines = given.cosines
    apart = cosines - cosines.mean(axis=-1, keepdims=True)
    spread = float(np.square(apart).sum())
    if spread < SCALES_FROM:
        return None
    return float((centred * apart).sum()) / spread


def list_kinds(given: Operands) -> Iterator[tuple[str, Array]]:
    """List what else makes weights, each with its weights."""
    for name, function in OF_SCORES.items():
        yield f"{name} of the scores", function(given.scores)
        yield f"{name} of the unscaled scores", function(given.unscaled)
    for name, features in FEATURES.items():
        queries = features(given.q)
        keys = features(given.k)
        yield f"linear attention, φ(Q) φ(K)ᵀ with φ = {name}", queries @ keys.swapaxes(-1, -2)

    # Shen et al. (2021): of a query over its columns, and of a column of K over the keys.
    keys_transposed = Softmax().apply(given.k.swapaxes(-1, -2))
    weights = Softmax().apply(given.q) @ keys_transposed
    yield "efficient attention, softmax(Q) softmax(K)ᵀ", weights

    scale = find_cosine_scale(given)
    if scale is not None:
        weights = np.exp(scale * given.cosines)
        yield f"softmax of {scale:.3g} times the cosines of Q and K", weights


@np.errstate(all="ignore")  # what is hidden has −∞, and a kind may make NaN of it
def name_kind(suite: Suite, result: CaseResult) -> str | None:
    """What makes the weights of a case, where that is no softmax of its scores and is known."""
    given = read_operands(suite, result)
    if given is None:
        return None

    dtype = result.case.dtype
    largest = given.scores.max(axis=-1, keepdims=True)
    if fits(given, np.exp(given.scores - largest), dtype):
        return None
    for name, weights in list_kinds(given):
        if fits(given, weights, dtype):
            return name
    return None


def say_kind(name: str) -> str:
    return (
        f"this is no softmax attention: where V has unit vectors, which show the weights, "
        f"they are those of {name}; the suite is of softmax, and holds it to nothing else"
    )


def explain_kind(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain what is wrong by weights that are made otherwise than by softmax."""
    if name_kind(suite, result) is None:
        return None
    return Cause(NOT_SOFTMAX, say_kind, lambda other: name_kind(suite, other))

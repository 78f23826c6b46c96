"""Attention that a program of torch writes out: a product, softmax over its rows, and a product with V.

No function of it is known by name. So the products and softmax of torch are watched: where the second
product is of what softmax gave, the call is recorded, if what the program computed shows what was meant:
scores that are a multiple of Q Kᵀ, a mask, or a bias that members, or places equally far apart, share.
What does not show it is counted by the function that has it, and said when the program ends.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from threading import local
from types import FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np

from attnctl.inputs.arrays.reader import as_array
from attnctl.math import Array
from attnctl.math.names import BIAS, HEAD_OUTPUTS, MASK, WEIGHTS
from attnctl.verbs.capture.functions import OF_PEOPLE, Function

PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm", "Tensor.__matmul__", "Tensor.matmul", "Tensor.bmm")
SOFTMAXES = ("softmax", "Tensor.softmax")
"""The functions of torch that are watched; torch.nn's softmax calls that of a tensor."""

WRITTEN_OUT = Function(returns=(HEAD_OUTPUTS,), parameters="q k v")
"""What is recorded is handed over by name."""

LIBRARIES = {"attnctl", "torch", "einops"}
"""What stands between a program and the functions that are watched."""

MOST_PRODUCTS = 2
"""The last products that may be the scores of a softmax."""

MOST_BETWEEN = 3
"""Products that may stand between a softmax and that of its weights with V."""

HIDDEN, AWAY = -1e4, -30.0
"""A score this low is one that is hidden; a bias this low is a mask that was added."""

ROUNDING = 8.0
"""Units in the last place of the largest score by which those of a short row may be off."""

UNNOTICED = (Exception, SystemExit)
"""What objects of the program may answer with when they are asked something."""


class KeepsCalls(Protocol):
    """What writes calls to a file."""

    ended: bool
    local: local
    backward: bool
    wanted: frozenset[int] | None

    @property
    def numbers(self) -> Iterator[int]: ...
    @property
    def kept(self) -> int: ...
    def failing(self) -> AbstractContextManager[None]: ...
    def module_of(self, frame: FrameType | None) -> tuple[str, bool]: ...
    def calling_line(self, frame: FrameType) -> str: ...
    def record(
        self,
        frame: FrameType,
        call: dict[str, Any],
        watched: tuple[Any, Function],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> None: ...
    def write_gradient(self, number: int, name: str, turned: Sequence[str], gradient: Any) -> None: ...


class ScoreProduct(NamedTuple):
    """A product that may be Q Kᵀ."""

    operands: tuple[Any, Any]
    versions: tuple[int, ...]
    terms: str
    """The terms of an einsum; "" for a product of matrices."""
    size: int
    columns: int


class OpenSoftmax(NamedTuple):
    """What softmax gave, until a product reads it."""

    scores: Any
    weights: Any
    product: ScoreProduct
    is_of_rows: bool


class WrittenPlace(NamedTuple):
    """Where a softmax is written out, and why it was not recorded."""

    module: str
    function: str
    at: str
    takes_heads: bool
    """The function takes Q, K and V, so that it could be recorded by its name."""
    why: str


class ReadScores(NamedTuple):
    """What scores are beside a multiple of Q Kᵀ."""

    scale: float
    bias: Array | None = None
    mask: Array | None = None


class SeenTensor(NamedTuple):
    """A tensor of the program, and how it is looked at to be Q, K, V or the output; so is its gradient."""

    tensor: Any
    view: Callable[[Any], Any]

    def read(self) -> Any:
        return self.view(self.tensor)

    def through(self, last: Callable[[Any], Any]) -> SeenTensor:
        return SeenTensor(self.tensor, lambda array: last(self.view(array)))


class WrittenCall(NamedTuple):
    """What a call was: its tensors by our names, and what is beside them."""

    seen: dict[str, SeenTensor]
    beside: dict[str, Any]


class UnclearError(Exception):
    """Why attention that is written out is not recorded."""


class WrittenOut:
    def __init__(self, recorder: KeepsCalls) -> None:
        self.recorder = recorder
        self.state = local()
        self.left_out: Counter[WrittenPlace] = Counter()

    # --- what is watched ---

    def watch_product(self, function: Any) -> Any:
        is_einsum = getattr(function, "__name__", "") == "einsum"
        first = int(getattr(function, "__name__", "") == "baddbmm")

        @wraps(function)
        def product(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            if self.is_listening():
                try:
                    operands = args[first : first + 2]
                    terms = ""
                    if is_einsum:
                        operands = args[1:] if len(args) > 2 else tuple(args[1])
                        terms = str(args[0])
                    self.note_product(sys._getframe(1), operands, terms, out)  # noqa: SLF001
                except UNNOTICED:
                    self.forget()
            return out

        return product

    def watch_softmax(self, function: Any) -> Any:
        @wraps(function)
        def softmax(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            if self.is_listening():
                try:
                    self.note_softmax(args[0], kwargs["dim"] if "dim" in kwargs else args[1], out)
                except UNNOTICED:
                    self.forget()
            return out

        return softmax

    def is_listening(self) -> bool:
        """Not inside of a function that is recorded as a whole."""
        return not (self.recorder.ended or getattr(self.recorder.local, "inside", False))

    def forget(self) -> None:
        """What cannot be looked at, as a tensor without numbers, is none of a call."""
        self.state.softmax = None
        self.state.products = ()

    # --- what is noticed ---

    def note_softmax(self, scores: Any, axis: int, out: Any) -> None:
        self.state.softmax = None
        for product in reversed(getattr(self.state, "products", ())):
            if product.size == scores.numel() and scores.shape[-1] == product.columns:
                is_of_rows = axis in {-1, scores.ndim - 1}
                self.state.softmax = OpenSoftmax(scores, out, product, is_of_rows)
                self.state.between = 0
                return

    def note_product(self, frame: FrameType, operands: Sequence[Any], terms: str, out: Any) -> None:
        if len(operands) != 2:
            return
        left, right = operands
        opened = getattr(self.state, "softmax", None)
        if opened is not None:
            size = opened.weights.numel()
            sides = [side for side, operand in enumerate(operands) if operand.numel() == size]
            if sides and self.is_of_weights(opened, operands, sides):
                self.state.softmax = None
                self.state.products = ()
                self.conclude(frame, opened, operands, terms, out)
                return
            self.state.between += 1
            if self.state.between >= MOST_BETWEEN:
                self.state.softmax = None

        versions = (left._version, right._version)  # noqa: SLF001  (how often it was changed in place)
        product = ScoreProduct((left, right), versions, terms, out.numel(), out.shape[-1])
        self.state.products = (*getattr(self.state, "products", ()), product)[-MOST_PRODUCTS:]

    @staticmethod
    def is_of_weights(opened: OpenSoftmax, operands: Sequence[Any], sides: Sequence[int]) -> bool:
        """One of the operands has the shape of the weights, or is them in another one."""
        rows = tuple(opened.weights.shape[-2:])
        for side in sides:
            own = tuple(operands[side].shape[-2:])
            if own == rows or (own == rows[::-1] and side == 1):
                return True
        return False

    def conclude(
        self, frame: FrameType, opened: OpenSoftmax, operands: Sequence[Any], terms: str, out: Any
    ) -> None:
        """Record attention that is written out, or count it and why it is not."""
        recorder = self.recorder
        if not recorder.module_of(frame)[1]:
            return
        caller = program_frame(frame)
        recorder.local.inside = True
        try:
            read = read_attention(opened, operands, terms, out)
            number = next(recorder.numbers)
            if recorder.wanted is None or number in recorder.wanted:
                call = {"number": number, "function": name_of(caller)}
                self.record(frame, call, read)
        except UnclearError as why:
            self.left_out[place_of(caller, recorder.calling_line(frame), str(why))] += 1
        finally:
            recorder.local.inside = False

    def record(self, frame: FrameType, call: dict[str, Any], read: WrittenCall) -> None:
        recorder = self.recorder
        before = recorder.kept
        with recorder.failing():
            arrays = {name: seen.read().detach() for name, seen in read.seen.items()}
            result = arrays.pop(HEAD_OUTPUTS)
            recorder.record(frame, call, (None, WRITTEN_OUT), (), {**arrays, **read.beside}, result)
        if not recorder.backward or recorder.kept == before:
            return

        number = call["number"]
        for name, seen in read.seen.items():
            if seen.tensor.requires_grad:
                # Bound as it is now: the loop goes on.
                write = partial(recorder.write_gradient, number, name, ())
                seen.tensor.register_hook(
                    lambda gradient, write=write, view=seen.view: write(view(gradient))
                )

    def say(self) -> Iterator[str]:
        """What was written out and not recorded, a line for each place, with what would record it."""
        for place, count in self.left_out.items():
            many = "softmaxes" if count > 1 else "softmax"
            were = "were" if count > 1 else "was"
            whole = f"{place.module}:{place.function}"
            way = f"--function {whole} records {'them' if count > 1 else 'it'}"
            if not place.takes_heads:
                way = f"a function (q, k, v) around that, and --function {place.module}:NAME, records it"
            yield (
                f"{count} {many} written out in {place.function} ({place.at}) {were} not recorded: "
                f"{place.why}; {way}"
            )


def program_frame(frame: FrameType) -> FrameType:
    """The innermost frame that is none of a library's."""
    here: FrameType | None = frame
    while here is not None and str(here.f_globals.get("__name__")).partition(".")[0] in LIBRARIES:
        here = here.f_back
    return here or frame


def name_of(frame: FrameType) -> str:
    """SwinAttention.forward"""
    code = frame.f_code
    name = getattr(code, "co_qualname", "")
    if name:
        return str(name).rpartition("<locals>.")[2]
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    is_method = code.co_varnames[:1] == ("self",)
    return f"{type(owner).__name__}.{code.co_name}" if is_method else code.co_name


def place_of(frame: FrameType, at: str, why: str) -> WrittenPlace:
    code = frame.f_code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    taken = {OF_PEOPLE.get(name.lower()) for name in parameters}
    return WrittenPlace(
        module=str(frame.f_globals.get("__name__")),
        function=name_of(frame),
        at=at,
        takes_heads={"Q", "K", "V"} <= taken,
        why=why,
    )


# --- what the program computed, as Q, K, V and what was done to the scores ---


def read_attention(opened: OpenSoftmax, operands: Sequence[Any], terms: str, out: Any) -> WrittenCall:
    """What a call was. Raises UnclearError where its arrays do not show what was meant."""
    if not opened.is_of_rows:
        raise UnclearError("softmax is not over the last axis")
    if opened.product.versions != tuple(each._version for each in opened.product.operands):  # noqa: SLF001
        raise UnclearError("Q or K was changed in place after they were multiplied")

    heads_of = partial(by_head, lead=tuple(opened.scores.shape[:-2]))
    sides = (*scored(opened.product), *averaged(opened.weights, operands, terms, out))
    named = zip(("Q", "K", "V", HEAD_OUTPUTS), sides, strict=True)
    seen = {name: side.through(heads_of) for name, side in named}
    scores = heads_of(opened.scores.detach())
    q, k = seen["Q"].read(), seen["K"].read()

    q_read, k_read = as_array("Q", q).astype(np.float64), as_array("K", k).astype(np.float64)
    coarsest = max(float(unit_of(array)) for array in (q, k, scores))
    product = q_read @ k_read.swapaxes(-1, -2)
    found = explain_scores(product, as_array("scores", scores).astype(np.float64), q.shape[-1], coarsest)

    beside: dict[str, Any] = {WEIGHTS: heads_of(opened.weights.detach())}
    if not np.isclose(found.scale, q.shape[-1] ** -0.5, rtol=1e-3):
        beside["scale"] = found.scale
    if found.bias is not None:
        beside[BIAS] = found.bias
    if found.mask is not None:
        beside[MASK] = found.mask
    return WrittenCall(seen, beside)


def unit_of(tensor: Any) -> float:
    """What a number of this type may be off, of its own size."""
    digits = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    return digits.get(str(tensor.dtype).rpartition(".")[2], 2.0**-7)


def as_it_is(array: Any) -> Any:
    return array


def swap_last(array: Any) -> Any:
    return array.swapaxes(-1, -2)


def scored(product: ScoreProduct) -> tuple[SeenTensor, SeenTensor]:
    """Q and K, rows last but one."""
    left, right = product.operands
    if not product.terms:
        return SeenTensor(left, as_it_is), SeenTensor(right, swap_last)

    first, second, result = split_terms(product.terms)
    row, column = result[-2], result[-1]
    if row in second:
        first, second, left, right = second, first, right, left
    summed = [axis for axis in first if axis in second and axis not in result]
    shared = result[:-2]
    if len(summed) != 1 or {row, *shared, *summed} != {*first} or {column, *shared, *summed} != {*second}:
        raise UnclearError(f"its scores are no product of rows: einsum {product.terms}")
    queries = partial(turn, axes=first, wanted=(*shared, row, *summed))
    keys = partial(turn, axes=second, wanted=(*shared, column, *summed))
    return SeenTensor(left, queries), SeenTensor(right, keys)


def averaged(weights: Any, operands: Sequence[Any], terms: str, out: Any) -> tuple[SeenTensor, SeenTensor]:
    """V and the output, rows last but one. Raises UnclearError where something else is multiplied."""
    left, right = operands
    if terms:
        first, second, result = split_terms(terms)
        if is_same(right, weights) and not is_same(left, weights):
            first, second, left, right = second, first, right, left
        shared = first[:-2]
        row, column = first[-2], first[-1]
        rest = [axis for axis in second if axis not in {*shared, column}]
        if len(rest) != 1 or column in result or {*shared, row, *rest} != {*result}:
            raise UnclearError(f"its weights are not those of rows of V: einsum {terms}")
        values = SeenTensor(right, partial(turn, axes=second, wanted=(*shared, column, *rest)))
        given = SeenTensor(out, partial(turn, axes=result, wanted=(*shared, row, *rest)))
    elif left.shape[-2:] == weights.shape[-2:] and left.numel() == weights.numel():
        values, given = SeenTensor(right, as_it_is), SeenTensor(out, as_it_is)
    else:  # V Aᵀ, columns of features
        values, given = SeenTensor(left, swap_last), SeenTensor(out, swap_last)
        left = swap_last(right)
    if not is_same(left, weights):
        raise UnclearError("its weights are others before they are multiplied with V, as after dropout")
    return values, given


def split_terms(terms: str) -> tuple[str, str, str]:
    """The axes of both operands and of the result. Raises UnclearError for an ellipsis."""
    inputs, arrow, result = terms.replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    if "." in terms or not arrow or len(result) < 2:
        raise UnclearError(f"its axes are not all named: einsum {terms}")
    return first, second, result


def turn(array: Any, axes: str, wanted: Sequence[str]) -> Any:
    """An array with its axes in another order, and one of length 1 for those that it lacks."""
    present = [axis for axis in wanted if axis in axes]
    turned = array.permute(*map(axes.index, present))
    for at, axis in enumerate(wanted):
        if axis not in axes:
            turned = turned.unsqueeze(at)
    return turned


def is_same(operand: Any, weights: Any) -> bool:
    """What is multiplied is what softmax gave, perhaps in another type or shape."""
    if operand.numel() != weights.numel():
        return False
    own = operand.detach().reshape(weights.shape)
    return bool((own == weights.detach().to(own.dtype)).all())


def by_head(array: Any, lead: Sequence[int]) -> Any:
    """An array of rows with the axes before them that the scores have, two of them at most."""
    rows = tuple(array.shape[-2:])
    members = int(np.prod(lead, dtype=int))
    own = int(np.prod(array.shape[:-2], dtype=int))
    if own == members:
        array = array.reshape(*lead, *rows)
    elif array.ndim != len(lead) + 2:
        raise UnclearError("its heads are not those of the scores")
    if len(lead) > 2:
        array = array.expand(*lead, *rows).reshape(-1, lead[-1], *rows)
    return array


def explain_scores(product: Array, scores: Array, d: int, unit: float) -> ReadScores:
    """Find the scale, and the mask or bias beside it. Raises UnclearError where several could be meant."""
    if product.shape != scores.shape:
        raise UnclearError("its scores have other axes than the product of Q and K")
    seen = np.isfinite(scores) & (scores > HIDDEN)
    mask = None if seen.all() else seen
    there = np.where(seen, scores, 0.0)
    kept = np.where(seen, product, 0.0)
    scales = [d**-0.5, 1.0, *fitted(kept, there)]

    rests: list[tuple[float, Array, float]] = []
    for scale in scales:
        rest = there - scale * kept
        reach = np.abs(there).max(initial=0.0) + np.abs(scale * kept).max(initial=0.0)
        allowed = max(ROUNDING, 2 * d**0.5) * unit * reach
        rests.append((scale, rest, allowed))
    for scale, rest, allowed in rests:
        if np.abs(rest).max(initial=0.0) <= allowed:
            return ReadScores(scale, mask=mask)
    for scale, rest, allowed in rests:
        visible = seen & (rest > AWAY)
        if any(is_constant(rest, visible, allowed) for is_constant in CONSTANT):
            return ReadScores(scale, bias=rest.astype(np.float32), mask=mask)
    raise UnclearError("its scores are more than a multiple of Q Kᵀ with a mask or a shared bias")


def fitted(product: Array, scores: Array) -> Iterator[float]:
    """The multiples of the product that scores may be: alone, or but for what all members share."""
    below = np.square(product).sum()
    if below > 0:
        yield float((product * scores).sum() / below)
    if product.ndim > 2 and len(product) > 1:
        by_member, of_scores = np.diff(product, axis=0), np.diff(scores, axis=0)
        alike = np.abs(of_scores) < -AWAY
        below = np.square(by_member[alike]).sum()
        if below > 0:
            yield float((by_member * of_scores)[alike].sum() / below)


def is_shared(rest: Array, visible: Array, allowed: float) -> bool:
    """Every member has the same, where it is seen."""
    if rest.ndim < 3 or len(rest) < 2:
        return False
    upper = np.where(visible, rest, -np.inf).max(axis=0)
    lower = np.where(visible, rest, np.inf).min(axis=0)
    return bool(((upper - lower <= allowed) | ~visible.any(axis=0)).all())


def is_by_distance(rest: Array, visible: Array, allowed: float) -> bool:
    """The same wherever key and query are as far apart, as ALiBi and biases by distance are."""
    if min(rest.shape[-2:]) < 2:
        return False
    change = np.abs(rest[..., 1:, 1:] - rest[..., :-1, :-1])
    both = visible[..., 1:, 1:] & visible[..., :-1, :-1]
    return bool((change[both] <= allowed).all())


CONSTANT: tuple[Callable[[Array, Array, float], bool], ...] = (is_shared, is_by_distance)
"""What makes a bias one that was meant: not whatever is left of the scores."""

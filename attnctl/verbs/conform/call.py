"""A call of a target and its answer: outputs, what became of the same call again, or how it failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, log
from pathlib import Path
from time import monotonic
from traceback import extract_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array

if TYPE_CHECKING:
    from inspect import Parameter

    from attnctl.verbs.conform.blocks import BlockSize

NAN = 0xFF
OTHER = 0x41
"""Bytes that say NaN in every type, and some number in every type (12 in float32)."""

RATE = 0.02
MISSED = 0.01
"""A fault in so many of all calls is to be missed with this chance at most."""

CALLS = ceil(log(MISSED) / log(1 - RATE))
"""Calls of one case that this takes."""


@dataclass(frozen=True)
class TargetCall:
    """The arguments of a call; arrays hold numbers of the type, in float64."""

    inputs: tuple[Array, ...]
    """Q, K and V, or one array of them."""
    keywords: Mapping[str, Any]
    names: tuple[str, ...] = ()
    """The keywords of the inputs, where they are not given by place."""
    dtype: str = "float64"
    stored: str = ""
    """The type of K, V and a cache, where it is another."""
    caches: tuple[str, ...] = ()
    """The keywords of a cache."""
    memory: str = "plain"
    numbers: int = 0
    times: int = 1
    seconds: float = 0.0
    """The call is made `times` times, as long as these seconds last."""
    fill: int = NAN
    """The byte that memory holds where nothing was written."""
    cotangent: Array | None = None
    """The gradient by the output, where the framework is to go back from it to the inputs."""
    gives: tuple[str, ...] = ()
    """The gradients that a backward pass returns, in order; none of a function that goes forward."""
    wide: tuple[str, ...] = ()
    """The keywords of arrays that are in float32 at least: log-sum-exp and delta."""
    into: tuple[str, ...] = ()
    """The keywords of buffers that results are written to, in order, instead of being returned."""


@dataclass(frozen=True)
class Answer:
    outputs: tuple[Any, ...] = ()
    """The arrays that it returned, the first of them the output; None for what is no array."""
    gradients: tuple[Any, ...] = ()
    """The gradients by the inputs, in their order."""
    changed: tuple[str, ...] = ()
    error: str = ""
    """The kind of failure: crash, hang, exit, or the name of an exception."""
    kind: str = ""
    """The exception of Python's own that a library's exception is derived from."""
    message: str = ""
    place: str = ""
    """The file and line where it raised."""
    dtype: str = ""

    # --- what became of the same call again ---

    calls: int = 1
    others: int = 0
    """Calls whose bits were not those of the first."""
    apart: float = 0.0
    """The largest difference from the first output."""
    failed: str = ""
    """The failure of a call, after which there were no more."""
    stale: bool = False
    """Other numbers in the same arrays have the same answer."""
    farthest: tuple[Any, ...] = ()
    """The arrays that were farthest from the first."""

    @property
    def is_exception(self) -> bool:
        """It was raised, and came back: the process goes on, and can be called again."""
        return bool(self.error) and self.error not in NOT_RAISED

    @property
    def same(self) -> bool:
        return not (self.others or self.failed or self.stale)

    def output(self, place: int = 0) -> Any:
        """The array that came back in this place; None where there is none."""
        return self.outputs[place] if place < len(self.outputs) else None

    @property
    def compared(self) -> tuple[Any, ...]:
        """The arrays that are to be the same when the call is made again."""
        return self.gradients or self.outputs


ENDINGS = {
    "crash": "the process of the target died",
    "hang": "the target did not answer in time",
    "exit": "the target ended its process",
}

NOT_CALLED = "not called"
UNREADABLE = "unreadable"
"""The errors in place of an answer where a target is not called any more, and where a file holds none."""

NOT_RAISED = {*ENDINGS, NOT_CALLED, UNREADABLE}

SENT = {"SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"}
"""Signals that come from outside: of a system without memory, or of a person."""

REFUSALS = frozenset(
    {"NotImplementedError", "ValueError", "TypeError", "RuntimeError", "AssertionError", "IndexError"}
)
"""Exceptions by which a function says that it does not have what nobody claimed."""


class Target:
    name: str = ""
    words: tuple[str, ...] = ()
    """The words of a command line that name it; none of a function of this process."""
    parameters: Sequence[Parameter] | None = None
    """What it takes, once it is started; None where it does not say."""
    refuses: frozenset[str] = REFUSALS
    """The errors by which it says that it does not take a call."""
    cannot: Mapping[str, str] = MappingProxyType({})
    """Features that do not go with how it is called, each with why."""
    goes_back: bool = False
    """Gradients by its inputs come from its framework."""
    lost: int = 0
    """Calls whose process something else ended, and that were made again."""
    layout: str = ""
    """The axes of its arrays, where the way it is called says them."""
    unclaimed: str = "nothing in its signature asks for it"
    """Why an option is skipped that it does not have."""
    blocks: tuple[BlockSize, ...] = ()
    """The sizes of its blocks that its source has, once it is started."""

    def start(self) -> None:
        """Make ready, and read the parameters. Raises AttnError where that fails."""

    def call(self, call: TargetCall) -> Answer:
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


NUMPY = dict.fromkeys(("bfloat16", "float8_e4m3", "float8_e5m2"), "float32")
"""The type of NumPy that holds numbers of a type that NumPy has not."""


def have_same_bits(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(bits_of(x) == bits_of(y) for x, y in zip(a, b, strict=True))


def bits_of(array: Any) -> bytes:
    return b"" if array is None else bytes(array.tobytes())


def largest_gap(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The largest difference of two results, ∞ where a number is NaN or shapes differ."""
    if len(a) != len(b) or any(np.shape(x) != np.shape(y) for x, y in zip(a, b, strict=True)):
        return inf
    largest = []
    for x, y in zip(a, b, strict=True):
        if x is not None:
            gap = np.abs(np.subtract(x, y, dtype=float))
            largest.append(float(np.where(np.isnan(gap), inf, gap).max(initial=0.0)))
    return max(largest)


def chance_missed(calls: int) -> float:
    """Return the chance that so many calls show no fault of one call in fifty."""
    return float((1 - RATE) ** calls)


def repeat(again: Callable[[], Answer], first: Answer, times: int, seconds: float) -> Answer:
    """Make a call `times` times in all, as long as the time lasts, and compare it with the first."""
    calls = 1
    others = 0
    apart = 0.0
    failed = ""
    farthest: tuple[Any, ...] = ()
    until = monotonic() + seconds
    while calls < times and monotonic() < until and not failed:
        answer = again()
        calls += 1
        if answer.error:
            failed = f"{answer.error}: {answer.message}".rstrip(": ")
        elif not have_same_bits(first.compared, answer.compared):
            others += 1
            gap = largest_gap(first.compared, answer.compared)
            if gap >= apart:
                apart = gap
                farthest = answer.compared
    return replace(first, calls=calls, others=others, apart=apart, failed=failed, farthest=farthest)


# --- where a program failed ---


PYTHON = re.compile(r'^ *File "(.+)", line (\d+)')

OURS = Path(__file__).parent

OTHERS = ("site-packages", "dist-packages", "<", "/lib/python")
"""Parts of the paths of libraries, and of code in no file: <frozen …>, <__array_function__ internals>."""

MOST = 300
"""Characters of a message that are quoted."""


def read_last_words(said: bytes) -> str:
    """Find the exception that a program of Python printed, with its place, or else the last line."""
    text = said.decode("utf-8", "replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]

    frames = []
    last_frame = 0
    for number, line in enumerate(lines):
        frame = PYTHON.match(line)
        if frame:
            frames.append(frame.groups())
            last_frame = number
    if not frames:
        return lines[-1].strip()[:MOST] if lines else ""

    # The first line behind the frames that is not indented is the exception itself.
    message = next((line for line in lines[last_frame:] if not line.startswith(" ")), lines[-1])
    return f"{message[:MOST]} ({innermost_place(frames)})"


def innermost_place(frames: Sequence[tuple[str, ...]]) -> str:
    """Return file and line of the last frame that is no library's, or the last; empty for no frames."""
    if not frames:
        return ""
    own = [frame for frame in frames if not any(part in frame[0] for part in OTHERS)]
    file, line = (own or frames)[-1]
    path = Path(file)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}, line {line}"


def describe_exception(error: BaseException) -> Answer:
    """Make the answer of a target that raised, with the place outside of attnctl where it did."""
    builtin = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    frames = [(frame.filename, str(frame.lineno)) for frame in extract_tb(error.__traceback__)]
    place = innermost_place([frame for frame in frames if Path(frame[0]).parent != OURS])
    return Answer(error=type(error).__name__, kind=builtin, message=str(error)[:MOST], place=place)

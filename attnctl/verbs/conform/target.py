"""The targets: a Python function, in this process or in one of its own, or a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input
from attnctl.verbs.conform.call import Answer, Target, TargetCall
from attnctl.verbs.conform.claims import unknown_names
from attnctl.verbs.conform.command import Program
from attnctl.verbs.conform.invoke import Framework, invoke
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.process import Worker, as_function, read_parameters

FRAMEWORKS = ("numpy", "torch", "jax")

SECONDS = 20.0
"""What one call may take."""


def make_target(
    target: str | Sequence[str] | Callable[..., Any],
    framework: str = "numpy",
    device: str | None = None,
    timeout: float | None = None,
    jobs: int = 1,
    options: Sequence[str] = (),
    *,
    backward: bool = False,
) -> tuple[Target, str]:
    """Make the target of a function, of a function's name or of a command, and name it.

    The file of a command holds those of `options`, and with `backward` what a backward pass takes.
    Raises AttnError for what is no target.
    """
    raise_all(unknown_names("framework", [framework], FRAMEWORKS))
    own = Framework(framework, device or "")
    if callable(target):
        return InProcess(target, own), getattr(target, "__qualname__", type(target).__name__)
    limit = timeout or SECONDS
    if isinstance(target, str):
        refuse_name(target)
        workers = [Worker(target, own, limit) for _ in range(jobs)]
        return (workers[0] if jobs == 1 else Pool(workers)), target
    if not isinstance(target, Sequence):
        raise AttnError(f"{target!r}: not a target; give a function, or the name of one, module:function")
    if framework != "numpy":
        raise AttnError(f"--framework {framework}: a command reads a file; leave it out")
    program = Program(target, [name for name in options if name in OPTIONS], limit, backward)
    return (program if jobs == 1 else Pool([program] * jobs)), " ".join(target)


def refuse_name(text: str) -> None:
    """Raise AttnError for what is neither `module:function` nor `file.py:function` of a file."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise AttnError(
            f"{text}: not a target; write module:function, file.py:function, or -- CMD {{in}} {{out}}"
        )
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise AttnError(f"{text}: {place}: no such file")
        note_input(place)


class InProcess(Target):
    """A function that is called here: nothing stops what it does."""

    def __init__(self, function: Callable[..., Any], framework: Framework) -> None:
        self.function, self.framework = as_function(function), framework
        self.goes_back = framework.goes_back

    def start(self) -> None:
        self.parameters = read_parameters(self.function)

    def call(self, call: TargetCall) -> Answer:
        return invoke(self.function, call, self.framework)


class Pool(Target):
    """Several of the same target, each called by one thread at a time."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets
        self.free: Queue[Target] = Queue()

    def start(self) -> None:
        for each in self.targets:
            each.start()
            self.free.put(each)
        first = self.targets[0]
        self.parameters, self.cannot, self.unclaimed = first.parameters, first.cannot, first.unclaimed
        self.goes_back = first.goes_back

    def call(self, call: TargetCall) -> Answer:
        one = self.free.get()
        try:
            return one.call(call)
        finally:
            self.free.put(one)

    def close(self) -> None:
        for each in self.targets:
            each.close()

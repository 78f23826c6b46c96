"""What is held to attention: a Python function, in this process or in one of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, Protocol

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input
from attnctl.verbs.conform.call import Answer, Call, Framework, invoke
from attnctl.verbs.conform.process import Worker
from attnctl.verbs.conform.signature import NOT_IN_SIGNATURE, REFUSALS, Parameter
from attnctl.verbs.conform.worker import parameters_of


class Target(Protocol):
    """Something that answers calls."""

    refuses: frozenset[str]
    """The errors by which it says that it does not take a call."""

    parameters: list[Parameter] | None
    cannot: dict[str, str]
    """Features that do not go with how it is called, each with why."""
    unclaimed: str
    """Why an option is skipped that it does not have."""

    def start(self) -> None:
        """Make ready. Raises AttnError where that fails."""

    def call(self, call: Call) -> Answer:
        """What it answers."""

    def close(self) -> None:
        """End what was started."""


@dataclass
class InProcess:
    """A function that is called here: nothing stops what it does."""

    function: Callable[..., Any]
    framework: Framework = Framework()  # noqa: RUF009  (frozen)
    parameters: list[Parameter] | None = None
    cannot: dict[str, str] = field(default_factory=dict)
    unclaimed: str = NOT_IN_SIGNATURE
    refuses: frozenset[str] = REFUSALS

    def start(self) -> None:
        """Read its signature."""
        self.parameters = parameters_of(self.function)

    def call(self, call: Call) -> Answer:
        return invoke(self.function, call, self.framework)

    def close(self) -> None:
        """Nothing was started."""


def target_of(text: str, framework: Framework, limit: float) -> Target:
    """The target of `module:function` or `file.py:function`. Raises AttnError for what is neither."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise AttnError(
            f"{text}: not a target; write module:function, file.py:function, or -- CMD {{in}} {{out}}"
        )
    if place.endswith(".py"):
        from pathlib import Path

        if not Path(place).is_file():
            raise AttnError(f"{text}: {place}: no such file")
        note_input(place)
    return Worker(text, framework, limit)


@dataclass
class Pool:
    """Several of the same target, each called by one at a time."""

    targets: list[Target]
    free: Queue[Target] = field(default_factory=Queue)
    parameters: list[Parameter] | None = None
    cannot: dict[str, str] = field(default_factory=dict)
    unclaimed: str = NOT_IN_SIGNATURE
    refuses: frozenset[str] = REFUSALS

    def start(self) -> None:
        """Start them all."""
        for each in self.targets:
            each.start()
            self.free.put(each)
        first = self.targets[0]
        self.parameters, self.cannot, self.unclaimed = first.parameters, first.cannot, first.unclaimed

    def call(self, call: Call) -> Answer:
        one = self.free.get()
        try:
            return one.call(call)
        finally:
            self.free.put(one)

    def close(self) -> None:
        """End them all."""
        for each in self.targets:
            each.close()

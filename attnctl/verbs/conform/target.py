"""What is held to attention: a Python function, in this process or in one of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from attnctl.errors import AttnError
from attnctl.verbs.conform.call import Answer, Call, Framework, invoke
from attnctl.verbs.conform.process import Worker
from attnctl.verbs.conform.signature import Parameter
from attnctl.verbs.conform.worker import parameters_of


class Target(Protocol):
    """Something that answers calls."""

    parameters: list[Parameter] | None

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

    def start(self) -> None:
        """Read its signature."""
        self.parameters = parameters_of(self.function)

    def call(self, call: Call) -> Answer:
        """What it returns or raises."""
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
            raise AttnError(f"{text}: there is no file {place}")
    return Worker(text, framework, limit)

"""The errors a user may meet, and the exit code of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line; scripts depend on them."""

    OK = 0
    DIFFERS = 1
    USAGE = 2
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @classmethod
    def of(cls, agrees: bool | None) -> Exit:
        """0 for what agrees, 1 for what does not, 2 where that cannot be told."""
        return cls.USAGE if agrees is None else cls.OK if agrees else cls.DIFFERS


class AttnError(Exception):
    """A mistake in what came in: one or more problems, each a line a person can act on.

    A problem reads ``place: what is wrong; what to write instead``. All problems that can be
    found together are reported together.
    """

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[AttnError], tuple[tuple[str, ...]]]:
        """From one process to another it keeps its problems apart."""
        return type(self), (self.problems,)


class PipeClosed(Exception):  # noqa: N818  (nobody's error: the reader has seen enough)
    """Standard output was closed by whoever read it; Typer would swallow a BrokenPipeError."""


def raise_all(problems: Iterable[str]) -> None:
    found = tuple(problems)
    if found:
        raise AttnError(found)


@contextmanager
def collect_problems(problems: list[str], place: str = "") -> Iterator[None]:
    """Go on after an AttnError: its problems, which begin with the place, are put to the others."""
    try:
        yield
    except AttnError as error:
        problems += (f"{place}{problem}" for problem in error.problems)

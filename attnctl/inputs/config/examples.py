"""The configs that are installed with attnctl: the `configs/` of its repository."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found
from attnctl.base.words import did_you_mean, one_of, quote

EXAMPLE = "example:"
"""What stands before the name of an example in place of a file."""


def folder() -> Path:
    """The folder of the examples: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "configs"


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml"))


def example(name: str) -> Path:
    """The file of an example. Raises AttnError where there is none of this name."""
    known = names()
    if name not in known:
        instead = did_you_mean(name, known, f"there are {one_of(known, 'and')}")
        raise AttnError(f"no example {quote(name)}; {instead}")
    return folder() / f"{name}.yaml"


def about(name: str) -> str:
    """The first sentence of an example's comment that is not for an editor: what it shows."""
    comments = takewhile(lambda line: line.startswith("#"), text_of(name).splitlines())
    ours = (line[1:].strip() for line in comments if "yaml-language-server" not in line)
    return re.split(r"(?<=\.) ", " ".join(ours), maxsplit=1)[0]


def text_of(name: str) -> str:
    """The text of an example. Raises AttnError where there is none of this name."""
    with open_found(example(name)) as stream:
        return stream.read().decode("utf-8")

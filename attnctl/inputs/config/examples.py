"""The configs that are installed with attnctl: the `configs/` of its repository."""

from __future__ import annotations

import pathlib
import re
from itertools import takewhile

from attnctl.base import files
from attnctl.base.errors import AttnError
from attnctl.base.words import did_you_mean, one_of, quote


def examples_folder() -> pathlib.Path:
    """The folder of the examples: in the installed package, or beside it in a checkout."""
    package = pathlib.Path(__file__).parents[2]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "configs"


def example_names() -> list[str]:
    return sorted(path.stem for path in examples_folder().glob("*.yaml"))


def example_file(name: str) -> pathlib.Path:
    known = example_names()
    if name not in known:
        instead = did_you_mean(name, known, f"there are {one_of(known, 'and')}")
        raise AttnError(f"no example {quote(name)}; {instead}")
    return examples_folder() / f"{name}.yaml"


def example_summary(name: str) -> str:
    """The first sentence of an example's comment that is not for an editor: what it shows."""
    comments = takewhile(lambda line: line.startswith("#"), example_text(name).splitlines())
    ours = (line[1:].strip() for line in comments if "yaml-language-server" not in line)
    return re.split(r"(?<=\.) ", " ".join(ours), maxsplit=1)[0]


def example_text(name: str) -> str:
    with files.open_found(example_file(name)) as stream:
        return stream.read().decode("utf-8")

"""A config file to Settings: every problem at once, each with its line and path; the examples."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from attnctl.base import files
from attnctl.base.errors import AttnError
from attnctl.base.values import MAX_PROBLEMS, BadValueError, Path, json_path
from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.inputs.config import yaml
from attnctl.inputs.config.settings import EXAMPLE, Settings
from attnctl.record import SCHEMA


def load(path: str | pathlib.Path) -> Settings:
    """The settings of a config file, of stdin (``-``), or of an installed example (``example:NAME``).

    Raises AttnError with every problem in it, or with the reason why it cannot be read.
    """
    if str(path) == "-":
        give = "; give the path of a YAML file"
        with files.refuse_os_errors("<stdin>", give), files.open_input("-") as file:
            raw = file.read(yaml.MAX_BYTES + 1)
        return parse_config(raw, "<stdin>", pathlib.Path())
    if str(path).startswith(EXAMPLE):
        path = example(str(path).removeprefix(EXAMPLE))
    try:
        with files.open_input(path) as file:
            raw = file.read(yaml.MAX_BYTES + 1)
    except FileNotFoundError:
        instead = f"did you mean {EXAMPLE}{path}?" if path in example_names() else ""
        init = f"`attnctl config init -o {path}` writes one"
        raise AttnError(f"{path}: no such file; {instead or init}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise AttnError(f"{path}: {reason}; give the path of a YAML file") from None
    return parse_config(raw, str(path), pathlib.Path(path).parent)


def parse_config(text: bytes, name: str, base: pathlib.Path) -> Settings:
    """The settings that a config's text describes.

    Messages call it `name`; relative files in it are looked for in `base`. Raises AttnError with
    every problem, in the order of the lines.
    """
    from attnctl.inputs.config.schema import settings_of

    def read(data: Any) -> Settings:
        if isinstance(data, dict) and data.get("schema") == SCHEMA:
            raise AttnError(f"{name}: a dump, not a config; attnctl show, explain and check read it")
        return settings_of(data, "" if base == pathlib.Path() else str(base))

    try:
        decoded = yaml.decode(text, name)
        settings = read_as(decoded, name, read)
    except MemoryError:
        raise AttnError(f"{name}: more than fits into memory; keep matrices in a .npz file") from None
    return replace(settings, where=partial(place_in, decoded, name))


def read_as(text: str, name: str, form: Callable[[Any], Any]) -> Any:
    """What a form makes of a YAML text. Raises AttnError with every problem, in the order of the lines."""
    data, problems = yaml.read(text, name)
    try:
        made = form(data)
    except BadValueError as bad:
        lines = yaml.line_numbers(text, [path for path, _ in bad.problems])
        problems += (
            (lines[path], f"{name}:{lines[path]} {json_path(path)}: {what}") for path, what in bad.problems
        )
    if problems:
        raise AttnError(list_problems(problems))
    return made


def list_problems(problems: list[tuple[int, str]]) -> Iterable[str]:
    """The problems in the order of their lines; of very many the first ones."""
    shown = [text for _, text in sorted(problems, key=lambda each: each[0])]
    return shown if len(shown) <= MAX_PROBLEMS else [*shown[:MAX_PROBLEMS], "… and more like these"]


def place_in(text: str, name: str, path: Path) -> str:
    """The line of a path in the text of a file, and the path as it is written there."""
    written = as_written(text, path)
    return f"{name}:{yaml.line_numbers(text, [written])[written]} {json_path(written)}"


def as_written(text: str, path: Path) -> Path:
    """The path as the text has it: rules.mask -> rules[2].mask, weights.heads[1].W_Q -> weights.W_Q[1]."""
    match path:
        case ("rules", str(kind), *rest):
            rules = yaml.read(text, "")[0].get("rules", [])
            places = (i for i, rule in enumerate(rules) if isinstance(rule, dict) and kind in rule)
            return next((("rules", i, kind, *rest) for i in places), path)
        case ("weights", "heads", int(head), str(name)):
            by_head = "heads" in yaml.read(text, "")[0]["weights"]
            return path if by_head else ("weights", name, head)
        case _:
            return path


# --- the configs that are installed with attnctl: the `configs/` of its repository ---


def examples_folder() -> pathlib.Path:
    """The folder of the examples: in the installed package, or beside it in a checkout."""
    package = pathlib.Path(__file__).parents[2]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "configs"


def example_names() -> list[str]:
    return sorted(path.stem for path in examples_folder().glob("*.yaml"))


def example(name: str) -> pathlib.Path:
    """The file of an example. Raises AttnError where there is none of this name."""
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
    with files.open_found(example(name)) as stream:
        return stream.read().decode("utf-8")

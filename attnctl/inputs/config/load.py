"""A config file to Settings: every problem at once, each with its line."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from attnctl.base import files
from attnctl.base.errors import AttnError
from attnctl.base.values import MAX_PROBLEMS, BadValueError, Path, json_path
from attnctl.inputs.config import yaml
from attnctl.inputs.config.examples import example_file, example_names
from attnctl.inputs.config.form import settings_of
from attnctl.inputs.config.settings import EXAMPLE, Settings
from attnctl.record import SCHEMA


def load(path: str | pathlib.Path) -> Settings:
    """The settings of a file, stdin (``-``) or ``example:NAME``. Raises AttnError with every problem."""
    if str(path).startswith(EXAMPLE):
        path = example_file(str(path).removeprefix(EXAMPLE))
    name = "<stdin>" if str(path) == files.STANDARD_INPUT else str(path)

    try:
        with files.open_input(str(path)) as file:
            raw = file.read(yaml.MAX_BYTES + 1)
    except FileNotFoundError:
        if path in example_names():
            instead = f"did you mean {EXAMPLE}{path}?"
        else:
            instead = f"`attnctl config init -o {path}` writes one"
        raise AttnError(f"{path}: no such file; {instead}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise AttnError(f"{name}: {reason}; give the path of a YAML file") from None

    return parse_config(raw, name, pathlib.Path(path).parent)


def parse_config(text: bytes, name: str, base: pathlib.Path) -> Settings:
    """The settings of a text called `name`, with files in `base`. Raises AttnError with every problem."""

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
        for path, what in bad.problems:
            line = lines[path]
            problems.append((line, f"{name}:{line} {json_path(path)}: {what}"))

    if problems:
        raise AttnError(list_problems(problems))
    return made


def list_problems(problems: list[tuple[int, str]]) -> Iterable[str]:
    """The problems in the order of their lines; of very many the first ones."""
    in_order = sorted(problems, key=lambda problem: problem[0])
    texts = [text for _, text in in_order]
    if len(texts) <= MAX_PROBLEMS:
        return texts
    return [*texts[:MAX_PROBLEMS], "… and more like these"]


def place_in(text: str, name: str, path: Path) -> str:
    """The line of a path in the text of a file, and the path as it is written there."""
    written = as_written(text, path)
    return f"{name}:{yaml.line_numbers(text, [written])[written]} {json_path(written)}"


def as_written(text: str, path: Path) -> Path:
    """The path as the text has it: rules.mask -> rules[2].mask, weights.heads[1].W_Q -> weights.W_Q[1]."""
    match path:
        case ("rules", str(kind), *rest):
            rules = yaml.read(text, "")[0].get("rules", [])
            for number, rule in enumerate(rules):
                if isinstance(rule, dict) and kind in rule:
                    return ("rules", number, kind, *rest)
        case ("weights", "heads", int(head), str(name)):
            is_by_name = "heads" not in yaml.read(text, "")[0]["weights"]
            if is_by_name:
                return ("weights", name, head)
    return path

"""Settings as a YAML text that a person reads, edits and runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import isinf
from typing import Any

from attnctl.config.format import Config, WeightsForm
from attnctl.config.forms import Form
from attnctl.config.scalars import quoted
from attnctl.config.settings import Settings

HEADER = """\
# yaml-language-server: $schema=attnctl.schema.json
# An editor that knows the schema completes and checks: attnctl config schema > attnctl.schema.json
# Every key may be left out; a key behind a # is an example, or the default.
"""

WIDTH = 100
LONGEST_KEY = 1000
"""A longer key has to be announced by a question mark (YAML 1.2, section 7.4.2)."""

PLAIN = re.compile(r"[^\W\d_][\w'’-]*( [\w'’-]+)*")
"""Words that every YAML reader takes as they stand, but for these:"""
RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


def commented(settings: Settings) -> str:
    """The settings as YAML with a comment on each key; reading it gives the same settings."""
    given, default = settings.to_dict(), Settings().to_dict()
    if given["weights"]["random"] == default["weights"]["random"] and len(given["weights"]) > 1:
        del given["weights"]["random"]
    out = [HEADER]
    for name, field in Config.model_fields.items():
        out.append(f"# {field.description}")
        if given.get(name) != default.get(name):
            out += entry(name, given[name], "", WeightsForm if name == "weights" else None)
        else:
            example = field.examples[0] if field.examples else default[name]
            out.append(f"# {name}: {flow(example)}")
        out.append("")
    return "\n".join(out)


def entry(key: str, value: Any, indent: str, form: type[Form] | None = None) -> Iterator[str]:
    """The lines of one key and its value; of a `form`, with a comment on each key below."""
    name = text(key)
    start = f"{indent}{name}:" if len(name) <= LONGEST_KEY else f"{indent}? {name}\n{indent}:"
    if on_one_line(value, indent + name):
        yield f"{start} {flow(value)}"
        return
    yield start
    below = indent + "  "
    if isinstance(value, Mapping):
        for each, inner in value.items():
            if form is not None:
                yield f"{below}# {form.model_fields[each].description}"
            yield from entry(each, inner, below)
    else:
        for item in value:
            yield from dashed(item, below)


def dashed(item: Any, indent: str) -> Iterator[str]:
    """The lines of one item of a list."""
    if not isinstance(item, Mapping) or not item:
        yield f"{indent}- {flow(item)}"
        return
    lines = (line for key, value in item.items() for line in entry(key, value, indent + "  "))
    for i, line in enumerate(lines):
        yield f"{indent}- {line[len(indent) + 2 :]}" if i == 0 else line


def on_one_line(value: Any, before: str) -> bool:
    """Whether the value stands beside its key: scalars, rows of numbers, and what is short and flat."""
    match value:
        case list():
            numbers = not any(isinstance(each, (str, list, Mapping)) for each in value)
            return numbers or (flat(value) and len(before) + len(flow(value)) <= WIDTH)
        case Mapping():
            return flat(value.values()) and len(before) + len(flow(value)) <= WIDTH
        case _:
            return True


def flat(values: Iterable[Any]) -> bool:
    """Whether there is no list in these, nor anywhere within them."""
    return not any(
        isinstance(each, list) or (isinstance(each, Mapping) and not flat(each.values())) for each in values
    )


def flow(value: Any) -> str:
    """The value in one line of YAML, every digit of its numbers kept."""
    match value:
        case str():
            return text(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "inf"  # the open side of a window: nothing else in a config is None
        case int():
            return str(int(value))
        case float():
            return number(float(value))
        case Mapping():
            return "{" + ", ".join(f"{text(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(flow, value)) + "]"


def number(value: float) -> str:
    """The shortest digits that read back the same; 1e-05 as 1.0e-05, which is a number in YAML 1.1, too."""
    if isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits = repr(value)
    return digits if "." in digits else digits.replace("e", ".0e")


def text(value: str) -> str:
    """The text, in quotes wherever some reader of YAML would take it for anything else."""
    return value if PLAIN.fullmatch(value) and value.lower() not in RESERVED else quoted(value)

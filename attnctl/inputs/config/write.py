"""Settings as a YAML text that a person reads, edits and runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attnctl.base.setting import Setting
from attnctl.base.values import flow, flow_text
from attnctl.inputs.config.fields import FIELDS
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.tensors import WEIGHTS

HEADER = """\
# yaml-language-server: $schema=attnctl.schema.json
# An editor that knows the schema completes and checks: attnctl config schema > attnctl.schema.json
# Every key may be left out; a key behind a # is an example, or the default.
"""

WIDTH = 100
LONGEST_KEY = 1000
"""A longer key has to be announced by a question mark (YAML 1.2, section 7.4.2)."""


def write_commented(settings: Settings) -> str:
    """The settings as YAML with a comment on each key; reading it gives the same settings."""
    given, default = settings.to_dict(), Settings().to_dict()
    if given["weights"]["random"] == default["weights"]["random"] and len(given["weights"]) > 1:
        del given["weights"]["random"]
    out = [HEADER]
    for name, setting in FIELDS.items():
        out.append(f"# {setting.help}")
        if given.get(name) != default.get(name):
            out += entry(name, given[name], "", WEIGHTS.keys if setting.reader is WEIGHTS else None)
        else:
            example = default[name] if setting.example is None else setting.example
            out.append(f"# {name}: {flow(example)}")
        out.append("")
    return "\n".join(out)


def entry(key: str, value: Any, indent: str, known: Mapping[str, Setting] | None = None) -> Iterator[str]:
    """The lines of one key and its value; where the keys below are `known`, with a comment on each."""
    name = flow_text(key)
    start = f"{indent}{name}:" if len(name) <= LONGEST_KEY else f"{indent}? {name}\n{indent}:"
    if on_one_line(value, indent + name):
        yield f"{start} {flow(value)}"
        return
    yield start
    below = indent + "  "
    if isinstance(value, Mapping):
        for each, inner in value.items():
            if known is not None:
                yield f"{below}# {known[each].help}"
            yield from entry(each, inner, below)
    else:
        for item in value:
            yield from write_list_item(item, below)


def write_list_item(item: Any, indent: str) -> Iterator[str]:
    if not isinstance(item, Mapping) or not item:
        yield f"{indent}- {flow(item)}"
        return
    lines = (line for key, value in item.items() for line in entry(key, value, indent + "  "))
    for i, line in enumerate(lines):
        yield f"{indent}- {line[len(indent) + 2 :]}" if i == 0 else line


def on_one_line(value: Any, before: str) -> bool:
    """True if the value stands beside its key: scalars, rows of numbers, and what is short and flat."""
    match value:
        case list():
            numbers = not any(isinstance(each, (str, list, Mapping)) for each in value)
            return numbers or (flat(value) and len(before) + len(flow(value)) <= WIDTH)
        case Mapping():
            return flat(value.values()) and len(before) + len(flow(value)) <= WIDTH
        case _:
            return True


def flat(values: Iterable[Any]) -> bool:
    """True if there is no list in these, nor anywhere within them."""
    return not any(
        isinstance(each, list) or (isinstance(each, Mapping) and not flat(each.values())) for each in values
    )

"""Settings as a command line gives them: flags over a config over defaults; and written again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from math import inf
from textwrap import indent
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.setting import Given
from attnctl.base.values import Path, flow, to_tuples
from attnctl.base.words import escape
from attnctl.inputs.config.fields import ALIBI, FIELDS, IN_PARTS, KEYWORDS, ROPE, SETTABLE, lay_over
from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.config.tensors import WEIGHTS
from attnctl.math.rules import RULES, Rule


def settings_from(config: str | None, flags: Given, base: Settings | None = None, **more: Any) -> Settings:
    """The settings of a command line; `more` holds settings that are no flags of the table.

    Flags are laid over the config, or over `base` where there is none. Raises AttnError with
    every problem in the config, or with flags that have no meaning.
    """
    if isinstance(flags.get("seed"), tuple):
        raise AttnError("--seed: several seeds are several runs, which attnctl run takes alone; write one")
    base = base or Settings()
    if config is not None:
        from attnctl.inputs.config.load import load

        base = load(config)

    values = {**combine_parts(flags, base), **more}
    given = {name: value for name, value in values.items() if value is not None}
    where = PlaceOfSetting(base.where, frozenset(given))
    return replace(lay_over(base, given), where=where, named=base.named.union(given))


WHOLE = {
    "positions": "rotary positions have that; add --positions rope",
    "qk_norm": "norms of Q and K have that; add --qk-norm rms or --qk-norm layer",
}
"""The words on a flag of a part where the whole is not asked for."""


def combine_parts(flags: Given, base: Settings) -> Given:
    """The flags, those of a part of a setting laid over it: --theta over the rotary positions."""
    given = dict(flags)
    for name, form in IN_PARTS.items():
        parts = {key.name: given.pop(key.keyword) for key in form.keys.values() if key.keyword in flags}
        if not parts:
            continue

        setting = given.get(name, getattr(base, name))
        if not is_dataclass(setting):
            unused = ", ".join(form.keys[part].flag_name for part in parts)
            raise AttnError(f"{unused}: only {WHOLE[name]}")
        given[name] = replace(setting, **parts)  # type: ignore[type-var]
    return given


@dataclass(frozen=True)
class PlaceOfSetting:
    """The place a value was written at: its flag, or its line in the config. Workers are sent it."""

    base: Callable[[Path], str]
    given: frozenset[str]

    def __call__(self, path: Path) -> str:
        name = str(path[0])
        has_config = self.base is not Settings().where
        if has_config and name not in self.given:
            return self.base(path)
        if not has_config and name in {"sentence", "context"}:
            return name
        return FIELDS[name].flag_name if name in FIELDS else as_flag(name)


def by_flag(given: Given) -> Given:
    return {
        KEYWORDS[name].flag_name if name in KEYWORDS else as_flag(name): value
        for name, value in given.items()
    }


def as_flag(name: str) -> str:
    """What a keyword that is no setting would be called as a flag."""
    return f"--{name.replace('_', '-')}"


# --- settings written again: as a YAML text that a person reads, edits and runs ---

HEADER = """\
# yaml-language-server: $schema=attnctl.schema.json
# An editor that knows the schema completes and checks: attnctl config schema > attnctl.schema.json
# Every key may be left out; a key behind a # is an example, or the default.
"""


def write_commented(settings: Settings) -> str:
    """The settings as YAML with a comment on each key; reading it gives the same settings."""
    given = settings.to_dict()
    default = Settings().to_dict()
    if given["weights"]["random"] == default["weights"]["random"] and len(given["weights"]) > 1:
        del given["weights"]["random"]

    entries = []
    for name, setting in FIELDS.items():
        entry = f"# {setting.help}\n"
        if given.get(name) == default.get(name):
            example = default[name] if setting.example is None else setting.example
            entry += f"# {name}: {flow(example)}\n"
        elif setting.reader is WEIGHTS:
            entry += f"{name}:\n{commented_weights(given[name])}"
        else:
            entry += in_yaml({name: given[name]})
        entries.append(entry)

    return f"{HEADER}\n" + "\n".join(entries)


def commented_weights(weights: Mapping[str, Any]) -> str:
    """The lines below `weights:`, a comment above each."""
    lines = [f"# {WEIGHTS.keys[key].help}\n{in_yaml({key: tensor})}" for key, tensor in weights.items()]
    return indent("".join(lines), "  ")


class SettingChange(NamedTuple):
    """A setting or rule that differs: its keyword, its value, and the flags that say it, if any do."""

    keyword: str
    value: Any
    flags: list[str]


def in_yaml(given: Mapping[str, Any]) -> str:
    """A mapping as YAML: rows of numbers and what is flat in one line, every digit kept."""
    import yaml

    class ConfigDumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def serialize(self, node: Any) -> None:
            node.flow_style = False
            super().serialize(node)

        def represent_str(self, data: str) -> Any:
            style = None if data.isprintable() else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    ConfigDumper.add_representer(str, ConfigDumper.represent_str)
    # A choice of a setting is a text with more to it.
    ConfigDumper.add_multi_representer(str, lambda dumper, data: dumper.represent_str(str.__str__(data)))
    # The open side of a window: nothing else in a config is None.
    ConfigDumper.add_representer(type(None), lambda dumper, _: dumper.represent_str("inf"))
    more: Any = {"allow_unicode": True, "sort_keys": False, "width": inf}
    text = yaml.dump(given, Dumper=ConfigDumper, default_flow_style=None, **more)
    return "".join(char if char.isprintable() or char == "\n" else escape(char) for char in text)


# --- as flags ---


def flags(settings: Settings, base: Settings) -> list[str] | None:
    """The flags that lead from `base` to these settings; None where flags cannot say them."""
    sayable = [change for change in changes_of(settings, base) if change.flags]
    given = {change.keyword: change.value for change in sayable}
    if comparable(lay_over(base, given)) != comparable(settings):
        return None
    return [word for change in sayable for word in change.flags]


def comparable(settings: Settings) -> Settings:
    """The settings without the sentence, which is an argument, their rules in one order."""
    return replace(settings, sentence=None, rules=rules_in_order(settings.rules))


def rules_in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules as they are listed: their order says only which is named where several hide a score."""
    listed = list(RULES.values())
    return tuple(sorted(rules, key=lambda rule: listed.index(type(rule))))


def changes_of(settings: Settings, base: Settings) -> Iterator[SettingChange]:
    """Each setting and rule that `base` does not have."""
    for name in FIELDS:
        value = getattr(settings, name)
        if name != "rules" and value != getattr(base, name):
            yield SettingChange(name, value, flags_of(name, value))

    setting_of = {kind: setting for setting, kind in SETTABLE.items()}
    for rule in settings.rules:
        setting = setting_of.get(type(rule))
        if rule in base.rules or setting is None:
            continue
        if rule.name == ALIBI and settings.positions == NONE:
            yield SettingChange("positions", ALIBI, flags_of("positions", ALIBI))
        else:
            value = rule_value(rule)
            yield SettingChange(setting.keyword, value, setting.flags(value))


def rule_value(rule: Rule) -> Any:
    """The value that its setting has for a rule: (3, 0) of a window, True of one that is on or off."""
    plain = rule.plain()
    value = True if isinstance(plain, str) else plain[rule.name]
    return to_tuples(value)


def flags_of(name: str, value: Any) -> list[str]:
    """The flags that give a setting this value, those of its parts among them; none where none do."""
    if name not in IN_PARTS or not is_dataclass(value):
        is_learned_table = isinstance(value, list)
        return [] if is_learned_table else FIELDS[name].flags(value)

    whole = {"positions": ROPE, "qk_norm": getattr(value, "kind", None)}.get(name)
    words = FIELDS[name].flags(whole)
    usual: Any = type(value)
    sayable = usual()
    for key in IN_PARTS[name].keys.values():
        part = getattr(value, key.name)
        if part != getattr(sayable, key.name) or name == "tokenizer":
            words += key.flags(part)
            sayable = replace(sayable, **{key.name: part})

    return words if sayable == value else []

"""Rules in a config: each written as its own class says, and tables of who sees whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnctl.base.setting import Choice, Form, ListOf, Setting, word_or_mapping
from attnctl.base.values import Json, Reader, flow, refuse, words
from attnctl.base.words import one_of
from attnctl.inputs.config.tensors import BIAS, MASK, repeats
from attnctl.math.rules import RULES, AllOf, AnyOf, Padding, Rule, VisibilityRule

SETTABLE = {rule.setting: rule for rule in RULES.values() if rule.setting is not None}
"""The rules that a person can ask for, but for those that are made of others."""

RULE_TABLES = (
    Setting("mask", MASK, "A row for each query: 1 may attend, 0 may not.", [[1, 0]]),
    Setting("bias", BIAS, "A row for each query, added to its scores; -.inf hides.", [[0]]),
)


def rule_of(given: Json) -> Any:
    """A rule, or a table as it was given: {mask: rows}."""
    ((name, value),) = given.items()
    return RULES[name].of(value) if name in RULES else given


def word_of(settings: Sequence[Setting]) -> Reader:
    """Reads the name of a rule that is a word by itself."""
    names = [setting.name for setting in settings if setting.switch]
    return Reader(lambda name: RULES[name].of(value=True), words(*names).schema)


def rule_reader(form: str, about: str, settings: Sequence[Setting]) -> Choice:
    """Reads one of these rules, by its name alone or in a mapping, which the schema calls `form`."""
    alone = [setting for setting in settings if setting.switch]
    others = [setting for setting in settings if not setting.switch]
    word, mapping = word_of(alone), Form(form, about, others, rule_of, just_one=True)
    written = one_of((flow(each.in_config) for each in (*alone, *others)), most=len(settings))
    pick = word_or_mapping([each.name for each in alone], word, mapping)
    return Choice(pick, [word, mapping], f"a rule; write {written}")


def compose_rules(inside: Reader) -> tuple[Setting, ...]:
    example = ["causal", {"window": [3, 3]}]
    return tuple(
        Setting(kind.name, ListOf(inside, least=1), f"{kind.words}.", example) for kind in (AnyOf, AllOf)
    )


HIDING = [
    setting
    for setting, kind in SETTABLE.items()
    if issubclass(kind, VisibilityRule) and kind is not Padding  # which nobody sees, whatever else
]
"""The rules that may be put together."""


def within(value: Any) -> Any:
    """A rule within another one, which may be made of rules again."""
    return VISIBILITY(value)


FORM = "VisibilityForm"
WITHIN = Reader(within, {"oneOf": [word_of(HIDING).schema, {"$ref": f"#/$defs/{FORM}"}]})
VISIBILITY = rule_reader(FORM, "A rule of who sees whom.", [*HIDING, *compose_rules(WITHIN)])

RULE_SETTINGS = (*SETTABLE, *compose_rules(VISIBILITY), *RULE_TABLES)
RULE = rule_reader("RuleForm", "A rule with a number, rules or a table.", RULE_SETTINGS)


def kind_of(rule: Any) -> str:
    return rule.name if isinstance(rule, Rule) else next(iter(rule))


def once(rules: list[Any]) -> None:
    """Raise BadValueError where a kind of rule is there more than once."""
    refuse(
        ((i,), f"{kind} again, after rules[{first}]; keep one of them")
        for i, kind, first in repeats(enumerate(map(kind_of, rules)))
    )


def rule_examples() -> list[Any]:
    """Every rule that has a flag, as a config has it."""
    return [setting.in_config for setting in SETTABLE if setting.flag]


LIST_OF_RULES = ListOf(RULE, once)

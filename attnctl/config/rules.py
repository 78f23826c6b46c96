"""How a config writes rules: each as its own class says, and tables of who sees whom."""

from __future__ import annotations

from typing import Any

from attnctl.config.flow import flow
from attnctl.config.tables import BIAS, MASK, repeats
from attnctl.forms import Choice, Form, ListOf, word_or_mapping
from attnctl.rules import RULES, Rule
from attnctl.setting import Setting
from attnctl.values import Json, Reader, refuse, words
from attnctl.words import one_of

SETTABLE = {rule.setting: rule for rule in RULES.values() if rule.setting is not None}
"""The rules that a person can ask for."""

RULE_TABLES = (
    Setting("mask", MASK, "A row for each query: 1 may attend, 0 may not.", [[1, 0]]),
    Setting("bias", BIAS, "A row for each query, added to its scores; -.inf hides.", [[0]]),
)
RULE_WORDS = tuple(setting.name for setting in SETTABLE if setting.switch)
RULE_WORD = Reader(lambda word: RULES[word].of(value=True), words(*RULE_WORDS).schema)
RULE_KEYS = (*(setting for setting in SETTABLE if not setting.switch), *RULE_TABLES)


def rule_of(given: Json) -> Any:
    """A rule, or a table as it was given: {mask: rows}."""
    ((name, value),) = given.items()
    return RULES[name].of(value) if name in RULES else given


RULE_FORM = Form("RuleForm", "A rule with a number or a table.", RULE_KEYS, rule_of, just_one=True)


def kind_of(rule: Any) -> str:
    """The name of a rule or of a table."""
    return rule.name if isinstance(rule, Rule) else next(iter(rule))


def once(rules: list[Any]) -> None:
    """Raise BadValueError where a kind of rule is there more than once."""
    refuse(
        ((i,), f"{kind} again, after rules[{first}]; keep one of them")
        for i, kind, first in repeats(enumerate(map(kind_of, rules)))
    )


def rule_examples() -> list[Any]:
    """Every rule that has a flag, as a config has it."""
    asked = [setting for setting in SETTABLE if setting.flag]
    return [each.name if each.switch else {each.name: each.example} for each in asked]


RULE_FORMS = [*RULE_WORDS, *(flow({each.name: each.example}) for each in RULE_KEYS)]
RULE = Choice(
    word_or_mapping(RULE_WORDS, RULE_WORD, RULE_FORM),
    [RULE_WORD, RULE_FORM],
    f"a rule; write {one_of(RULE_FORMS, most=len(RULE_FORMS))}",
)
LIST_OF_RULES = ListOf(RULE, once)

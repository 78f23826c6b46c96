"""Every setting, said once: a config, its schema, flags and keywords are all read by this table.

To add a setting, add it here and to `Settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnctl.config.flow import flow
from attnctl.config.forms import Choice, Form, ListOf, word_or_mapping
from attnctl.config.settings import DTYPES, NONE, SINUSOIDAL, Settings, Tokenizer
from attnctl.config.tables import BIAS, MASK, MATRIX, VOCABULARY, repeats
from attnctl.config.tensors import EMBEDDINGS, WEIGHTS
from attnctl.rules import RULES, Rule
from attnctl.setting import EDIT, SENTENCE, Flag, Setting
from attnctl.values import (
    MOST,
    POSITIVE,
    REAL,
    SEED,
    SIZE,
    SWITCH,
    WORD,
    BadValueError,
    Json,
    Reader,
    refuse,
    whole,
    words,
)
from attnctl.words import one_of

TOKENIZER = Form(
    "TokenizerForm",
    "How a sentence falls into tokens.",
    [
        Setting(
            "split",
            words("whitespace", "words", "characters"),
            "At whitespace, into words with punctuation split off, or into characters.",
            flag=Flag("--tokenizer", SENTENCE, more="Left out, whitespace."),
        ),
        Setting(
            "lowercase",
            SWITCH,
            "Whether the sentence is put in lower case first.",
            flag=Flag("--lowercase", SENTENCE),
        ),
    ],
    lambda given: Tokenizer(**given),
)


def even(value: Any) -> int:
    """An even number of dimensions, 2 or more."""
    number: int = whole(2, MOST - 1)(value)
    if number % 2:
        raise BadValueError(
            f"{number} is odd; dimensions turn in pairs, so write {number - 1} or {number + 1}"
        )
    return number


def rotary(given: Json) -> Any:
    """Rotary positions with these options."""
    from attnctl.derivation import Rotary

    return Rotary(**given)


ROPE, ALIBI = "rope", "alibi"
ROPE_OPTIONS = Form(
    "RopeOptions",
    "Rotary positions for Q and K.",
    [
        Setting(
            "theta",
            POSITIVE,
            "The base of the rotary angles.",
            flag=Flag("--theta", more="Left out, 10000."),
        ),
        Setting(
            "dims",
            Reader(even, {"type": "integer", "minimum": 2, "multipleOf": 2}, "N"),
            "How many of a head's dimensions turn with rotary positions; left out, all.",
            flag=Flag("--rotary-dims"),
        ),
        Setting(
            "interleaved",
            SWITCH,
            "Rotary pairs are neighbours (GPT-J), not a half apart (Llama).",
            flag=Flag("--interleaved"),
        ),
    ],
    rotary,
)
POSITION_WORDS = (NONE, SINUSOIDAL, ROPE, ALIBI)
POSITION_WORD = Reader(
    lambda word: rotary({}) if word == ROPE else str(word), words(*POSITION_WORDS).schema
)
POSITION_FORM = Form(
    "PositionsForm",
    "Positions that have options.",
    [
        Setting(ROPE, ROPE_OPTIONS, "Turn Q and K by an angle that grows with the position."),
        Setting("learned", MATRIX, "A learned table: a row of d_model numbers for each position."),
    ],
    lambda given: given.popitem()[1],
    just_one=True,
)
POSITIONS = Choice(
    word_or_mapping(POSITION_WORDS, POSITION_WORD, POSITION_FORM),
    [POSITION_WORD, POSITION_FORM],
    f"a kind of positions; write {one_of(POSITION_WORDS)}, or {{learned: [[0.1, 0.2], …]}}",
)

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

FIELDS: dict[str, Setting] = {
    each.name: each
    for each in (
        Setting("sentence", WORD, "The sentence.", "I love AI"),
        Setting(
            "context",
            WORD,
            "A second sentence, to attend to (cross-attention).",
            "AI loves me",
            Flag("--context", SENTENCE, parts=str),
        ),
        Setting(
            "vocab",
            VOCABULARY,
            "The tokens in the order of their ids, or {token: id}; left out, it grows from the sentence.",
            ["I", "love", "AI"],
        ),
        Setting(
            "tokenizer", TOKENIZER, "How a sentence falls into tokens: whitespace, words or characters."
        ),
        Setting(
            "d_model",
            SIZE,
            "The width of an embedding.",
            4,
            Flag("--d-model", SENTENCE, more="Left out, 4."),
        ),
        Setting(
            "heads", SIZE, "How many heads attend side by side.", 1, Flag("--heads", more="Left out, 1.")
        ),
        Setting(
            "kv_heads",
            SIZE,
            "How many heads K and V have; fewer than heads are shared (grouped heads).",
            1,
            Flag("--kv-heads", more="Left out, heads."),
        ),
        Setting(
            "d_k",
            SIZE,
            "The width of a head's queries and keys; left out, d_model / heads.",
            4,
            Flag("--d-k", SENTENCE),
        ),
        Setting(
            "d_v",
            SIZE,
            "The width of a head's values; left out, d_model / heads.",
            4,
            Flag("--d-v", SENTENCE),
        ),
        Setting(
            "seed",
            SEED,
            "What everything drawn is drawn from.",
            flag=Flag("--seed", SENTENCE, more="Left out, 0."),
        ),
        Setting(
            "embeddings",
            EMBEDDINGS,
            "A row of d_model numbers for each token: {token: [0.1, 0.2], …}, rows, identity, random "
            "or file.",
        ),
        Setting(
            "positions",
            POSITIONS,
            "How tokens know where they stand: none, sinusoidal, rope or alibi.",
            flag=Flag("--positions", metavar=f"<{'|'.join(POSITION_WORDS)}>"),
        ),
        Setting(
            "weights",
            WEIGHTS,
            "W_Q, W_K, W_V, W_O and biases; what is not given is drawn.",
            {"W_Q": "identity", "W_O": "none"},
        ),
        Setting("scale", REAL, "What scores are multiplied by; left out, 1 / √d_k.", 0.5, Flag("--scale")),
        Setting(
            "rules", ListOf(RULE, once), "Who may attend to whom, and how scores bend.", rule_examples()
        ),
        Setting(
            "causal_offset",
            whole(-MOST),
            "With causal, query i sees key j when j ≤ i + causal_offset.",
            0,
            Flag("--causal-offset", more="keys - queries aligns bottom-right (FlashAttention)."),
        ),
        Setting(
            "dtype",
            words(*DTYPES),
            "The precision of every step.",
            flag=Flag("--dtype", more="Left out, float64."),
        ),
        Setting(
            "edits",
            ListOf(WORD),
            "Steps to change before the next one reads them, in order; @FILE is another dump.",
            ["attention_weights[0,0,:]=0"],
            Flag(
                "--edit",
                EDIT,
                "CELL=VALUE",
                "Like 'attention_weights[0,love,:]=0', 'head_outputs[1]*=2' or "
                "'attention_weights=@other.json' (the same cells of another dump). May be repeated.",
                parts=str,
                repeated=True,
            ),
        ),
        Setting(
            "renormalize",
            SWITCH,
            "Whether edited rows of attention_weights are made to sum to 1 again.",
            False,
            Flag("--renormalize", EDIT),
        ),
    )
}
"""What a config may hold, in the order of `Settings`."""

IN_PARTS = {"tokenizer": TOKENIZER, "positions": ROPE_OPTIONS}
"""The settings that flags give in parts, and the form whose keys have these flags."""

KEYWORDS: dict[str, Setting] = {
    **FIELDS,
    **{setting.name: setting for setting in RULE_TABLES},
    **{setting.keyword: setting for setting in SETTABLE if setting.flag},
}
"""What `attnctl.run` and its like take, beside the settings that no config holds."""


def flagged(group: str) -> dict[str, Setting]:
    """The settings whose flags are of this group, by keyword."""
    every: dict[str, Setting] = {}
    for name, setting in FIELDS.items():
        parts = {"rules": SETTABLE, **{field: form.keys.values() for field, form in IN_PARTS.items()}}
        every |= {name: setting} | {each.keyword: each for each in parts.get(name, ())}
    return {name: each for name, each in every.items() if each.flag and each.flag.group == group}


def laid(base: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with these values, read already, laid over them, each by its keyword.

    A rule replaces its like. ALiBi is a rule that is asked for as positions: others replace it,
    unless these values hold rules of their own.
    """
    changes = {name: value for name, value in given.items() if KEYWORDS.get(name) not in SETTABLE}
    asked = [
        rule.of(value)
        for setting, rule in SETTABLE.items()
        if setting.flag and (value := given.get(setting.keyword)) not in (None, False)
    ]
    rules = changes.pop("rules", None)
    if rules is None:
        others = changes.get("positions", ALIBI) != ALIBI
        rules = [rule for rule in base.rules if not (others and rule.name == ALIBI)]
    if changes.get("positions") == ALIBI:
        changes["positions"] = NONE
        asked.append(RULES[ALIBI].of(value=True))
    before = []
    for rule in rules:
        if isinstance(rule, Rule):
            before.append(rule)
        else:
            changes |= rule
    new = [rule for rule in asked if rule not in before]
    kept = [rule for rule in before if type(rule) not in set(map(type, new))]
    return base.with_(**changes, rules=(*kept, *new))

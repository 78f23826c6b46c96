"""Every setting, said once: a config, its schema, flags and keywords are all read by this table.

To add a setting of attention itself, add it to `attnctl.math.kind`; another one, here and to `Settings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from attnctl.base.setting import ARRAYS, EDIT, SENTENCE, Flag, Form, Setting, list_of, word_or_form
from attnctl.base.values import (
    MOST,
    POSITIVE,
    REAL,
    SEED,
    SEEDS,
    SIZE,
    SWITCH,
    WORD,
    Json,
    Reader,
    every,
    flow,
    is_unlimited,
    refuse,
    unfit,
    whole_number,
    words,
)
from attnctl.base.words import one_of
from attnctl.inputs.config.settings import DTYPES, LAYOUTS, LENGTHS, NONE, SINUSOIDAL, Settings, Tokenizer
from attnctl.inputs.config.tensors import BIAS, EMBEDDINGS, MASK, MATRIX, VOCABULARY, WEIGHTS, repeats
from attnctl.math.kind import KIND, QK_NORM_OPTIONS
from attnctl.math.rules import RULES, AllOf, AnyOf, Padding, Rule, VisibilityRule

TOKENIZER = Form(
    "TokenizerForm",
    "How a sentence falls into tokens.",
    [
        Setting(
            "split",
            words("whitespace", "words", "characters"),
            "Split at whitespace, into words and punctuation, or into characters.",
            flag=Flag("--tokenizer", SENTENCE, more="Default: whitespace."),
        ),
        Setting(
            "lowercase", SWITCH, "Put the sentence in lower case first.", flag=Flag("--lowercase", SENTENCE)
        ),
    ],
    lambda given: Tokenizer(**given),
)


def read_even(value: Any) -> int:
    number: int = whole_number(2, MOST - 1)(value)
    if number % 2:
        raise unfit(number, f"is odd; dimensions turn in pairs, so write {number - 1} or {number + 1}")
    return number


THREE_ROWS = 3


def read_sections(value: Any) -> tuple[int, ...]:
    """The pairs of columns of time, height and width."""
    if not isinstance(value, (list, tuple)) or len(value) != THREE_ROWS:
        raise unfit(
            value, "is not three numbers; write the pairs of time, height and width, like [16, 24, 24]"
        )
    return tuple(every(enumerate(value), PAIRS))


PAIRS = whole_number(0)
SECTIONS = Reader(
    read_sections, {"type": "array", "items": PAIRS.schema, "minItems": THREE_ROWS, "maxItems": THREE_ROWS}
)


def make_rotary(given: Json) -> Any:
    from attnctl.math.derivation import Rotary

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
            flag=Flag("--theta", more="Default: 10000."),
        ),
        Setting(
            "dims",
            Reader(read_even, {"type": "integer", "minimum": 2, "multipleOf": 2}, "N"),
            "How many of a head's dimensions are rotated; default: all.",
            flag=Flag("--rotary-dims"),
        ),
        Setting(
            "interleaved",
            SWITCH,
            "Rotate neighbouring pairs of dimensions (GPT-J) instead of pairs half a head apart (Llama).",
            flag=Flag("--interleaved"),
        ),
        Setting(
            "sections",
            SECTIONS,
            "How many pairs of dimensions go by position_ids of time, height and width, one behind the "
            "other (Qwen2-VL); left out, 24, 20 and 20 of 64 in turn (Qwen3-VL).",
            [16, 24, 24],
        ),
        Setting(
            "sections_in_turn",
            SWITCH,
            "The sections take turns, T H W T H W, in place of one behind the other.",
            True,
        ),
    ],
    make_rotary,
)
POSITION_WORDS = (NONE, SINUSOIDAL, ROPE, ALIBI)
POSITION_WORD = Reader(
    lambda word: make_rotary({}) if word == ROPE else str(word), words(*POSITION_WORDS).schema
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
POSITIONS = word_or_form(
    POSITION_WORDS,
    POSITION_WORD,
    POSITION_FORM,
    f"a kind of positions; write {one_of(POSITION_WORDS)}, or {{learned: [[0.1, 0.2], …]}}",
)

PLACE = whole_number(-(2**31) + 1, 2**31 - 1)
MOST_AXES_OF_PLACES = 3
ROWS_OF_PLACES = "a position for each token, like [0, 0, 1, 2], or such rows"


def read_places(value: Any, axes: int = MOST_AXES_OF_PLACES) -> Any:
    """Whole numbers in a list, or in lists of equal length, as tuples."""
    if not isinstance(value, (list, tuple)) or not value:
        raise unfit(value, f"is not {ROWS_OF_PLACES}")
    if not any(isinstance(item, (list, tuple)) for item in value):
        return tuple(every(enumerate(value), PLACE))
    if axes == 1:
        raise unfit(value, "has more than three axes; write (n), (batch, n) or (3, batch, n)")

    rows = tuple(read_places(item, axes - 1) for item in value)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise unfit(value, f"has rows of {lengths[0]} and of {lengths[-1]}; write {ROWS_OF_PLACES}")
    return rows


PLACES: Json = {"type": "array", "items": PLACE.schema, "minItems": 1}
ROWS: Json = {"type": "array", "items": PLACES, "minItems": 1}
PARTS: Json = {"type": "array", "items": ROWS, "minItems": 1}
POSITION_IDS = Reader(read_places, {"anyOf": [PLACES, ROWS, PARTS]})

KEYS = whole_number(-MOST)
OFFSET = Reader(
    lambda value: LENGTHS if value == LENGTHS else KEYS(value),
    {"anyOf": [KEYS.schema, {"enum": [LENGTHS]}]},
    "N",
)
"""A number of keys, or the word for what lengths say."""

# --- rules, each written as its own class says, and tables of who sees whom ---

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
    names = [setting.name for setting in settings if setting.switch]
    return Reader(lambda name: RULES[name].of(value=True), words(*names).schema)


def rule_reader(form: str, about: str, settings: Sequence[Setting]) -> Reader:
    """Reads one of these rules, by its name alone or in a mapping, which the schema calls `form`."""
    alone = [setting for setting in settings if setting.switch]
    others = [setting for setting in settings if not setting.switch]
    mapping = Form(form, about, others, rule_of, just_one=True)
    written = one_of((flow(rule.in_config) for rule in (*alone, *others)), most=len(settings))
    return word_or_form([rule.name for rule in alone], word_of(alone), mapping, f"a rule; write {written}")


def compose_rules(inside: Reader) -> tuple[Setting, ...]:
    rules = list_of(inside, least=1)
    example = ["causal", {"window": [3, 3]}]
    return tuple(Setting(kind.name, rules, f"{kind.words}.", example) for kind in (AnyOf, AllOf))


HIDING = [
    setting
    for setting, kind in SETTABLE.items()
    if issubclass(kind, VisibilityRule) and kind is not Padding  # which nobody sees, whatever else
]
"""The rules that may be put together."""


def inner_rule(value: Any) -> Any:
    """A rule within another one, which may be made of rules again."""
    return VISIBILITY(value)


FORM = "VisibilityForm"
WITHIN = Reader(inner_rule, {"oneOf": [word_of(HIDING).schema, {"$ref": f"#/$defs/{FORM}"}]})
VISIBILITY = rule_reader(FORM, "A rule of who sees whom.", [*HIDING, *compose_rules(WITHIN)])
RULE_SETTINGS = (*SETTABLE, *compose_rules(VISIBILITY), *RULE_TABLES)
RULE = rule_reader("RuleForm", "A rule with a number, rules or a table.", RULE_SETTINGS)


def refuse_repeats(rules: list[Any]) -> None:
    kinds = [rule.name if isinstance(rule, Rule) else next(iter(rule)) for rule in rules]
    again = repeats(enumerate(kinds))
    refuse(((i,), f"{kind} again, after rules[{first}]; keep one of them") for i, kind, first in again)


RULE_LIST = Setting(
    "rules",
    list_of(RULE, refuse_repeats),
    "Who may attend to whom, and how scores bend.",
    [setting.in_config for setting in SETTABLE if setting.flag],
)


def by_name(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


FIELDS = by_name(
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
        "The tokens in the order of their ids, or {token: id}; default: built from the sentence.",
        ["I", "love", "AI"],
    ),
    Setting("tokenizer", TOKENIZER, "How a sentence falls into tokens: whitespace, words or characters."),
    Setting(
        "d_model", SIZE, "The width of an embedding.", 4, Flag("--d-model", SENTENCE, more="Default: 4.")
    ),
    Setting("heads", SIZE, "The number of attention heads.", 1, Flag("--heads", more="Default: 1.")),
    Setting(
        "kv_heads",
        SIZE,
        "The number of K and V heads; query heads share them where they are fewer (grouped-query "
        "attention).",
        1,
        Flag("--kv-heads", more="Default: heads."),
    ),
    Setting(
        "d_k",
        SIZE,
        "The width of a head's queries and keys; default: d_model / heads.",
        4,
        Flag("--d-k", SENTENCE),
    ),
    Setting(
        "d_v", SIZE, "The width of a head's values; default: d_model / heads.", 4, Flag("--d-v", SENTENCE)
    ),
    Setting(
        "seed",
        SEED,
        "The seed of random embeddings and weights.",
        flag=Flag(
            "--seed",
            SENTENCE,
            metavar="N",
            more="Default: 0. Of attnctl run also several, like 1-5 or 0,2: a trace each.",
            reader=SEEDS,
        ),
    ),
    Setting(
        "embeddings",
        EMBEDDINGS,
        "A row of d_model numbers for each token: {token: [0.1, 0.2], …}, rows, identity, random or file.",
    ),
    Setting(
        "positions",
        POSITIONS,
        "How positions are encoded: none, sinusoidal, rope or alibi.",
        flag=Flag("--positions", metavar=f"<{'|'.join(POSITION_WORDS)}>"),
    ),
    Setting(
        "position_ids",
        POSITION_IDS,
        "The position of each token, by which rotary, ALiBi, sinusoidal and learned positions go; "
        "left out, they are 0, 1, 2 and so on.",
        [0, 0, 1],
    ),
    Setting(
        "rules_by_positions",
        SWITCH,
        "Rules go by position_ids, too: who stands before whom and how far, not the order of the tokens.",
        True,
        Flag("--rules-by-positions", ARRAYS),
    ),
    Setting(
        "weights",
        WEIGHTS,
        "W_Q, W_K, W_V, W_O and biases; what is not given is drawn.",
        {"W_Q": "identity", "W_O": "none"},
    ),
    *(setting or RULE_LIST for setting in KIND.values()),
    Setting(
        "causal_offset",
        OFFSET,
        "With causal, query i sees key j when j ≤ i + causal_offset.",
        0,
        Flag(
            "--causal-offset",
            metavar="N",
            more="keys - queries aligns bottom-right (FlashAttention); the word lengths is "
            "key_lengths - queries (ONNX).",
        ),
    ),
    Setting(
        "dtype",
        words(*DTYPES),
        "The precision of every step.",
        flag=Flag("--dtype", more="Default: float64."),
    ),
    Setting(
        "edits",
        list_of(WORD),
        "Steps to change before the next one reads them, in order; @FILE is another dump.",
        ["attention_weights[0,0,:]=0"],
        Flag(
            "--edit",
            EDIT,
            "CELL=VALUE",
            "Like 'attention_weights[0,love,:]=0', 'X[love]=[1, 0, 0, 1]', 'head_outputs[1]*=2' or "
            "'attention_weights=@other.json' (the same cells of another dump); =mean is the mean over "
            "positions, '3:head_outputs[1]=0' is in layer 3 of a model. May be repeated.",
            parts=str,
            repeated=True,
        ),
    ),
    Setting(
        "renormalize",
        SWITCH,
        "Make edited rows of attention_weights sum to 1 again.",
        False,
        Flag("--renormalize", EDIT),
    ),
)
"""What a config may hold, in the order of `Settings`."""

BASES = words("e", "2")
BASE = Reader(
    lambda value: str(BASES(str(value) if type(value) is int else value)), {"enum": ["e", "2", 2]}, "<e|2>"
)
EMPTY = Reader(
    lambda value: inf if is_unlimited(value) else float(REAL(value)),
    {"anyOf": [REAL.schema, {"enum": ["inf"]}]},
    "X|inf",
)
OF_ARRAYS = by_name(
    Setting(
        "layout",
        words(*LAYOUTS),
        "The axes of Q, K and V (batch, head, n rows, d columns), or of X; default: inferred from the "
        "sizes.",
        flag=Flag("--layout", ARRAYS),
    ),
    Setting(
        "lse_base",
        BASE,
        "The base of the recorded log-sum-exps; default: e.",
        flag=Flag("--lse-base", ARRAYS),
    ),
    Setting(
        "lse_empty",
        EMPTY,
        "What is recorded as the log-sum-exp of rows that see nothing; default: -inf.",
        flag=Flag("--lse-empty", ARRAYS),
    ),
    Setting(
        "positions_from_mask",
        SWITCH,
        "Count positions over the keys that mask or key_lengths shows: padding on the left has none.",
        flag=Flag("--positions-from-mask", ARRAYS),
    ),
)
"""Of the arrays that are read, and so in no config: a dump's own are all of one kind."""

IN_PARTS = {"tokenizer": TOKENIZER, "positions": ROPE_OPTIONS, "qk_norm": QK_NORM_OPTIONS}
"""The settings that flags give in parts, and the form whose keys have these flags."""

KEYWORDS: dict[str, Setting] = {
    **FIELDS,
    **OF_ARRAYS,
    **by_name(*RULE_TABLES),
    **{setting.keyword: setting for setting in SETTABLE if setting.flag},
}
"""What `attnctl.run` and its like take, beside the settings that no config holds."""


def settings_with_flags(group: str) -> dict[str, Setting]:
    every: dict[str, Setting] = dict(OF_ARRAYS)
    for name, setting in FIELDS.items():
        every[name] = setting
        # The parts of a setting stand behind it, in the help, too.
        parts = SETTABLE if name == "rules" else ()
        form = IN_PARTS.get(name)
        for part in form.keys.values() if form else parts:
            every[part.keyword] = part
    return {name: value for name, value in every.items() if value.flag and value.flag.group == group}


def is_given(value: Any) -> bool:
    return value is not None and value is not False


def lay_over(base: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with these values, read already, laid over them, each by its keyword.

    A rule replaces its like. ALiBi is a rule that is asked for as positions: others replace it,
    unless these values hold rules of their own.
    """
    changes = {name: value for name, value in given.items() if KEYWORDS.get(name) not in SETTABLE}
    asked = []
    for setting, rule in SETTABLE.items():
        value = given.get(setting.keyword)
        if setting.flag and is_given(value):
            asked.append(rule.of(value))

    rules = changes.pop("rules", None)
    if rules is None:
        has_other_positions = changes.get("positions", ALIBI) != ALIBI
        rules = [rule for rule in base.rules if not (has_other_positions and rule.name == ALIBI)]
    if changes.get("positions") == ALIBI:
        changes["positions"] = NONE
        asked.append(RULES[ALIBI].of(value=True))

    before = []
    for rule in rules:
        if isinstance(rule, Rule):
            before.append(rule)
        else:  # a table that stands among the rules: a mask, a bias
            changes |= rule

    new = [rule for rule in asked if rule not in before]
    replaced = set(map(type, new))
    kept = [rule for rule in before if type(rule) not in replaced]
    return base.with_(**changes, rules=(*kept, *new))

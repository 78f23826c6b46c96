"""The format of a config: its keys, their types and what each is for.

The models say it once: reading a file, the problems in it and the JSON Schema for editors all
come from them. Every key may be left out; the values of keys left out are those of Settings.
"""

# b_Q is what the format calls it:
# ruff: noqa: N815

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from attnctl.config import scalars, tables
from attnctl.config.forms import Form, Json, Reads, checked, choice, source, tag, word_or_mapping
from attnctl.config.scalars import MOST, BadValueError, Problem
from attnctl.config.settings import IDENTITY, NONE, SINUSOIDAL

# Other readers take the words `1`, `no` and `null` for something else, and an editor is one of them.
WORD: Json = {"type": ["string", "number", "boolean", "null"]}
NUMBERS: Json = {"type": "array", "minItems": 1, "items": {"type": "number"}}
MINUS_INFINITY: Json = {"enum": list(scalars.MINUS_INFINITY)}
VOCABULARY: Json = {
    "oneOf": [
        {"type": "array", "minItems": 1, "items": WORD, "uniqueItems": True},
        {"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer", "minimum": 0}},
    ]
}
CELL: Json = {"enum": [0, 1, True, False]}
SIDE: Json = {"anyOf": [{"type": "integer", "minimum": 0}, {"enum": [None, "inf"]}]}


def rows_schema(cell: Json) -> Json:
    """The JSON Schema of a matrix of such cells."""
    return {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items": cell}}


def whole(least: int, most: int = MOST) -> Reads:
    """A whole number within these bounds."""
    return Reads(scalars.whole(least, most), {"type": "integer", "minimum": least, "maximum": most})


def words(*choices: str) -> Reads:
    """One of these words."""
    return Reads(scalars.one_of(*choices), {"enum": list(choices)})


def key(description: str, example: Any = None) -> Any:
    """A key that may be left out, and what one might write there."""
    examples = None if example is None else [example]
    return Field(default=None, description=description, examples=examples)


Word = Annotated[str, Reads(scalars.word, WORD)]
Flag = Annotated[bool, Reads(scalars.flag, {"type": "boolean"})]
Size = Annotated[int, whole(1)]
Seed = Annotated[int, whole(0, 2**32 - 1)]
Real = Annotated[float, Reads(scalars.real, {"type": "number"})]
Positive = Annotated[float, Reads(scalars.above_zero, {"type": "number", "exclusiveMinimum": 0})]
Vector = Annotated[list[float], Reads(tables.vector, NUMBERS)]
Matrix = Annotated[list[list[float]], Reads(tables.matrix, rows_schema({"type": "number"}))]
Identity = Annotated[str, words(IDENTITY)]
ByToken = Annotated[
    dict[str, list[float]], Reads(tables.by_token, {"type": "object", "additionalProperties": NUMBERS})
]


class TokenizerForm(Form):
    """How a sentence falls into tokens."""

    split: Annotated[str, words("whitespace", "words", "characters")] = key(
        "At whitespace, into words with punctuation split off, or into characters."
    )
    lowercase: Flag = key("Whether the sentence is put in lower case first.")


class RandomOptions(Form):
    """How to draw a tensor."""

    seed: Seed = key("Its own seed; left out, the seed of the run.")
    distribution: Annotated[str, words("normal", "standard_normal", "uniform")] = key(
        "normal is N(0, 1/d_model), standard_normal N(0, 1), uniform [0, 1)."
    )
    layout: Annotated[str, words("fused", "per_head")] = key(
        "fused draws W_Q whole and splits it into heads; per_head draws head after head."
    )
    stream: Annotated[str, words("named", "numpy_legacy")] = key(
        "named gives every tensor a stream of its own; numpy_legacy is one np.random.seed for all."
    )


class RandomSource(Form):
    """Drawn."""

    random: RandomOptions = Field(description="Numbers drawn from a seed.")


class FileSource(Form):
    """Read from a .npz, .npy or .safetensors file."""

    file: Annotated[str, Reads(scalars.file_name, {"type": "string", "minLength": 1})] = Field(
        description="The file; a relative path counts from the folder of the config."
    )
    name: Word = key("The array in it; may be left out where it holds just one.")


ELSEWHERE = "{random: {seed: 1}} or {file: weights.npz, name: …}"
Drawn = Annotated[RandomSource, tag("random")] | Annotated[FileSource, tag("file")]
Tensor = Annotated[
    Annotated[Matrix, tag("rows")] | Annotated[Identity, tag("word")] | Drawn,
    choice(source(IDENTITY), f"a matrix; write rows like [[1, 0], [0, 1]], identity, {ELSEWHERE}"),
]
OutputTensor = Annotated[
    Annotated[Matrix, tag("rows")] | Annotated[str, words(IDENTITY, NONE), tag("word")] | Drawn,
    choice(
        source(IDENTITY, NONE), f"a matrix; write rows like [[1, 0], [0, 1]], identity, none, {ELSEWHERE}"
    ),
]
BiasTensor = Annotated[
    Annotated[Vector, tag("rows")] | Drawn,
    choice(source(), f"a vector; write numbers like [0.1, 0.2], {ELSEWHERE}"),
]
EmbeddingsSource = Annotated[
    Annotated[ByToken, tag("by token")]
    | Annotated[Matrix, tag("rows")]
    | Annotated[Identity, tag("word")]
    | Drawn,
    choice(
        source(IDENTITY, by_token=True),
        f"embeddings; write {{token: [0.1, 0.2], …}}, rows in the order of vocab, identity, {ELSEWHERE}",
    ),
]


class HeadForm(Form):
    """The weights of one head."""

    W_Q: Tensor = key("d_model rows of d_k numbers.")
    W_K: Tensor = key("d_model rows of d_k numbers.")
    W_V: Tensor = key("d_model rows of d_v numbers.")
    b_Q: BiasTensor = key("d_k numbers, added to Q.")
    b_K: BiasTensor = key("d_k numbers, added to K.")
    b_V: BiasTensor = key("d_v numbers, added to V.")


class WeightsForm(Form):
    """The weights that are given; the others are drawn."""

    W: Tensor = key("One matrix for Q, K and V.")
    W_Q: Tensor = key("Fused: d_model rows of heads · d_k numbers, the heads side by side.")
    W_K: Tensor = key("Fused: d_model rows of kv_heads · d_k numbers.")
    W_V: Tensor = key("Fused: d_model rows of kv_heads · d_v numbers.")
    W_O: OutputTensor = key("heads · d_v rows of d_model numbers; none leaves the projection out.")
    b_Q: BiasTensor = key("heads · d_k numbers, added to Q.")
    b_K: BiasTensor = key("kv_heads · d_k numbers, added to K.")
    b_V: BiasTensor = key("kv_heads · d_v numbers, added to V.")
    b_O: BiasTensor = key("d_model numbers, added to the output.")
    heads: list[HeadForm] = key("W_Q, W_K and W_V head by head, instead of fused.")
    random: RandomOptions = key("How to draw what is not given.")
    file: Word = key("An .npz or .safetensors file (a dump, say) that holds them under these names.")


class RopeOptions(Form):
    """Rotary positions for Q and K."""

    theta: Positive = key("The base of the angles.")
    dims: Annotated[int, Reads(scalars.pairs, {"type": "integer", "minimum": 2, "multipleOf": 2})] = key(
        "How many of a head's dimensions turn; left out, all."
    )
    interleaved: Flag = key("Pairs are neighbours (GPT-J), not a half apart (Llama).")


ONE_KEY: Json = {"minProperties": 1, "maxProperties": 1}


class OneKeyForm(Form):
    """A mapping that holds just one of its keys."""

    @model_validator(mode="after")
    def hold_one(self) -> Any:
        """Refuse none and several."""
        return checked(one_key)(self)


def one_key(form: Form) -> Form:
    """The form, where it has one key."""
    if len(form.model_fields_set) != 1:
        known = scalars.listed(tuple(type(form).model_fields))
        raise BadValueError(f"{len(form.model_fields_set)} keys in one; write just one of {known} here")
    return form


class PositionsForm(OneKeyForm, json_schema_extra=ONE_KEY):
    """Positions that have options."""

    rope: RopeOptions = key("Turn Q and K by an angle that grows with the position.")
    learned: Matrix = key("A learned table: a row of d_model numbers for each position.")


class RuleForm(OneKeyForm, json_schema_extra=ONE_KEY):
    """A rule with a number or a table."""

    window: Annotated[
        Any,
        Reads(
            tables.window, {"anyOf": [SIDE, {"type": "array", "items": SIDE, "minItems": 2, "maxItems": 2}]}
        ),
    ] = key("[L, R]: query i sees keys i − L to i + R; one number is both; inf opens a side.")
    softcap: Positive = key("c: scores become c · tanh(scores / c).")
    mask: Annotated[Any, Reads(tables.mask, rows_schema(CELL))] = key(
        "A row for each query: 1 may attend, 0 may not."
    )
    bias: Annotated[
        Any, Reads(tables.bias, rows_schema({"anyOf": [{"type": "number"}, MINUS_INFINITY]}))
    ] = key("A row for each query, added to its scores; -.inf hides.")


POSITIONS = (NONE, SINUSOIDAL, "rope", "alibi")
PositionsSource = Annotated[
    Annotated[str, words(*POSITIONS), tag("word")] | Annotated[PositionsForm, tag("mapping")],
    choice(
        word_or_mapping(*POSITIONS),
        f"a kind of positions; write {scalars.listed(POSITIONS)}, or {{learned: [[0.1, 0.2], …]}}",
    ),
]
RULES = ("causal", "alibi")
RuleSource = Annotated[
    Annotated[str, words(*RULES), tag("word")] | Annotated[RuleForm, tag("mapping")],
    choice(
        word_or_mapping(*RULES),
        "a rule; write causal, alibi, {window: [3, 0]}, {softcap: 30}, {mask: [[1, 0]]} or {bias: [[0]]}",
    ),
]


def once(rules: list[str | RuleForm]) -> list[str | RuleForm]:
    """The rules, where each kind is there once."""
    first: dict[str, int] = {}
    problems: list[Problem] = []
    for i, rule in enumerate(rules):
        kind = rule if isinstance(rule, str) else next(iter(rule.given()))
        if kind in first:
            problems.append(((i,), f"{kind} again, after rules[{first[kind]}]; keep one of them"))
        first.setdefault(kind, i)
    if problems:
        raise BadValueError(*problems)
    return rules


class Config(Form):
    """A run of attnctl: what to attend to, with which weights. Every key may be left out."""

    sentence: Word = key("The sentence.", "I love AI")
    context: Word = key("A second sentence, to attend to (cross-attention).", "AI loves me")
    vocab: Annotated[tuple[str, ...], Reads(tables.vocabulary, VOCABULARY)] = key(
        "The tokens in the order of their ids, or {token: id}; left out, it grows from the sentence.",
        ["I", "love", "AI"],
    )
    tokenizer: TokenizerForm = key("How a sentence falls into tokens: whitespace, words or characters.")
    d_model: Size = key("The width of an embedding.", 4)
    heads: Size = key("How many heads attend side by side.", 1)
    kv_heads: Size = key("How many heads K and V have; fewer than heads are shared (grouped heads).", 1)
    d_k: Size = key("The width of a head's queries and keys; left out, d_model / heads.", 4)
    d_v: Size = key("The width of a head's values; left out, d_model / heads.", 4)
    seed: Seed = key("What everything drawn is drawn from.")
    embeddings: EmbeddingsSource = key(
        "A row of d_model numbers for each token: {token: [0.1, 0.2], …}, rows, identity, random or file."
    )
    positions: PositionsSource = key("How tokens know where they stand: none, sinusoidal, rope or alibi.")
    weights: WeightsForm = key(
        "W_Q, W_K, W_V, W_O and biases; what is not given is drawn.", {"W_Q": "identity", "W_O": "none"}
    )
    scale: Real = key("What scores are multiplied by; left out, 1 / √d_k.", 0.5)
    rules: Annotated[list[RuleSource], AfterValidator(checked(once))] = key(
        "Who may attend to whom, and how scores bend.", ["causal", {"window": [3, 0]}, {"softcap": 30}]
    )
    causal_offset: Annotated[int, whole(-MOST)] = key(
        "With causal, query i sees key j when j ≤ i + causal_offset.", 0
    )
    dtype: Annotated[str, words("float64", "float32", "float16")] = key("The precision of every step.")
    edits: list[Word] = key(
        "Steps to change before the next one reads them, in order; @FILE is another dump.",
        ["attention_weights[0,0,:]=0"],
    )
    renormalize: Flag = key("Whether edited rows of attention_weights are made to sum to 1 again.", False)

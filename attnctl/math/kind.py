"""The settings of attention itself, each with its config key, flag, keyword and help.

A step that somebody asks for has its field here; `Settings` and a `Variant` both have all of them,
under one name, and `attnctl.inputs.plan` hands them on. NumPy is not imported: help texts list
every flag.
"""

from __future__ import annotations

from dataclasses import field, fields
from itertools import accumulate, pairwise
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.setting import GRADIENTS, Flag, Form, Setting, word_or_form
from attnctl.base.values import (
    FILE_NAME,
    POSITIVE,
    REAL,
    SWITCH,
    BadValueError,
    Json,
    Plain,
    Reader,
    unfit,
    whole_number,
    words,
)
from attnctl.math.rules import Documents, Rule

RMS, LAYER = NORMS = ("rms", "layer")
HEAD = "head"
HEADS = "heads"


@dataclass(frozen=True)
class HeadNorm:
    """Norms of Q and K: each row brought to one scale, times the weight that is given.

    `eps` None is the usual one of its kind. A row is one `head`'s columns, or those of all `heads`
    (OLMo2); None is what the weights show. `plus_one` multiplies by 1 + weight (Gemma 3).
    """

    kind: str = RMS
    eps: float | None = None
    over: str | None = None
    plus_one: bool = False
    after_rotation: bool = False

    def plain(self) -> Any:
        """As a config writes it: rms, or {kind: rms, eps: 1e-05}."""
        fields = vars(self).items()
        written = {name: value for name, value in fields if value is not None and value is not False}
        return self.kind if len(written) == 1 else written


QK_NORM_OPTIONS = Form(
    "QKNormOptions",
    "Norms of Q and K.",
    [
        Setting(
            "kind", words(*NORMS), "rms divides by the root mean square; layer takes off the mean first."
        ),
        Setting(
            "eps",
            POSITIVE,
            "The epsilon added to the mean square; default: 1e-6 for rms, 1e-5 for layer.",
            1e-6,
            Flag("--qk-norm-eps"),
        ),
        Setting(
            "over",
            words(HEAD, HEADS),
            "Normalize each head by itself, or all heads as one row; default: as the weights show.",
            flag=Flag("--qk-norm-over"),
        ),
        Setting(
            "plus_one",
            SWITCH,
            "Multiply by 1 + weight (Gemma) instead of the weight.",
            flag=Flag("--qk-norm-plus-one"),
        ),
        Setting(
            "after_rotation",
            SWITCH,
            "Normalize after the rotation instead of before it.",
            flag=Flag("--qk-norm-after-rotation"),
        ),
    ],
    lambda given: HeadNorm(**given),
)
QK_NORM_WORD = Reader(HeadNorm, words(*NORMS).schema)
NORM = word_or_form(
    NORMS, QK_NORM_WORD, QK_NORM_OPTIONS, "a norm of Q and K; write rms or layer, or {kind: rms, eps: 1e-5}"
)


def norm_words(value: Any) -> str:
    """The norms of a config in a few words: Q and K normed (rms, eps 1e-05)."""
    if isinstance(value, str):
        return f"Q and K normed ({value})"

    words = []
    for name, part in value.items():
        spaced = name.replace("_", " ")
        words.append(spaced if part is True else f"{spaced} {part}")
    return f"Q and K normed ({', '.join(words).removeprefix('kind ')})"


SCALE = Setting("scale", REAL, "The factor of the scores; default: 1 / √d_k.", 0.5, Flag("--scale"))
QK_NORM = Setting(
    "qk_norm",
    NORM,
    "Normalize Q and K (rms or layer) and multiply by Q_norm_weight and K_norm_weight, where given.",
    example="rms",
    flag=Flag("--qk-norm", metavar=f"<{'|'.join(NORMS)}>"),
    words=norm_words,
)
CACHE_UNROTATED = Setting(
    "cache_unrotated",
    SWITCH,
    "past_key holds keys that are not rotated yet; they are rotated with the new ones.",
    True,
    Flag("--cache-unrotated"),
)
POSITIONS_RUN_ON = Setting(
    "positions_run_on",
    SWITCH,
    "Positions run on through all documents, in place of starting again in each.",
    True,
    Flag("--positions-run-on"),
)
BACKWARD = Setting(
    "backward",
    SWITCH,
    "Add the backward pass: the gradient of a loss with respect to every step (d_Q, d_W_O, …).",
    True,
    Flag("--backward", GRADIENTS),
)
LOGSUMEXP = Setting(
    "logsumexp",
    SWITCH,
    "Add the log-sum-exp of each row of scores as a step (--backward and --chunks include it).",
    True,
    Flag("--logsumexp", GRADIENTS),
)
DRAWN = "drawn"
ONES = "ones"
COTANGENT = Setting(
    "cotangent",
    FILE_NAME,
    "What gradients begin with, d_output: drawn (N(0, 1), by the seed; so if left out), ones, or a file.",
    ONES,
    Flag("--cotangent", GRADIENTS, metavar=f"{DRAWN}|{ONES}|FILE"),
)
GRADIENT_SETTINGS = ("backward", "cotangent", "logsumexp")
"""The fields of `Kind` that a layer of a trained model has, too."""


# --- chunks of keys ---

Chunks = int | tuple[tuple[int, int], ...]
"""So many, as equal as can be, the longer ones first; or the range of keys of each."""

COUNT = whole_number(1, 2**16)
KEY = whole_number(0)


def spans(chunks: Chunks, keys: int) -> tuple[tuple[int, int], ...]:
    """The first key of each chunk and the one after its last: (0, 2), (2, 3) of 2 chunks of 3 keys."""
    if not isinstance(chunks, int):
        return chunks
    least, longer = divmod(keys, chunks)
    sizes = [least + 1] * longer + [least] * (chunks - longer)
    borders = accumulate(sizes, initial=0)
    return tuple(pairwise(borders))


def where_broken(chunks: Chunks) -> str:
    """The first range that does not go on where the one before it ended; nothing where all do."""
    if isinstance(chunks, int):
        return ""

    last = 0
    for chunk in chunks:
        if len(chunk) != 2 or chunk[0] != last or chunk[1] <= last:
            written = ":".join(map(str, chunk))
            return f"{written} does not go on from key {last}"
        last = chunk[1]
    return ""


def ends_of_range(text: str) -> list[Plain]:
    """The ends of a range of keys, yet to be read: 0:64."""
    return [Plain(key.strip()) for key in text.split(":")]


def read_chunks(value: Any) -> Chunks:
    """A number of chunks; or ranges, one behind the other: 0:64,64:128 or [[0, 64], [64, 128]]."""
    if isinstance(value, str) and ":" in value:
        value = [ends_of_range(word) for word in value.split(",")]
    if not isinstance(value, list):
        return int(COUNT(value))
    if not value or not all(isinstance(item, list) and len(item) == 2 for item in value):
        raise BadValueError("expected ranges of keys; write them like 0:64,64:128")
    chunks = tuple((KEY(start), KEY(stop)) for start, stop in value)
    if broken := where_broken(chunks):
        raise BadValueError(f"{broken}; write ranges one behind the other, like 0:64,64:128")
    return chunks


PAIR: Json = {"type": "array", "items": KEY.schema, "minItems": 2, "maxItems": 2}
CHUNKS = Setting(
    "chunks",
    Reader(
        read_chunks,
        {"anyOf": [COUNT.schema, {"type": "string"}, {"type": "array", "items": PAIR, "minItems": 1}]},
        "N|0:64,64:128",
    ),
    "Attention over chunks of keys, merged by log-sum-exp: so many, or ranges like 0:64,64:128.",
    2,
    Flag("--chunks"),
)


# --- what trained models have besides ---

GATED = "The heads' outputs are multiplied by σ(X W_gate), number by number (or by σ(gate), where given)."
GATE = Setting("gate", SWITCH, GATED, True, Flag("--gate"))

Temperature = tuple[float, int] | tuple[float, int, int]
"""β and L of 1 + β ln(1 + ⌊position / L⌋); a third is the position of the first query, if that is not 0."""


def read_temperature(value: Any) -> Temperature:
    """β and L, or with the first position, as a text or a list: 0.1,8192."""
    parts = value
    if isinstance(value, str):
        parts = [Plain(part.strip()) for part in value.split(",")]
    if not isinstance(parts, list) or len(parts) not in (2, 3):
        raise unfit(value, "is not β and L; write 0.1,8192 (softmax(S / T) is --scale)")

    beta, steps, *first = parts
    return (REAL(beta), whole_number(1)(steps), *map(whole_number(0), first))


NUMBERS: Json = {"type": "array", "items": REAL.schema, "minItems": 2, "maxItems": 3}
TEMPERATURE = Setting(
    "temperature",
    Reader(read_temperature, {"anyOf": [{"type": "string"}, NUMBERS]}, "β,L"),
    "Q is multiplied by 1 + β ln(1 + ⌊position / L⌋) (Llama 4); a third number is the first position.",
    [0.1, 8192],
    Flag("--temperature"),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The kind of attention a person asks for: a field for each setting."""

    scale: float | None = field(default=None, metadata={"setting": SCALE})
    rules: tuple[Rule, ...] = ()
    qk_norm: HeadNorm | None = field(default=None, metadata={"setting": QK_NORM})
    cache_unrotated: bool = field(default=False, metadata={"setting": CACHE_UNROTATED})
    temperature: Temperature | None = field(default=None, metadata={"setting": TEMPERATURE})
    gate: bool = field(default=False, metadata={"setting": GATE})
    positions_run_on: bool = field(default=False, metadata={"setting": POSITIONS_RUN_ON})
    logsumexp: bool = field(default=False, metadata={"setting": LOGSUMEXP})
    chunks: Chunks | None = field(default=None, metadata={"setting": CHUNKS})
    backward: bool = field(default=False, metadata={"setting": BACKWARD})
    cotangent: str | None = field(default=None, metadata={"setting": COTANGENT})


KIND: dict[str, Setting | None] = {field_.name: field_.metadata.get("setting") for field_ in fields(Kind)}
"""The setting of each field, in order; None for the rules, which have theirs in `attnctl.inputs.config`."""


def documents_in(asked: Kind) -> tuple[int, ...]:
    """Where positions start again: at the begin of each document, unless they run on."""
    if asked.positions_run_on:
        return ()
    for rule in asked.rules:
        if isinstance(rule, Documents):
            return rule.starts
    return ()


def choices_of(asked: Kind) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in KIND}

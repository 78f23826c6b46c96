"""Plants every mistake in every program it belongs to, has it checked, and says how that went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from check_foreign import foreign

import attnctl
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Alibi, Causal, Softcap, Window
from trial.mistake import Mistake
from trial.mistakes import CLASSES
from trial.programs import FAMILIES, KINDS, Kind

INPUTS = {
    "X", "embeddings", "memory", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O",
    "past_key", "past_value", "bias", "mask", "key_lengths",
}  # fmt: skip
RECORDED = {
    "everything": None,
    "projected": INPUTS | {"positions", "X", "Q", "K", "V", "head_outputs", "output"},
    "ends": INPUTS | {"output"},
}
"""What of a run is written down; None is all of it."""

SCORES = ("masked_scores", "biased_scores", "softcapped_scores", "scaled_scores", "scores")
AS_SCORES = INPUTS | {"Q", "K", "V", "scores", "attention_weights", "head_outputs", "output"}
"""What else a person writes down: what softmax is taken of, and calls it scores."""

ROTA = (
    ("everything", "float64"), ("ends", "float64"), ("projected", "float32"), ("ends", "float32"),
    ("everything", "float16"), ("projected", "bfloat16"), ("everything", "bfloat16"), ("ends", "float16"),
)  # fmt: skip
"""Each program is tried with three of these in turn: the first is always one with many digits."""


@dataclass(frozen=True)
class Program:
    """One planted program, and what of it is written down."""

    group: str
    words: str
    family: str
    kind: str
    recorded: str
    dtype: str

    @property
    def mistake(self) -> Mistake:
        return CLASSES[self.group][self.words]

    def __str__(self) -> str:
        return f"{self.group}: {self.words} / {self.family} / {self.kind} / {self.recorded} / {self.dtype}"


def programs():
    """Every mistake in every family, the kinds of attention in turn; what is recorded in rotation."""
    for group, mistakes in CLASSES.items():
        for words, mistake in mistakes.items():
            turn = crc32(words.encode())  # which a new mistake leaves as it is
            pairs = [
                (family, kind)
                for at, family in enumerate(mistake.families)
                for kind in (mistake.kinds if at == 0 else mistake.kinds[at % len(mistake.kinds) :][:1])
            ]
            for family, kind in pairs:
                exact = [
                    way for way in ROTA if way[1] in ("float64", "float32") and way[1] in mistake.dtypes
                ]
                coarse = [way for way in ROTA if way not in exact and way[1] in mistake.dtypes]
                chosen = [exact[turn % len(exact)]]
                chosen += [coarse[turn % len(coarse)]] if coarse else []
                for recorded, dtype in chosen:
                    yield Program(group, words, family, kind, recorded, dtype)
                turn += 1


def one_in(every, chosen):
    """Some of these, the same whatever others there are."""
    return [program for program in chosen if crc32(str(program).encode()) % every == 0]


def that_save_scores():
    """The programs that have scores to write down, each writing down what softmax is taken of."""
    for program in programs():
        if program.family != "kernel":
            yield replace(program, recorded="as scores")


def settings(kind: Kind) -> Settings:
    """The options that ask for this kind of attention."""
    asked = {
        Causal(): kind.causal,
        Window(*(kind.window or (0, 0))): kind.window is not None,
        Alibi(): kind.alibi,
    }
    rules = [rule for rule, wanted in asked.items() if wanted]
    rules += [Softcap(kind.softcap)] if kind.softcap else []
    rotary = Rotary(dims=kind.rotary_dims) if kind.rope else None
    positions = "sinusoidal" if kind.sinusoidal else rotary or "none"
    return Settings(heads=kind.heads, kv_heads=kind.kv, rules=tuple(rules), positions=positions)


def made(program: Program, pieces: dict) -> dict:
    """The arrays that a program with these pieces writes down."""
    family = FAMILIES[program.family]
    kind = KINDS[program.kind].but(dtype=program.dtype)
    if family.batches and not kind.batch:
        kind = kind.but(batch=2)
    with np.errstate(all="ignore"):
        record = type("Planted", (family,), pieces)(kind).run()
    if program.recorded == "as scores":
        last = next(name for name in SCORES if name in record)
        record = {**record, "scores": record[last]}
    kept = RECORDED.get(program.recorded, AS_SCORES)
    return {name: x for name, x in record.items() if kept is None or name in kept}


def verdict(program: Program):
    """How it went, in a word; and the report."""
    arrays = made(program, program.mistake.pieces)
    asked = settings(KINDS[program.kind])
    report = attnctl.check(foreign(arrays), asked)
    if report.agrees is None:
        return "cannot tell", report
    if report.agrees:
        return (
            "changes nothing" if unchanged(arrays, made(program, {}), program.dtype) else "acquitted"
        ), report
    if report.mistake is None:
        return "located", report
    return ("named" if report.mistake in program.mistake.names else "misnamed"), report


def unchanged(wrong: dict, right: dict, dtype: str) -> bool:
    """Whether a mistake changes no recorded number by more than programs in this type differ by."""
    unit = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    return all(
        np.allclose(x.astype(float), wrong[name].astype(float), rtol=8 * unit, atol=8 * unit * finite(x))
        for name, x in right.items()
        if name not in INPUTS
    )


def finite(x) -> float:
    """The spread of an array's finite numbers."""
    x = x[np.isfinite(x)].astype(float)
    return float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0


def table(outcomes) -> str:
    """Class by class: named, located, misnamed, acquitted, changes nothing."""
    words = ("named", "located", "misnamed", "acquitted", "cannot tell", "changes nothing")
    counts = Counter(outcomes)
    groups = list(dict.fromkeys(group for group, _ in outcomes))
    lines = [f"{'':12}" + "".join(f"{word:>17}" for word in words)]
    for group in [*groups, "all"]:
        row = [
            sum(n for (g, w), n in counts.items() if w == word and group in (g, "all")) for word in words
        ]
        lines.append(f"{group:12}" + "".join(f"{n:17}" for n in row))
    return "\n".join(lines)

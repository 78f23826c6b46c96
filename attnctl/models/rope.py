"""The rotary frequencies that a config.json asks for, by its kinds of rope.

Source of each kind: `modeling_rope_utils.py` of transformers 5, in float32 as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from math import ceil, floor, log, pi, sqrt
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.math import Array
from attnctl.math.derivation import Rotary
from attnctl.models.keys import AMOUNT, COUNT, FLAG, INDICES, NUMBER, NUMBERS, TEXT, KeyKind

FLOAT = np.float32


@dataclass(frozen=True)
class Rope:
    """The rotary positions of a layer, on `dims` columns from `first` on; `parameters` are the config's."""

    kind: str
    theta: float
    dims: int
    interleaved: bool = False
    first: int = 0
    longest: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def rotary(self, length: int) -> Rotary:
        if self.kind == "default":
            return Rotary(self.theta, self.dims, self.interleaved, first=self.first)
        scaling, _, _ = KINDS[self.kind]
        frequencies, factor = scaling(self, length)
        listed = tuple(float(frequency) for frequency in frequencies)
        return Rotary(self.theta, self.dims, self.interleaved, listed, factor, self.first)

    @property
    def original(self) -> int:
        """The number of positions the model was first trained on."""
        return int(self.parameters.get(ORIGINAL) or self.positions)

    @property
    def positions(self) -> int:
        """The number of positions that config.json speaks of. Raises AttnError where it does not."""
        if self.longest is None:
            raise AttnError(f"rope_type {self.kind} without max_position_embeddings")
        return self.longest

    @property
    def factor(self) -> float:
        given = self.parameters.get("factor")
        return float(self.positions / self.original if given is None else given)

    def says(self, name: str, default: float) -> float:
        """A number among the parameters; null is the default."""
        value = self.parameters.get(name)
        return float(default if value is None else value)


Frequencies = tuple[Array, float]


def exponents(rope: Rope) -> Array:
    """2i / dims for each pair."""
    return np.arange(0, rope.dims, 2).astype(FLOAT) / FLOAT(rope.dims)


def base_frequencies(rope: Rope, theta: float | None = None) -> Array:
    """θ^(−2i/dims)."""
    return FLOAT(1) / FLOAT(rope.theta if theta is None else theta) ** exponents(rope)


def linear(rope: Rope, length: int) -> Frequencies:
    """Positions over a factor."""
    return base_frequencies(rope) / FLOAT(rope.factor), 1.0


def dynamic(rope: Rope, length: int) -> Frequencies:
    """θ grows with the length where it is more than the model was trained on (NTK)."""
    if rope.dims == 2:
        raise AttnError("rope_type dynamic turns two pairs of columns or more")
    longest, factor = rope.positions, rope.factor
    grown = (factor * max(length, longest) / longest - (factor - 1)) ** (rope.dims / (rope.dims - 2))
    return base_frequencies(rope, rope.theta * grown), 1.0


def yarn(rope: Rope, length: int) -> Frequencies:
    """Low frequencies over a factor, high ones as they are, a ramp between (Peng et al. 2023)."""
    factor = rope.factor
    low = yarn_edge(rope, rope.parameters.get("beta_fast") or 32)
    high = yarn_edge(rope, rope.parameters.get("beta_slow") or 1)
    if rope.parameters.get("truncate", True):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, rope.dims - 1)
    width = FLOAT(high - low if high != low else 0.001)
    kept = FLOAT(1) - np.clip((np.arange(rope.dims // 2, dtype=FLOAT) - FLOAT(low)) / width, 0, 1)
    powers = FLOAT(rope.theta) ** exponents(rope)
    stretched = FLOAT(1) / (FLOAT(factor) * powers)
    return stretched * (1 - kept) + FLOAT(1) / powers * kept, yarn_factor(rope, factor)


def yarn_edge(rope: Rope, turns: float) -> float:
    return rope.dims * log(rope.original / (turns * 2 * pi)) / (2 * log(rope.theta))


def yarn_factor(rope: Rope, factor: float) -> float:
    given, mscale, of_all = map(rope.parameters.get, ("attention_factor", "mscale", "mscale_all_dim"))
    if given is not None:
        return float(given)
    if mscale and of_all:
        return scale_of_length(factor, mscale) / scale_of_length(factor, of_all)
    return scale_of_length(factor)


def scale_of_length(factor: float, mscale: float = 1.0) -> float:
    """0.1 · mscale · ln(factor) + 1, or 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * mscale * log(factor) + 1.0


def longrope(rope: Rope, length: int) -> Frequencies:
    """Each frequency over a factor of its own, other ones beyond the original length (LongRoPE)."""
    key = "long_factor" if length > rope.original else "short_factor"
    factors = np.array(rope.parameters[key], FLOAT)
    factor = rope.factor
    given = rope.parameters.get("attention_factor")
    natural = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(rope.original))
    scale = natural if given is None else given
    return FLOAT(1) / (factors * FLOAT(rope.theta) ** exponents(rope)), float(scale)


def longrope_of_phimoe(rope: Rope, length: int) -> Frequencies:
    """As transformers has that of Phi-3.5-MoE: the short factors, a scale by length."""
    scale = rope.parameters["long_mscale" if length > rope.original else "short_mscale"]
    return longrope(rope, 0)[0], float(scale)


def llama3(rope: Rope, length: int) -> Frequencies:
    """Long waves over a factor, short ones as they are, a blend between (Llama 3.1)."""
    frequencies, factor = base_frequencies(rope), FLOAT(rope.factor)
    low, high = rope.says("low_freq_factor", 1), rope.says("high_freq_factor", 4)
    wavelength = FLOAT(2 * pi) / frequencies
    blend = (FLOAT(rope.original) / wavelength - FLOAT(low)) / FLOAT(high - low)
    blended = (1 - blend) * frequencies / factor + blend * frequencies
    long, short = wavelength > rope.original / low, wavelength < rope.original / high
    return np.where(long, frequencies / factor, np.where(short, frequencies, blended)), 1.0


def proportional(rope: Rope, length: int) -> Frequencies:
    """The first share of the frequencies; the other pairs are not turned (Gemma 4)."""
    turned = np.arange(rope.dims // 2) < int(rope.says("partial_rotary_factor", 1) * rope.dims // 2)
    return np.where(turned, base_frequencies(rope) / FLOAT(rope.says("factor", 1)), FLOAT(0)), 1.0


ORIGINAL = "original_max_position_embeddings"
OF_YARN = (ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")

KINDS: dict[str, tuple[Callable[[Rope, int], Frequencies], tuple[str, ...], tuple[str, ...]]] = {
    "linear": (linear, ("factor",), ()),
    "dynamic": (dynamic, ("factor",), ()),
    "yarn": (yarn, ("factor",), OF_YARN),
    "longrope": (longrope, ("short_factor", "long_factor"), (ORIGINAL, "attention_factor", "factor")),
    "llama3": (llama3, ("factor", "low_freq_factor", "high_freq_factor"), (ORIGINAL,)),
}
"""The kinds of rope beside the default, by the name that config.json gives them.

Of each its frequencies, the parameters that it needs, and those that it reads besides.
"""

USUAL = ("default", *KINDS)

TEMPERED = "yarn with temperature"
PROPORTIONAL = "proportional"
OF_PHIMOE = "longrope with mscale"
SCALES = ("short_factor", "long_factor", "short_mscale", "long_mscale")
KINDS |= {
    TEMPERED: (yarn, ("factor", "llama_4_scaling_beta", ORIGINAL), (*OF_YARN, "max_position_embeddings")),
    PROPORTIONAL: (proportional, (), ("factor",)),
    OF_PHIMOE: (longrope_of_phimoe, SCALES, (ORIGINAL, "factor")),
}
"""Those of one family each, whose `rope_kinds` lead to them."""

PARAMETERS: dict[str, KeyKind] = {
    **dict.fromkeys(("rope_type", "type"), TEXT),
    **dict.fromkeys(("rope_theta", "factor", "attention_factor", "partial_rotary_factor"), NUMBER),
    **dict.fromkeys(("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"), NUMBER),
    **dict.fromkeys(("mscale", "mscale_all_dim", "short_mscale", "long_mscale"), AMOUNT),
    **dict.fromkeys(("truncate", "finetuned"), FLAG),
    **dict.fromkeys(("short_factor", "long_factor"), NUMBERS),
    **dict.fromkeys((ORIGINAL, "max_position_embeddings"), COUNT),
    "llama_4_scaling_beta": AMOUNT,
    "mrope_section": INDICES,
    "mrope_interleaved": FLAG,
}
"""What each parameter of rope may say."""

SILENT = ("finetuned", "mrope_section", "mrope_interleaved")
"""Parameters that change nothing: in a text all three positions of a token are the same."""


def misread_rope(kind: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Parameters with impossible values, those that this kind does not read, and those it lacks."""
    _, needs, reads = KINDS.get(kind, (None, (), ()))
    known = {*SILENT, "rope_type", "type", "rope_theta", "partial_rotary_factor", *needs, *reads}
    for name, value in parameters.items():
        if value is not None and name not in known:
            yield f"rope: {quote(str(name))} is not understood with rope_type {kind}"
        elif value is not None and not PARAMETERS[name].fits(value):
            yield f"rope: {name}: {quote(str(value))}, expected {PARAMETERS[name].expected}"
    yield from (f"rope_type {kind} without {name}" for name in needs if parameters.get(name) is None)

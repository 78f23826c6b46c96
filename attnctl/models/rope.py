"""The rotary frequencies that a config.json asks for, by its kinds of rope.

Source of each kind: `modeling_rope_utils.py` of transformers 5, in float32 as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from math import ceil, floor, log, pi, sqrt
from typing import Any, NamedTuple

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
        if self.kind == OF_GRID:
            return of_grid(self)

        frequencies, factor = KINDS[self.kind].scaling(self, length)
        other = other_list(self, length)
        return Rotary(
            self.theta,
            self.dims,
            self.interleaved,
            frequencies=tuple(float(frequency) for frequency in frequencies),
            factor=factor,
            first=self.first,
            other=tuple(float(frequency) for frequency in other),
        )

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
        factor = self.parameters.get("factor")
        if factor is None:
            factor = self.positions / self.original
        return float(factor)

    def number(self, name: str, default: float) -> float:
        """A number among the parameters; null is the default."""
        value = self.parameters.get(name)
        return float(default if value is None else value)


Frequencies = tuple[Array, float]


def exponents(rope: Rope) -> Array:
    """2i / dims for each pair."""
    return np.arange(0, rope.dims, 2).astype(FLOAT) / FLOAT(rope.dims)


def base_frequencies(rope: Rope, theta: float | None = None) -> Array:
    """θ^(−2i/dims)."""
    base = FLOAT(rope.theta if theta is None else theta)
    return FLOAT(1) / base ** exponents(rope)


def linear(rope: Rope, length: int) -> Frequencies:
    """Positions over a factor."""
    return base_frequencies(rope) / FLOAT(rope.factor), 1.0


def dynamic(rope: Rope, length: int) -> Frequencies:
    """θ grows with the length where it is more than the model was trained on (NTK)."""
    if rope.dims == 2:
        raise AttnError("rope_type dynamic turns two pairs of columns or more")

    longest = rope.positions
    factor = rope.factor
    stretch = factor * max(length, longest) / longest - (factor - 1)
    growth = stretch ** (rope.dims / (rope.dims - 2))
    return base_frequencies(rope, rope.theta * growth), 1.0


def yarn(rope: Rope, length: int) -> Frequencies:
    """Low frequencies over a factor, high ones as they are, a ramp between (Peng et al. 2023)."""
    factor = rope.factor
    low = yarn_edge(rope, rope.parameters.get("beta_fast") or 32)
    high = yarn_edge(rope, rope.parameters.get("beta_slow") or 1)
    if rope.parameters.get("truncate", True):
        low = floor(low)
        high = ceil(high)
    low = max(low, 0)
    high = min(high, rope.dims - 1)
    width = FLOAT(high - low if high != low else 0.001)  # never 0, as it is divided by

    pairs = np.arange(rope.dims // 2, dtype=FLOAT)
    kept = FLOAT(1) - np.clip((pairs - FLOAT(low)) / width, 0, 1)
    powers = FLOAT(rope.theta) ** exponents(rope)
    plain = FLOAT(1) / powers
    stretched = FLOAT(1) / (FLOAT(factor) * powers)
    return stretched * (1 - kept) + plain * kept, yarn_factor(rope, factor)


def yarn_edge(rope: Rope, turns: float) -> float:
    """The pair that turns so many times over the original length; a fraction where none does exactly."""
    return rope.dims * log(rope.original / (turns * 2 * pi)) / (2 * log(rope.theta))


def yarn_factor(rope: Rope, factor: float) -> float:
    """What Q and K are multiplied by, so that softmax over more keys stays as sharp."""
    attention_factor = rope.parameters.get("attention_factor")
    if attention_factor is not None:
        return float(attention_factor)

    mscale = rope.parameters.get("mscale")
    mscale_all_dim = rope.parameters.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return scale_of_length(factor, mscale) / scale_of_length(factor, mscale_all_dim)
    return scale_of_length(factor)


def scale_of_length(factor: float, mscale: float = 1.0) -> float:
    """0.1 · mscale · ln(factor) + 1, or 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * mscale * log(factor) + 1.0


def longrope(rope: Rope, length: int) -> Frequencies:
    """Each frequency over a factor of its own, other ones beyond the original length (LongRoPE)."""
    key = "long_factor" if length > rope.original else "short_factor"
    factors = np.array(rope.parameters[key], FLOAT)
    factor = rope.factor
    # Worked out even where the parameters say another: a length of 1 is refused there, too.
    natural = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(rope.original))
    scale = rope.parameters.get("attention_factor")

    powers = FLOAT(rope.theta) ** exponents(rope)
    return FLOAT(1) / (factors * powers), float(natural if scale is None else scale)


def other_list(rope: Rope, length: int) -> Array:
    """The frequencies by the list that is for texts of another length; none where there is one list."""
    if rope.kind != "longrope":
        return np.zeros(0)
    is_long = length > rope.original
    frequencies, _ = longrope(rope, rope.original if is_long else rope.original + 1)
    return frequencies


def longrope_of_phimoe(rope: Rope, length: int) -> Frequencies:
    """As transformers has that of Phi-3.5-MoE: the short factors, a scale by length."""
    is_long = length > rope.original
    scale = rope.parameters["long_mscale" if is_long else "short_mscale"]
    frequencies, _ = longrope(rope, 0)
    return frequencies, float(scale)


def llama3(rope: Rope, length: int) -> Frequencies:
    """Long waves over a factor, short ones as they are, a blend between (Llama 3.1)."""
    frequencies = base_frequencies(rope)
    factor = FLOAT(rope.factor)
    low = rope.number("low_freq_factor", 1)
    high = rope.number("high_freq_factor", 4)

    wavelength = FLOAT(2 * pi) / frequencies
    width = FLOAT(high - low) or FLOAT(1)  # of no band between, whose blend no wave reads
    blend = (FLOAT(rope.original) / wavelength - FLOAT(low)) / width
    blended = (1 - blend) * frequencies / factor + blend * frequencies
    is_long = wavelength > rope.original / low
    is_short = wavelength < rope.original / high
    return np.where(is_long, frequencies / factor, np.where(is_short, frequencies, blended)), 1.0


def proportional(rope: Rope, length: int) -> Frequencies:
    """The first share of the frequencies; the other pairs are not turned (Gemma 4)."""
    share = rope.number("partial_rotary_factor", 1)
    is_turned = np.arange(rope.dims // 2) < int(share * rope.dims // 2)
    frequencies = base_frequencies(rope) / FLOAT(rope.number("factor", 1))
    return np.where(is_turned, frequencies, FLOAT(0)), 1.0


def backwards(rope: Rope, length: int) -> Frequencies:
    """The usual frequencies, by which pairs turn the other way round (nanochat)."""
    return -base_frequencies(rope), 1.0


OF_GRID = "rows and columns of a picture"


def of_grid(rope: Rope) -> Rotary:
    """Half of the pairs turn by the row of a patch, half by its column, both from −1 to 1 (DINOv3)."""
    if rope.dims % 4:
        raise AttnError(f"hidden_size / num_attention_heads: {rope.dims} columns of a head, expected fours")
    powers = FLOAT(rope.theta) ** np.arange(0, 1, 4 / rope.dims, dtype=FLOAT)
    frequencies = (FLOAT(2 * pi) / powers).tolist()
    pairs = len(frequencies)
    return Rotary(rope.theta, rope.dims, frequencies=tuple(frequencies * 2), sections=(pairs, pairs, 0))


ORIGINAL = "original_max_position_embeddings"
OF_YARN = (ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")


class RopeKind(NamedTuple):
    """A kind of rope: its frequencies, the parameters that it needs, and those that it reads besides."""

    scaling: Callable[[Rope, int], Frequencies]
    needs: tuple[str, ...]
    reads: tuple[str, ...]


KINDS: dict[str, RopeKind] = {
    "linear": RopeKind(linear, ("factor",), ()),
    "dynamic": RopeKind(dynamic, ("factor",), ()),
    "yarn": RopeKind(yarn, ("factor",), OF_YARN),
    "longrope": RopeKind(
        longrope, ("short_factor", "long_factor"), (ORIGINAL, "attention_factor", "factor")
    ),
    "llama3": RopeKind(llama3, ("factor", "low_freq_factor", "high_freq_factor"), (ORIGINAL,)),
}
"""The kinds of rope beside the default, by the name that config.json gives them."""

USUAL = ("default", *KINDS)

TEMPERED = "yarn with temperature"
PROPORTIONAL = "proportional"
OF_PHIMOE = "longrope with mscale"
BACKWARDS = "backwards"
SCALES = ("short_factor", "long_factor", "short_mscale", "long_mscale")
KINDS |= {
    TEMPERED: RopeKind(
        yarn, ("factor", "llama_4_scaling_beta", ORIGINAL), (*OF_YARN, "max_position_embeddings")
    ),
    PROPORTIONAL: RopeKind(proportional, (), ("factor",)),
    OF_PHIMOE: RopeKind(longrope_of_phimoe, SCALES, (ORIGINAL, "factor")),
    BACKWARDS: RopeKind(backwards, (), ()),
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
    needs: tuple[str, ...] = ()
    known = {*SILENT, "rope_type", "type", "rope_theta", "partial_rotary_factor"}
    if kind in KINDS:  # the default has no more
        needs = KINDS[kind].needs
        known |= {*needs, *KINDS[kind].reads}

    for name, value in parameters.items():
        if value is None:
            continue
        if name not in known:
            yield f"rope: {quote(str(name))} is not understood with rope_type {kind}"
        elif not PARAMETERS[name].fits(value):
            yield f"rope: {name}: {quote(str(value))}, expected {PARAMETERS[name].expected}"
    yield from (f"rope_type {kind} without {name}" for name in needs if parameters.get(name) is None)

"""What to run, as plain values: the nouns that a YAML file, flags and keyword arguments all become.

Nothing here reads a file or checks sizes: `attnctl.config.yaml` reads, `attnctl.config.schema`
holds a file to its types, `attnctl.plan` checks that everything fits together and makes arrays
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnctl.derivation import Rotary
from attnctl.rules import Alibi, Causal, Rule, Softcap, Window

Path = tuple[str | int, ...]
Rows = list[list[float]]


def dotted(path: Path) -> str:
    """("weights", "W_Q", 0) -> "weights.W_Q[0]"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True)
class Tokenizer:
    """How a sentence falls into tokens: at `whitespace`, into `words` and punctuation, or `characters`."""

    split: str = "whitespace"
    lowercase: bool = False


@dataclass(frozen=True)
class Random:
    """A tensor to draw.

    `distribution` is normal (scaled by 1/√d_model), standard_normal or uniform (on [0, 1)).
    `stream` named gives each tensor a stream of its own from (seed, name); numpy_legacy is one
    ``np.random.seed(seed)`` for all, drawn in textbook order. `layout` fused draws W_Q whole and
    splits it; per_head draws head after head.
    """

    seed: int | None = None
    distribution: str = "normal"
    layout: str = "fused"
    stream: str = "named"


@dataclass(frozen=True)
class FromFile:
    """An array of a .npz, .npy or .safetensors file; `name` may be left out where it holds just one."""

    path: str
    name: str | None = None


DTYPES = ("float64", "float32", "float16")

IDENTITY = "identity"
NONE = "none"

Tensor = Rows | list[float] | Random | FromFile | str
"""A matrix or vector as written: rows, IDENTITY, NONE (W_O only), or where to get it."""


@dataclass(frozen=True)
class Weights:
    """The weights that are given; what is not is drawn as `random` says.

    `tensors` holds W_Q W_K W_V W_O b_Q b_K b_V b_O, and W for one matrix used for Q, K and V.
    `heads` is the per-head form of W_Q W_K W_V (and their biases), a mapping a head. `file` holds
    those of these names that are not given otherwise.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    heads: tuple[Mapping[str, Tensor], ...] = ()
    random: Random = Random()
    file: str | None = None


Embeddings = Mapping[str, list[float]] | Rows | Random | FromFile | str
"""By token, by row of the vocabulary, or where to get them; IDENTITY is one-hot."""

SINUSOIDAL = "sinusoidal"

PositionSetting = str | Rotary | Rows
"""NONE, SINUSOIDAL, rotary, or a learned table. (ALiBi is a rule.)"""


def unplaced(path: Path) -> str:
    """Where a value came from, when nobody says: its dotted path."""
    return dotted(path)


@dataclass(frozen=True)
class Settings:
    """Everything a run needs; what is None follows from the rest.

    `max_memory` is in bytes, None for most of what is free: how a run is carried out, not what it
    is, so no config holds it. `where` turns a path into the place a person wrote it
    (``x.yaml:14 $.heads``, ``--heads``).
    """

    sentence: str | None = None
    context: str | None = None
    vocab: tuple[str, ...] | None = None
    tokenizer: Tokenizer = Tokenizer()
    d_model: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    seed: int = 0
    embeddings: Embeddings = Random(distribution="standard_normal")
    positions: PositionSetting = NONE
    weights: Weights = Weights()
    scale: float | None = None
    rules: tuple[Rule, ...] = ()
    mask: Rows | None = None
    bias: Rows | None = None
    causal_offset: int | None = None
    dtype: str = "float64"
    edits: tuple[str, ...] = ()
    renormalize: bool = False
    max_memory: int | None = field(default=None, compare=False)
    where: Callable[[Path], str] = field(default=unplaced, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The same in the form of a YAML config: what a dump carries and `config init` writes."""
        out: dict[str, Any] = {
            "sentence": self.sentence,
            "context": self.context,
            "vocab": None if self.vocab is None else list(self.vocab),
            "tokenizer": {"split": self.tokenizer.split, "lowercase": self.tokenizer.lowercase},
            "d_model": self.d_model,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "d_k": self.d_k,
            "d_v": self.d_v,
            "seed": self.seed,
            "embeddings": written(self.embeddings),
            "positions": {"learned": self.positions}
            if isinstance(self.positions, list)
            else written(self.positions),
            "weights": weights_dict(self.weights),
            "scale": self.scale,
            "rules": [written_rule(rule) for rule in self.rules],
            "causal_offset": self.causal_offset,
            "dtype": self.dtype,
            "edits": list(self.edits) or None,
            "renormalize": self.renormalize or None,
        }
        out["rules"] += [{"mask": self.mask}] if self.mask is not None else []
        out["rules"] += [{"bias": self.bias}] if self.bias is not None else []
        return {key: value for key, value in out.items() if value is not None}

    def with_(self, **changes: Any) -> Settings:
        """A copy with these values."""
        return replace(self, **changes)


def written(value: Any) -> Any:
    """A source of numbers in the form a config writes it."""
    match value:
        case Random():
            named = {name: getattr(value, name) for name in ("seed", "distribution", "layout", "stream")}
            return {"random": {name: each for name, each in named.items() if each is not None}}
        case FromFile(path, None):
            return {"file": path}
        case FromFile(path, name):
            return {"file": path, "name": name}
        case Rotary(theta, dims, interleaved):
            return {"rope": {"theta": theta, "interleaved": interleaved} | ({"dims": dims} if dims else {})}
        case Mapping():
            return dict(value)
        case _:
            return value


def weights_dict(weights: Weights) -> dict[str, Any]:
    """Weights in the form a config writes them."""
    out = dict(written(weights.random))
    out |= {name: written(tensor) for name, tensor in weights.tensors.items()}
    if weights.heads:
        out["heads"] = [{n: written(t) for n, t in head.items()} for head in weights.heads]
    return out | ({"file": weights.file} if weights.file else {})


def written_rule(rule: Rule) -> Any:
    """A rule in the form a config writes it."""
    match rule:
        case Causal() | Alibi():
            return rule.name
        case Window(left, right):
            return {"window": [left, right]}
        case Softcap(cap):
            return {"softcap": cap}
        case _:
            raise AssertionError(f"{rule.name} is not a rule that a config can hold")

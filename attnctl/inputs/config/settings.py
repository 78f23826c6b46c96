"""The settings of a run as plain values, which a YAML file, flags and keyword arguments all become.

Nothing here reads a file or checks sizes: `config.yaml` reads, `config.fields` says how each setting is
read, `attnctl.inputs.plan` checks that everything fits together and makes arrays of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any

from attnctl.base.dataclass import dataclass
from attnctl.base.values import Path
from attnctl.math.kind import KIND, HeadNorm, Kind
from attnctl.math.rules import Rule

if TYPE_CHECKING:
    from attnctl.math.derivation import Rotary

Rows = list[list[float]]

PositionIds = tuple[int, ...] | tuple[tuple[int, ...], ...] | tuple[tuple[tuple[int, ...], ...], ...]
"""A position for each token: (n), (batch, n) or (3, n), or (1 or 3, batch, n)."""


def dotted_path(path: Path) -> str:
    """("weights", "W_Q", 0) -> "weights.W_Q[0]"."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True)
class Tokenizer:
    """The way to cut a sentence: at `whitespace`, into `words` and punctuation, or into `characters`."""

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

    @property
    def legacy(self) -> bool:
        return self.stream == "numpy_legacy"


@dataclass(frozen=True)
class FromFile:
    """An array of a .npz, .npy or .safetensors file; `name` may be left out where it holds just one."""

    path: str
    name: str | None = None


STANDARD_NORMAL = Random(distribution="standard_normal")  # how embeddings are drawn
DTYPES = ("float64", "float32", "float16")
EXAMPLE = "example:"  # what stands before the name of an installed example in place of a file
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

    def written(self) -> Iterator[tuple[Path, Tensor]]:
        """Every tensor that is given, by its path in the settings."""
        for name, tensor in self.tensors.items():
            yield ("weights", name), tensor
        for number, head in enumerate(self.heads):
            for name, tensor in head.items():
                yield ("weights", "heads", number, name), tensor


Embeddings = Mapping[str, list[float]] | Rows | Random | FromFile | str
"""By token, by row of the vocabulary, or where to get them; IDENTITY is one-hot."""

SINUSOIDAL = "sinusoidal"

LENGTHS = "lengths"
"""The causal offset that follows from key_lengths alone: lengths − queries (ONNX's rule)."""

LAYOUTS = ("nd", "hnd", "nhd", "bhnd", "bnhd", "bnd")
"""How Q, K and V may be laid out: batch, head, row (n), columns (d)."""


@dataclass(frozen=True)
class Settings(Kind):
    """Everything a run needs; what is None follows from the rest.

    `max_memory` is in bytes, None for most of what is free: how a run is carried out, not what it
    is, so no config holds it; nor how arrays are read (`layout`, …). `where` turns a path into
    the place a person wrote it (``x.yaml:14 $.heads``, ``--heads``); `named` are those that no file
    says: what files they name may be pipes.
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
    embeddings: Embeddings = STANDARD_NORMAL
    positions: str | Rotary | Rows = NONE
    """NONE, SINUSOIDAL, rotary, or a learned table. (ALiBi is a rule.)"""
    position_ids: PositionIds | None = None
    """The position of each token; None where they are 0, 1, 2 and so on."""
    rules_by_positions: bool = False
    weights: Weights = Weights()
    mask: Rows | None = None
    bias: Rows | None = None
    causal_offset: int | str | None = None
    dtype: str = "float64"
    edits: tuple[str, ...] = ()
    renormalize: bool = False
    layout: str | None = field(default=None, compare=False)
    lse_base: str | None = field(default=None, compare=False)
    lse_empty: float | None = field(default=None, compare=False)
    positions_from_mask: bool | None = field(default=None, compare=False)
    max_memory: int | None = field(default=None, compare=False)
    where: Callable[[Path], str] = field(default=dotted_path, compare=False, repr=False)
    named: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The settings in the form of a YAML config: what a dump carries and `config init` writes."""
        out: dict[str, Any] = {}
        for name in IN_ORDER:
            value = as_written(getattr(self, name))
            is_unset = name in WRITTEN_WHERE_SET and (value is False or value == [])
            if value is not None and name not in NOT_WRITTEN and not is_unset:
                out[name] = value

        if isinstance(self.positions, list):
            out["positions"] = {"learned": self.positions}
        for name in ("mask", "bias"):  # written among the rules
            if name in out:
                out["rules"].append({name: out.pop(name)})
        return out

    def with_(self, **changes: Any) -> Settings:
        return replace(self, **changes)


OF_ARRAYS = {"layout", "lse_base", "lse_empty", "positions_from_mask"}
"""How arrays are read that others wrote; no dump and no config of ours needs to say it."""

NOT_WRITTEN = {*OF_ARRAYS, "max_memory", "where", "named"}
WRITTEN_WHERE_SET = {"edits", "renormalize", "rules_by_positions", *KIND} - {"scale", "rules"}
OWN = [field_.name for field_ in fields(Settings) if field_.name not in KIND]
IN_ORDER = [*OWN[: OWN.index("mask")], *KIND, *OWN[OWN.index("mask") :]]
"""The settings as a config has them: the kind of attention after the weights."""


def as_written(value: Any) -> Any:
    """A value of a setting in the form a config writes it."""
    from attnctl.math.derivation import Rotary

    match value:
        case Random():
            return {"random": without_none(vars(value))}
        case FromFile(path, name):
            return without_none({"file": path, "name": name})
        case Tokenizer():
            return dict(vars(value))
        case Weights():
            return weights_as_written(value)
        case Rule() | HeadNorm():
            return value.plain()
        case tuple():
            return list(map(as_written, value))
        case Mapping():
            return {name: as_written(part) for name, part in value.items()}
        case Rotary():
            return rotary_as_written(value)
        case _:
            return value


def rotary_as_written(rotary: Rotary) -> dict[str, Any]:
    out: dict[str, Any] = {"theta": rotary.theta, "interleaved": rotary.interleaved}
    if rotary.dims is not None:
        out["dims"] = rotary.dims
    if rotary.sections:
        out |= {"sections": list(rotary.sections), "sections_in_turn": rotary.sections_in_turn}
    return {"rope": out}


def weights_as_written(weights: Weights) -> dict[str, Any]:
    out: dict[str, Any] = as_written(weights.random)
    out |= {name: as_written(tensor) for name, tensor in weights.tensors.items()}
    if weights.heads:
        out["heads"] = as_written(weights.heads)
    if weights.file:
        out["file"] = weights.file
    return out


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

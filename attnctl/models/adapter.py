"""LoRA: a low-rank change of some matrices of a model, as PEFT saves it beside adapter_config.json.

W becomes W + s · B A, with s = α/r (or α/√r). Only what is read of a matrix is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.words import dims, quote
from attnctl.math import Array
from attnctl.models.keys import AMOUNT, COUNT, FLAG, TABLE, Config, Key, KeyKind
from attnctl.models.packing.matrix import places
from attnctl.models.tensors import LONGEST_CONFIG, json_file, path_inside
from attnctl.store.header import Stored
from attnctl.store.raw import File
from attnctl.store.safetensors import contents

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_PICKLE = "adapter_model.bin"

WRAPPED = "base_model.model."
"""What PEFT puts before the name of every module."""

RANK, ALPHA = Key(("r",), COUNT, 8), Key(("lora_alpha",), AMOUNT, 8)
ROOTED, TRANSPOSED = Key(("use_rslora",), FLAG, False), Key(("fan_in_fan_out",), FLAG, False)


def is_pattern(kind: KeyKind, value: Any) -> bool:
    """True for numbers by the end of a module's name; PEFT takes regular expressions, which may not end."""
    if not TABLE.fits(value):
        return False
    for name, number in value.items():
        if not re.fullmatch(r"\^?(?:[\w.]|\\\.)+", name) or not kind.fits(number):
            return False
    return True


def pattern(name: str, kind: KeyKind) -> Key:
    expected = f"an object with {kind.expected} by the end of a module's name"
    return Key((name,), KeyKind(expected, partial(is_pattern, kind)))


RANKS, ALPHAS = pattern("rank_pattern", COUNT), pattern("alpha_pattern", AMOUNT)

READ = (RANK, ALPHA, ROOTED, TRANSPOSED, RANKS, ALPHAS)

INERT = re.compile(
    # where it came from, and which modules it has, as its tensors say themselves
    r"auto_mapping|base_model_name_or_path|revision|peft_version|inference_mode|task_type|peft_type"
    r"|target_modules|exclude_modules|modules_to_save|layers_pattern|layers_to_transform|bias"
    # training
    r"|lora_dropout|eva_config|corda_config|loftq_config|lora_ga_config|init_lora_weights"
    r"|megatron_config|megatron_core|runtime_config|qalora_group_size|ensure_weight_tying"
)
"""Keys of adapter_config.json that change no number beside what the tensors say."""

PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""How A and B may have begun: other ways change the matrices of the model, too."""


class LowRank(NamedTuple):
    """A change of one matrix: scale · left right, (rows, r) and (r, columns)."""

    left: Stored
    right: Stored
    turned: bool
    """Whether what is stored is right first: (r, rows) and (columns, r)."""
    scale: float

    def part_of(self, rows: Array, columns: Array) -> Array:
        """The change of these rows and columns."""
        left = wide(self.left)
        right = wide(self.right)
        if self.turned:
            left, right = left.T, right.T
        made: Array = (left[rows] @ right[:, columns]) * np.float32(self.scale)
        return made


def wide(tensor: Stored) -> Array:
    return tensor.load().astype(np.float32, copy=False)


@dataclass(frozen=True)
class Adapter:
    """A folder that PEFT's save_pretrained wrote."""

    folder: Path
    config: Config
    tensors: Mapping[str, Stored]

    @property
    def base(self) -> str:
        """The model that it was made for, as it says."""
        return str(self.config.get("base_model_name_or_path") or "")

    def scale(self, module: str) -> float:
        rank = by_pattern(RANKS.value(self.config), module, RANK.value(self.config))
        alpha = by_pattern(ALPHAS.value(self.config), module, ALPHA.value(self.config))
        divisor = sqrt(rank) if ROOTED.value(self.config) else rank
        return float(alpha / divisor)

    def rank(self, module: str) -> int:
        return int(by_pattern(RANKS.value(self.config), module, RANK.value(self.config)))


def by_pattern(numbers: Mapping[str, Any] | None, module: str, otherwise: Any) -> Any:
    """The number of the first name that a module's ends in."""
    for name, number in (numbers or {}).items():
        if re.match(rf"(.*\.)?({name})$", module):
            return number
    return otherwise


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file()


def open_adapter(name: str) -> Adapter:
    """The adapter of a folder. Raises AttnError with what it is instead, and what is not understood."""
    folder = Path(name)
    if "\0" in name or not folder.is_dir():
        raise AttnError(f"--adapter {quote(name)}: no such folder; give what PEFT's save_pretrained wrote")
    if not is_adapter(folder):
        instead = "give what PEFT's save_pretrained wrote"
        raise AttnError(f"--adapter {name}: no {ADAPTER_CONFIG} in it; {instead}")

    path = path_inside(folder, ADAPTER_CONFIG)
    config = json_file(path, LONGEST_CONFIG)
    raise_all(f"{path}: {problem}" for problem in problems_of(config))
    if not (folder / ADAPTER).is_file():
        found = (
            f"{ADAPTER_PICKLE} is a pickle, which can run code"
            if (folder / ADAPTER_PICKLE).exists()
            else ""
        )
        raise AttnError(
            f"{folder}: no {ADAPTER}; {found or 'it holds A and B'}; save it with save_pretrained"
        )

    tensors_path = path_inside(folder, ADAPTER)
    with refuse_os_errors(f"{tensors_path}: cannot be read"), open_found(tensors_path) as stream:
        _, tensors = contents(File(stream.fileno(), str(tensors_path)))
    return Adapter(folder, config, tensors)


def problems_of(config: Config) -> Iterator[str]:
    """What of adapter_config.json is not understood."""
    kind = config.get("peft_type")
    if kind != "LORA":
        yield f"peft_type {quote(str(kind))} is not read; only LORA"
        return
    for key in READ:
        yield from key.problems(config)
    start = config.get("init_lora_weights")
    if start not in PLAIN_STARTS:
        what = f"init_lora_weights {quote(str(start))}"
        yield f"{what} changes the model's own matrices; merge it, and give that"
    if config.get("use_dora"):
        yield "use_dora: columns have lengths of their own, which is not read; merge it, and give that"

    known = {name for key in READ for name in key.names} | {"use_dora"}
    for name, value in config.items():
        if value and name not in known and not INERT.fullmatch(name):
            found = f"{quote(name)} is {quote(str(value))}"
            yield f"{found}, which is not read; merge the adapter, and give that"


# --- the tensors of a model, changed ---

ROLES = {"lora_A.weight": "A", "lora_B.weight": "B", "lora_embedding_A": "A", "lora_embedding_B": "B"}


class AdapterRole(NamedTuple):
    module: str
    role: str
    embeds: bool


def role_of(name: str) -> AdapterRole | None:
    """What a tensor of an adapter is; None for one that stands in place of the model's."""
    for ending, role in ROLES.items():
        if name.endswith(f".{ending}"):
            module = name.removesuffix(f".{ending}").removeprefix(WRAPPED)
            return AdapterRole(module, role, ending.startswith("lora_embedding"))
    return None


def with_adapter(tensors: Mapping[str, Stored], adapter: Adapter) -> dict[str, Stored]:
    """The tensors of a model with the adapter's change. Raises AttnError for what does not fit them."""
    changed = dict(tensors)
    halves: dict[str, dict[str, Stored]] = {}
    embedding: set[str] = set()
    problems: list[str] = []
    for name, tensor in adapter.tensors.items():
        found = role_of(name)
        if found is None:
            problems += replace_whole(changed, name.removeprefix(WRAPPED), tensor)
            continue
        halves.setdefault(found.module, {})[found.role] = tensor
        if found.embeds:
            embedding.add(found.module)

    for module, parts in halves.items():
        problems += change_matrix(changed, adapter, module, parts, embeds=module in embedding)
    if not adapter.tensors:
        problems.append("it holds no tensors")
    raise_all(f"{adapter.folder}: {problem}" for problem in problems)
    return changed


def replace_whole(tensors: dict[str, Stored], name: str, tensor: Stored) -> list[str]:
    """Put a tensor that was trained in whole (modules_to_save, biases) in place of the model's."""
    target = name_in(tensors, name)
    if target is None:
        return [f"{name}: the model has no such tensor"]
    if tensors[target].shape != tensor.shape:
        return [f"{name} is {dims(tensor.shape)}, the model's {dims(tensors[target].shape)}"]
    tensors[target] = tensor
    return []


def change_matrix(
    tensors: dict[str, Stored], adapter: Adapter, module: str, parts: Mapping[str, Stored], *, embeds: bool
) -> list[str]:
    """Add B A to a matrix; the problem, where it does not fit."""
    if len(parts) != 2:
        return [f"{module}: A without B, or B without A"]
    target = name_in(tensors, f"{module}.weight")
    if target is None:
        return [f"{module}: the model has no such matrix"]

    first, second = parts["A"], parts["B"]
    turned = embeds or bool(TRANSPOSED.value(adapter.config))
    weight = tensors[target]
    if len(first.shape) != 2 or len(second.shape) != 2 or len(weight.shape) != 2:
        return [f"{module}: A is {dims(first.shape)}, B {dims(second.shape)}; matrices are read alone"]

    rank = adapter.rank(module)
    made = (first.shape[1], second.shape[0]) if turned else (second.shape[0], first.shape[1])
    if first.shape[0] != rank or second.shape[1] != rank:
        return [f"{module}: A has {first.shape[0]} rows, B {second.shape[1]} columns, its rank is {rank}"]
    if made != weight.shape:
        return [f"{module}: B A is {dims(made)}, the model's matrix {dims(weight.shape)}"]

    left, right = (first, second) if turned else (second, first)
    change = LowRank(left, right, turned, adapter.scale(module))
    tensors[target] = Stored(
        shape=weight.shape,
        dtype=np.dtype(np.float64 if weight.dtype == np.float64 else np.float32),
        load=partial(load_changed, weight, change),
        type_name=weight.type_name,
        nbytes=weight.nbytes + first.nbytes + second.nbytes,
        adapted=True,
    )
    return []


def load_changed(weight: Stored, change: LowRank, part: Any = ..., room: Array | None = None) -> Array:
    """A matrix with its change: its numbers, or those at an index."""
    rows, columns = places(weight.shape, part)
    dtype = np.promote_types(weight.dtype, np.float32)
    base = weight.load(part, room).astype(dtype, copy=False)
    changed: Array = base + change.part_of(rows, columns)
    return changed


def name_in(tensors: Mapping[str, Stored], name: str) -> str | None:
    """The name of a tensor as a checkpoint has it, which may have more before it, or less."""
    rest = name
    while rest:
        if rest in tensors:
            return rest
        _, _, rest = rest.partition(".")
    longer = [whole for whole in tensors if whole.endswith(f".{name}")]
    return longer[0] if len(longer) == 1 else None


def refuse_adapter(folder: Path) -> str:
    """What is said of an adapter that is given as a model."""
    with refuse_os_errors(f"{folder / ADAPTER_CONFIG}: cannot be read"):
        base = json_file(path_inside(folder, ADAPTER_CONFIG), LONGEST_CONFIG).get("base_model_name_or_path")
    model = base if isinstance(base, str) and base else "DIR"
    return f"an adapter, which changes a model: --model {model} --adapter {folder}"

"""Opening a model and its tokenizer: a folder, or the id of one on the hub, cached here or fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input, open_found
from attnctl.base.pieces import text_of_piece
from attnctl.base.words import one_of, quote
from attnctl.math.engine.cost import available
from attnctl.models.adapter import (
    ADAPTER,
    ADAPTER_CONFIG,
    is_adapter,
    open_adapter,
    refuse_adapter,
    with_adapter,
)
from attnctl.models.architectures import open_gguf
from attnctl.models.chat import read_template
from attnctl.models.description import describe, scale_blocks
from attnctl.models.families import FAMILIES
from attnctl.models.gguf import is_gguf
from attnctl.models.layer import Model
from attnctl.models.nanogpt import is_torch_file, open_nanogpt
from attnctl.models.packing import packing_of
from attnctl.models.tensors import (
    INDEX,
    LONGEST_CONFIG,
    MISTRALS,
    PICKLES,
    WHOLE,
    Checkpoint,
    json_file,
    path_inside,
    read_tensors,
    shards,
)
from attnctl.models.tokenizing import GuestTokenizer
from attnctl.models.vocabulary import tokenizer_text

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
OWN = (
    *(CONFIG, TOKENIZER, WHOLE, INDEX, *PICKLES, "README.md"),
    *("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *(ADAPTER_CONFIG, ADAPTER),
    *("chat_template.jinja", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"),
)
"""The files of a folder that are the model's, beside its shards."""

HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def open_model(name: str, part: str = "", dtype: str = "float32", max_memory: int | None = None) -> Model:
    """The model of a folder with config.json and safetensors. Raises AttnError with every problem."""
    folder = folder_of(name)
    if is_gguf(folder):
        config, tensors, _ = open_gguf(folder)
        block = None
        description = describe(config, part, str(folder))
    elif is_torch_file(folder):
        config, tensors = open_nanogpt(folder)
        block = None
        description = describe(config, part, str(folder))
    else:
        path = path_inside(folder, CONFIG)
        config = json_file(path, LONGEST_CONFIG)
        description = describe(config, part, str(path))
        block = scale_blocks(config, str(path))
        tensors = read_tensors(folder, block, packing_of(config, str(path)))
    if adapter := split_name(name).adapter:
        tensors = with_adapter(tensors, open_adapter(adapter_folder(adapter)))
    checkpoint = Checkpoint(folder, block, tensors)
    model = Model(name, description, checkpoint, dtype, max_memory)
    model.refuse_layers()
    return model


def stacks_in(name: str) -> list[str]:
    """The names of the parts that a model's family has; none of a file that is no folder."""
    folder = folder_of(name)
    if not folder.is_dir():
        return []
    kind = json_file(path_inside(folder, CONFIG), LONGEST_CONFIG).get("model_type")
    return list(FAMILIES[kind]) if isinstance(kind, str) and kind in FAMILIES else []


WITH_ADAPTER = " --adapter "
"""What stands between the name of a model and that of its adapter, as a person types both."""


class ModelName(NamedTuple):
    base: str
    adapter: str
    """Empty where there is none."""


def join_name(base: str, adapter: str | None) -> str:
    return base if adapter is None else f"{base}{WITH_ADAPTER}{adapter}"


def split_name(name: str) -> ModelName:
    base, _, adapter = name.partition(WITH_ADAPTER)
    return ModelName(base, adapter)


def folder_of(name: str) -> Path:
    """The folder of a path, or of a hub id, cached or fetched; or a GGUF file, which is a model by itself.

    Raises AttnError where there is none.
    """
    name, adapter = split_name(name)
    if adapter:
        note_folder(Path(adapter_folder(adapter)))
    if name.startswith(OLLAMA):
        return find_ollama(name.removeprefix(OLLAMA))
    folder = Path(name)
    if "\0" in name:
        raise AttnError(f"{quote(name)}: not the name of a folder")
    if folder.exists():
        if is_gguf(folder) or is_torch_file(folder):
            return folder
        if (folder / CONFIG).is_file():
            return note_folder(folder)
        raise AttnError(f"{name}: {no_model(folder)}")
    if not HUB_ID.fullmatch(name):
        raise AttnError(f"{name}: no such file or folder")
    return note_folder(find_cached(name) or fetch_snapshot(name))


def files_of(name: str) -> list[Path]:
    """Every file on which the numbers of a model depend, its tokenizer's last."""
    folder = folder_of(name)
    if is_gguf(folder) or is_torch_file(folder):
        return [folder]
    files = [folder / CONFIG, *(folder / shard for shard in shards(folder))]
    if adapter := split_name(name).adapter:
        of_adapter = Path(adapter_folder(adapter))
        files += [of_adapter / ADAPTER_CONFIG, of_adapter / ADAPTER]
    return [*files, folder / TOKENIZER]


def no_model(folder: Path) -> str:
    """What is wrong with a file, or a folder without a config.json, as a model."""
    if folder.suffix == ".gguf":
        return "not a GGUF file: it does not begin with GGUF"
    if files := sorted(folder.glob("*.gguf")):
        return f"no {CONFIG} in it; give {one_of(map(str, files[:3]))}"
    if not folder.is_dir():
        return f"a file; give the folder that it is in, with {CONFIG}"
    if is_adapter(folder):
        return refuse_adapter(folder)
    if (folder / MISTRALS).exists():
        return f"{MISTRALS} and no {CONFIG}: files with Mistral's own names; give what transformers saves"
    below = [str(path.parent) for path in sorted(folder.glob(f"*/{CONFIG}"))]
    instead = f"give {one_of(below)}" if below else "a model is what save_pretrained writes"
    return f"no {CONFIG} in it; {instead}"


def note_folder(folder: Path) -> Path:
    """The folder of a model: what belongs to it is not overwritten, whether it is opened or not."""
    for name in OWN:
        note_input(folder / name)
    return folder


# --- the local store of Ollama ---

OLLAMA = "ollama:"
"""What a name begins with that is one of Ollama's."""

OLLAMA_NAME = re.compile(r"(?:([\w.-]+)/)?([\w.-]+)(?::([\w.-]+))?")
LONGEST_MANIFEST = 2**20
OF_MODEL, OF_ADAPTER = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "adapter"))


def find_ollama(name: str) -> Path:
    """The GGUF file of a model that Ollama pulled. Raises AttnError with what there is instead."""
    match = OLLAMA_NAME.fullmatch(name)
    if match is None:
        raise AttnError(f"{OLLAMA}{name}: expected NAME, NAME:TAG or OWNER/NAME:TAG")
    store = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    manifests = store / "manifests" / "registry.ollama.ai"
    owner, model, tag = match[1] or "library", match[2], match[3] or "latest"
    path = manifests / owner / model / tag
    if not path.is_file():
        tags = sorted(each.name for each in path.parent.glob("*"))
        models = sorted({each.parent.name for each in manifests.glob("*/*/*")})
        there = [f"{OLLAMA}{model}:{each}" for each in tags] or [f"{OLLAMA}{each}" for each in models]
        what = f"there is {one_of(there[:6])}" if there else "it has none"
        raise AttnError(f"{OLLAMA}{name}: not in {store}; {what}")

    layers = json_file(path, LONGEST_MANIFEST).get("layers")
    digests: dict[str, str] = {}
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, Mapping) and re.fullmatch(r"sha256:[0-9a-f]{64}", str(layer.get("digest"))):
            digests[str(layer.get("mediaType"))] = str(layer["digest"]).replace(":", "-")
    if OF_ADAPTER in digests:
        raise AttnError(
            f"{OLLAMA}{name}: it has an adapter in GGUF, which is not read; give its base model"
        )
    if OF_MODEL not in digests:
        raise AttnError(f"{path}: names no model")
    blob = store / "blobs" / digests[OF_MODEL]
    if not is_gguf(blob):
        raise AttnError(f"{blob}: not a GGUF file")
    return blob


def find_cached(name: str) -> Path | None:
    """The snapshot of a model of the hub that huggingface_hub left on this machine."""
    snapshot = find_snapshot(name)
    if snapshot is None:
        return None
    has_tensors = (snapshot / WHOLE).exists() or (snapshot / INDEX).exists()
    return snapshot if (snapshot / CONFIG).is_file() and has_tensors else None


def find_snapshot(name: str) -> Path | None:
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    repository = cache / f"models--{name.replace('/', '--')}"
    try:
        with open_found(repository / "refs" / "main") as stream:
            revision = stream.read().decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not re.fullmatch(r"[\w.-]+", revision):
        return None

    return repository / "snapshots" / revision


def adapter_folder(name: str) -> str:
    """The folder of an adapter: a path, or that of a hub id, cached or fetched."""
    if "\0" in name or Path(name).exists() or not HUB_ID.fullmatch(name) or "/" not in name:
        return name
    snapshot = find_snapshot(name)
    if snapshot is not None and is_adapter(snapshot):
        return str(snapshot)
    return str(fetch_snapshot(name, (ADAPTER_CONFIG, ADAPTER)))


OF_A_MODEL = (
    CONFIG,
    WHOLE,
    INDEX,
    "*.safetensors",
    TOKENIZER,
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)


def fetch_snapshot(name: str, wanted: Sequence[str] = OF_A_MODEL) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise AttnError(
            f"{name}: no such file or folder, nor in the local cache; pip install 'attnctl[hf]' to fetch it"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=[*wanted]))
    except Exception as error:  # noqa: BLE001  (the hub raises what its transport raises)
        first = str(error).strip().splitlines()
        why = first[0] if first else type(error).__name__
        raise AttnError(f"{name}: no such file or folder, and the hub does not give it: {why}") from None


# --- from a text to ids, by the tokenizer.json that stands beside the model ---


@dataclass(frozen=True)
class Tokens:
    """The ids of a text, with labels, segments, notes, and the places of `special` tokens ([CLS], <s>)."""

    ids: list[int]
    labels: list[str]
    segments: list[int]
    special: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = None


def plain_ids(ids: Sequence[int]) -> Tokens:
    """Ids that are given; each is its own label. Raises AttnError where there are none, or others."""
    if not ids:
        raise AttnError("ids: none; give one or more")
    wrong = [number for number in ids if not isinstance(number, Integral)]
    raise_all(f"ids: {quote(str(number))} is no whole number" for number in wrong)

    numbers = [int(number) for number in ids]
    return Tokens(ids=numbers, labels=list(map(str, numbers)), segments=[0] * len(numbers))


class Words:
    """The tokenizer of a model, read once for many texts.

    Truncation and padding that tokenizer.json brings are switched off, and that is noted. Raises
    AttnError where there is no tokenizer, or `tokenizers` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = load_tokenizer(folder)
        self.labels: dict[tuple[int, str], str] = {}
        self.notes: tuple[str, ...] = ()

        changes = []
        if truncation := self.tokenizer.truncation:
            self.tokenizer.no_truncation()
            changes.append(f"truncates to {length_in(truncation)}")
        if padding := self.tokenizer.padding:
            self.tokenizer.no_padding()
            changes.append(f"pads to {length_in(padding)}")
        if changes:
            self.notes = (f"{TOKENIZER} {' and '.join(changes)}; that is switched off",)

    def tokens(self, text: str, pair: str | None = None) -> Tokens:
        """The tokens of a text, or of two for models that take a pair. Raises AttnError for none."""
        encoded = self.tokenizer.encode(text) if pair is None else self.tokenizer.encode(text, pair)
        if not encoded.ids:
            raise AttnError(f"sentence: no tokens in {text!r}; give words")

        return replace(
            self.named(encoded),
            special=tuple(place for place, flag in enumerate(encoded.special_tokens_mask) if flag),
            text=text if pair is None else f"{text} / {pair}",
        )

    def message(self, text: str) -> Tokens:
        """The tokens of a message to a model that answers, as its chat template writes it."""
        found = read_template(self.folder)
        written = self.tokenizer.render(found["template"], found["special"], text)
        encoded = self.tokenizer.encode(written, add_special_tokens=False)
        if not encoded.ids:
            raise AttnError(f"--chat: {self.folder}: its chat template writes nothing")
        return self.named(encoded)

    def named(self, encoded: Any) -> Tokens:
        """What a tokenizer gave, each token with its label."""
        return Tokens(
            ids=list(encoded.ids),
            labels=list(map(self.label, encoded.ids, encoded.tokens)),
            segments=list(encoded.type_ids),
            notes=self.notes,
        )

    def label(self, number: int, token: str) -> str:
        """A token's text without the space before it: spaces alone stay, parts of characters are bytes."""
        if (number, token) not in self.labels:
            text = str(self.tokenizer.decode([number], skip_special_tokens=False))
            if "\ufffd" in text:
                text = text_of_piece(token)
            self.labels[number, token] = text.strip() or text or token
        return self.labels[number, token]


def tokenizer_file(folder: Path) -> Path:
    """The file that a model's tokenizer is read from."""
    return folder if is_gguf(folder) else folder / TOKENIZER


def length_in(setting: Mapping[str, Any]) -> str:
    """To how many tokens a tokenizer truncates or pads."""
    length = setting.get("max_length", setting.get("length"))
    return str(length) if length else "the longest"


def load_tokenizer(folder: Path) -> GuestTokenizer:
    if is_gguf(folder):
        require_tokenizers()
        return GuestTokenizer(folder, available(), tokenizer_text(folder))
    if not (folder / TOKENIZER).is_file():
        raise AttnError(f"{folder}: no {TOKENIZER}; give the ids of tokens instead: --ids 1,2,3")
    require_tokenizers()
    return GuestTokenizer(path_inside(folder, TOKENIZER), available())


def require_tokenizers() -> None:
    if not is_installed("tokenizers"):
        raise AttnError(
            "tokenizers is not installed; pip install 'attnctl[hf]', or give the ids of tokens: --ids 1,2,3"
        )


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False

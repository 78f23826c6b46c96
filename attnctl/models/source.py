"""Opening a model and its tokenizer: a folder, or the id of one on the hub, cached here or fetched."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input, open_found
from attnctl.base.words import quote
from attnctl.models.description import describe
from attnctl.models.layer import Model
from attnctl.models.tensors import INDEX, LONGEST_CONFIG, PICKLES, WHOLE, Checkpoint, inside, json_file

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
OWN = (
    *(CONFIG, TOKENIZER, WHOLE, INDEX, *PICKLES, "README.md"),
    *("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"),
)
"""The files of a folder that are the model's, beside its shards."""

HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def open_model(name: str, part: str = "", dtype: str = "float32", max_memory: int | None = None) -> Model:
    """The model of a folder that holds config.json and safetensors.

    Raises AttnError for what is not there, and with everything of the config that is not understood.
    """
    folder = folder_of(name)
    path = inside(folder, CONFIG)
    description = describe(json_file(path, LONGEST_CONFIG), part, str(path))
    model = Model(name, description, Checkpoint(folder), dtype, max_memory)
    model.refuse_layers()
    return model


def folder_of(name: str) -> Path:
    """The folder of a model: a path, or the snapshot of a hub id, in the local cache or fetched.

    Raises AttnError where there is none.
    """
    folder = Path(name)
    if "\0" in name:
        raise AttnError(f"{quote(name)}: not the name of a folder")
    if folder.exists():
        if (folder / CONFIG).is_file():
            return note_folder(folder)
        raise AttnError(f"{name}: no {CONFIG} in it; a model is what save_pretrained writes")
    if not HUB_ID.fullmatch(name):
        raise AttnError(f"{name}: no such file or folder")
    return note_folder(find_cached(name) or fetch_snapshot(name))


def note_folder(folder: Path) -> Path:
    """The folder of a model: what belongs to it is not overwritten, whether it is opened or not."""
    for name in OWN:
        note_input(folder / name)
    return folder


def find_cached(name: str) -> Path | None:
    """The snapshot of a hub id that huggingface_hub left on this machine."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    repository = cache / f"models--{name.replace('/', '--')}"
    try:
        with open_found(repository / "refs" / "main") as stream:
            revision = stream.read().decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    snapshot = repository / "snapshots" / revision
    whole = re.fullmatch(r"[\w.-]+", revision) and (snapshot / CONFIG).is_file()
    return snapshot if whole and (snapshot / WHOLE).exists() | (snapshot / INDEX).exists() else None


def fetch_snapshot(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise AttnError(
            f"{name}: no such file or folder, nor in the local cache; pip install 'attnctl[hf]' to fetch it"
        ) from None
    try:
        return Path(
            snapshot_download(name, allow_patterns=[CONFIG, WHOLE, INDEX, "*.safetensors", TOKENIZER])
        )
    except Exception as error:  # noqa: BLE001  (the hub raises what its transport raises)
        first = str(error).strip().splitlines()
        why = first[0] if first else type(error).__name__
        raise AttnError(f"{name}: no such file or folder, and the hub does not give it: {why}") from None


# --- from a text to ids, by the tokenizer.json that stands beside the model ---


@dataclass(frozen=True)
class Tokens:
    """The ids of a text, a label for each, the segment each is in, and what was done to get them.

    `special` are the places of tokens that stand for no text ([CLS], <s>, …).
    """

    ids: list[int]
    labels: list[str]
    segments: list[int]
    special: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = None


def plain_ids(ids: Sequence[int]) -> Tokens:
    """Ids that are given; each is its own label. Raises AttnError where there are none, or others."""
    wrong = [
        f"ids: {quote(str(number))} is no whole number"
        for number in ids
        if not isinstance(number, Integral)
    ]
    raise_all(wrong or ([] if ids else ["ids: none; give one or more"]))
    ids = [int(number) for number in ids]
    return Tokens(ids, [str(number) for number in ids], [0] * len(ids))


class Words:
    """The tokenizer of a model, read once for many texts.

    Truncation and padding that tokenizer.json brings are switched off, and that is noted. Raises
    AttnError where there is no tokenizer, or `tokenizers` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(folder)
        self.labels: dict[tuple[int, str], str] = {}
        notes = []
        for word, setting, switch in (
            ("truncates", self.tokenizer.truncation, self.tokenizer.no_truncation),
            ("pads", self.tokenizer.padding, self.tokenizer.no_padding),
        ):
            if setting:
                switch()
                length = setting.get("max_length", setting.get("length"))
                notes.append(f"{word} to {length}" if length else f"{word} to the longest")
        self.notes = (f"{TOKENIZER} {' and '.join(notes)}; that is switched off",) if notes else ()

    def tokens(self, text: str, pair: str | None = None) -> Tokens:
        """The tokens of a text, or of two for models that take a pair. Raises AttnError for none."""
        found = self.tokenizer.encode(text, pair) if pair is not None else self.tokenizer.encode(text)
        if not found.ids:
            raise AttnError(f"sentence: no tokens in {text!r}; give words")
        labels = list(map(self.label, found.ids, found.tokens))
        special = tuple(place for place, flag in enumerate(found.special_tokens_mask) if flag)
        whole = text if pair is None else f"{text} / {pair}"
        return Tokens(list(found.ids), labels, list(found.type_ids), special, self.notes, whole)

    def label(self, number: int, token: str) -> str:
        """A token's text without the space before it, or its name in the vocabulary."""
        if (number, token) not in self.labels:
            text = str(self.tokenizer.decode([number], skip_special_tokens=False))
            readable = text.strip() and "\ufffd" not in text
            self.labels[number, token] = text.strip() if readable else token
        return self.labels[number, token]


def load_tokenizer(folder: Path) -> Any:
    if not (folder / TOKENIZER).is_file():
        raise AttnError(f"{folder}: no {TOKENIZER}; give the ids of tokens instead: --ids 1,2,3")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise AttnError(
            "tokenizers is not installed; pip install 'attnctl[hf]', or give the ids of tokens: --ids 1,2,3"
        ) from None
    path = inside(folder, TOKENIZER)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  (tokenizers raises plain Exception)
        raise AttnError(f"{path}: not a tokenizer: {error}") from None

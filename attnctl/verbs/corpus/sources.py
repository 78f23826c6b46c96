"""The attention weights of sentences: those of a trained model, or of a run as settings have it.

Either says what its numbers depend on (`identity`), cuts a line into tokens (`take`: how many they are, and
what it needs of them later), and gives the weights of each layer for sentences of one length (`layers`, of
what it took, by line), as many as it works on together (`at_once`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.inputs.config.settings import Random, Settings
from attnctl.inputs.plan.sentence import tokens_of, vocabulary
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.store.files import json_text
from attnctl.verbs.corpus import bad_for
from attnctl.verbs.stats.tally import Sentences, places_of, weights_of

CHUNK = 2**20
MOST_ROWS = 2**9  # tokens whose runs are prepared together


def file_hash(path: Path) -> str:
    digest = sha256()
    with refuse_os_errors(path), open_found(path) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def load_model(name: str) -> TrainedModel:
    """The model of this name, read once by a process for all its shards, unless its files change."""
    from attnctl.models.source import files_of

    return open_model(name, tuple((str(file), *signature(file)) for file in files_of(name)))


def signature(path: Path) -> tuple[int, int]:
    """A file's size and the time it was written, which change when it does; (0, 0) where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1)
def open_model(name: str, files: tuple[tuple[str, int, int], ...]) -> TrainedModel:
    return TrainedModel(name, [file for file, *_ in files])


class TrainedModel:
    def __init__(self, name: str, files: Sequence[str]) -> None:
        from attnctl.models.source import Words, folder_of, open_model

        self.folder = folder_of(name)
        self.files = files
        self.model = open_model(name)
        self.words = Words(self.folder)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The family, and hashes of config and tensors and of the tokenizer."""
        from attnctl.models.source import TOKENIZER, tokenizer_file

        paths = [Path(file) for file in self.files]
        files = {path.name: file_hash(path) for path in paths if path.name != TOKENIZER}
        return {
            "model": {"family": self.model.description.family, "sha256": text_hash(files)},
            "tokenizer": {"sha256": file_hash(tokenizer_file(self.folder))},
            "dtype": self.model.dtype,
        }

    def take(self, text: str) -> tuple[int, tuple[list[str], Array]]:
        from attnctl.models.forward import embed_ids, require_length

        with bad_for("no tokens"):
            tokens = self.words.tokens(text)
        with bad_for("too long for the model"):
            require_length(self.model, len(tokens.ids))
        with bad_for("unknown tokens"):
            starts = embed_ids(self.model, tokens.ids, tokens.segments)
        return len(tokens.ids), (tokens.labels, starts)

    def at_once(self, count: int) -> int:
        """As many as keep their numbers to themselves."""
        from attnctl.models.forward import together

        return together(self.model, count)

    def layers(self, batch: Mapping[int, Any]) -> Iterator[tuple[Array, Sentences]]:
        from attnctl.models.forward import weights_of_layers

        labels, starts = zip(*batch.values(), strict=True)
        sentences = Sentences(list(batch), labels, labels)
        for weights in weights_of_layers(self.model, starts):
            yield weights, sentences


@dataclass(frozen=True)
class DrawnAttention:
    """Attention as settings have it, given or drawn weights: what `attnctl run` does of a sentence."""

    settings: Settings

    @property
    def identity(self) -> dict[str, Any]:
        """Hashes of the settings, with the files they name, and of how sentences are cut."""
        written = self.settings.with_(sentence=None).to_dict()
        tokenizer = {name: written.get(name) for name in ("tokenizer", "vocab")}
        model = {name: value for name, value in written.items() if name not in tokenizer}
        files = [file_hash(Path(path)) for path in sorted(set(files_in(written)))]
        return {
            "model": {"family": "settings", "sha256": text_hash([model, files])},
            "tokenizer": {"sha256": text_hash(tokenizer)},
            "dtype": self.settings.dtype,
        }

    def take(self, text: str) -> tuple[int, str]:
        with bad_for("no tokens"):
            tokens = tokens_of(self.settings, text)
        with bad_for("unknown tokens"):
            vocabulary(self.settings, [tokens])
        return len(tokens), text

    def at_once(self, count: int) -> int:
        """Many where a token's row does not depend on other sentences: its weights are then read once."""
        embeddings = self.settings.embeddings
        is_drawn_by_token = isinstance(embeddings, Random) and not embeddings.legacy
        has_vocabulary = self.settings.vocab is not None or isinstance(embeddings, Mapping)
        if not is_drawn_by_token and not has_vocabulary:
            return 1
        return max(1, MOST_ROWS // count)

    def layers(self, batch: Mapping[int, str]) -> Iterator[tuple[Array, Sentences]]:
        from attnctl.inputs.plan.sentence import prepare_all

        traces = [plan.run([WEIGHTS]) for plan in prepare_all(self.settings, [*batch.values()])]
        weights = np.concatenate(list(map(weights_of, traces)))
        places = places_of(traces[0], weights[:1].shape)
        tokens = [trace.tokens or [] for trace in traces]
        keys = [trace.key_tokens or [] for trace in traces]
        start = places[0] if places else None
        yield weights, Sentences(list(batch), tokens, keys, start=start)


def files_in(written: Any) -> Iterator[str]:
    """The files that settings name, wherever they do: {file: …}."""
    if isinstance(written, list):
        for value in written:
            yield from files_in(value)
    if not isinstance(written, dict):
        return

    for name, value in written.items():
        if name == "file" and isinstance(value, str):
            yield value
        else:
            yield from files_in(value)


def text_hash(data: Any) -> str:
    return sha256(json_text(data).encode("utf-8", "surrogatepass")).hexdigest()

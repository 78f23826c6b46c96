"""From a text to the ids of a model, by the tokenizer.json that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import quote
from attnctl.models.tensors import inside

TOKENIZER = "tokenizer.json"


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
        f"ids: {quote(str(each))} is no whole number" for each in ids if not isinstance(each, Integral)
    ]
    raise_all(wrong or ([] if ids else ["ids: none; give one or more"]))
    ids = [int(each) for each in ids]
    return Tokens(ids, [str(each) for each in ids], [0] * len(ids))


def tokenize_text(folder: Path, text: str, pair: str | None = None) -> Tokens:
    """The tokens of a text, or of two for models that take a pair.

    Truncation and padding that tokenizer.json brings are switched off, and that is noted. Raises
    AttnError where there is no tokenizer, or `tokenizers` is not installed.
    """
    return Words(folder).tokens(text, pair)


class Words:
    """The tokenizer of a model, read once for many texts.

    Raises AttnError where there is none, or `tokenizers` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load(folder)
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
        """The tokens of a text, or of two. Raises AttnError where there are none."""
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


def load(folder: Path) -> Any:
    """The tokenizer of a model."""
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

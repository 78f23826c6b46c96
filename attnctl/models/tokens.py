"""From a text to the ids of a model, by the tokenizer.json that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnctl.errors import AttnError
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
    """Ids that are given; each is its own label."""
    return Tokens(list(ids), [str(each) for each in ids], [0] * len(ids))


def tokenized(folder: Path, text: str, pair: str | None = None) -> Tokens:
    """The tokens of a text, or of two for models that take a pair.

    Truncation and padding that tokenizer.json brings are switched off, and that is noted. Raises
    AttnError where there is no tokenizer, or `tokenizers` is not installed.
    """
    tokenizer = load(folder)
    notes = []
    for word, setting, switch in (
        ("truncates", tokenizer.truncation, tokenizer.no_truncation),
        ("pads", tokenizer.padding, tokenizer.no_padding),
    ):
        if setting:
            switch()
            length = setting.get("max_length", setting.get("length"))
            notes.append(f"{word} to {length}" if length else f"{word} to the longest")
    found = tokenizer.encode(text, pair) if pair is not None else tokenizer.encode(text)
    if not found.ids:
        raise AttnError(f"sentence: no tokens in {text!r}; give words")
    labels = [
        label(tokenizer, number, token) for number, token in zip(found.ids, found.tokens, strict=True)
    ]
    special = tuple(place for place, flag in enumerate(found.special_tokens_mask) if flag)
    said = (f"{TOKENIZER} {' and '.join(notes)}; that is switched off",) if notes else ()
    whole = text if pair is None else f"{text} / {pair}"
    return Tokens(list(found.ids), labels, list(found.type_ids), special, said, whole)


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


def label(tokenizer: Any, number: int, token: str) -> str:
    """What a token is called: its text without the space before it, or its name in the vocabulary."""
    text = str(tokenizer.decode([number], skip_special_tokens=False))
    return text.strip() if text.strip() and "\ufffd" not in text else token

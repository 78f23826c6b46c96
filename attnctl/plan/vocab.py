"""From a sentence to token ids: toy tokenizers and a toy vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

PAD = "[PAD]"
UNK = "[UNK]"

WORDS = re.compile(r"\[[A-Z]+\]|[^\W_]+(?:['’][^\W_]+)*|\S")
"""A special token, a word (apostrophes inside stay), or one mark of punctuation."""


def tokenize(sentence: str, split: str = "whitespace", *, lowercase: bool = False) -> list[str]:
    """Cut a sentence at whitespace, into words and punctuation, or into characters."""
    text = sentence.lower() if lowercase else sentence
    match split:
        case "whitespace":
            return text.split()
        case "words":
            return WORDS.findall(text)
        case "characters":
            return list(text)
    raise ValueError(f"unknown split {split!r}")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id: token i has id i."""

    tokens: tuple[str, ...]

    @classmethod
    def grown(cls, sentences: Iterable[Iterable[str]]) -> Vocabulary:
        """The tokens of these sentences in order of first appearance."""
        return cls(tuple(dict.fromkeys(token for sentence in sentences for token in sentence)))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def index(self) -> dict[str, int]:
        """The id of each token."""
        return {token: i for i, token in enumerate(self.tokens)}

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token; one that is not there gets [UNK]'s.

        Raises KeyError where there is no [UNK] either: ask for `unknown` tokens first.
        """
        return [self.index[token] if token in self.index else self.index[UNK] for token in tokens]

    def unknown(self, tokens: Iterable[str]) -> list[str]:
        """The tokens that have no id, each once; none where the vocabulary has [UNK]."""
        if UNK in self.index:
            return []
        return [token for token in dict.fromkeys(tokens) if token not in self.index]

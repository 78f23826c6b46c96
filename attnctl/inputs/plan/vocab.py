"""From a sentence to token ids: toy tokenizers and a toy vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from attnctl.base.dataclass import dataclass

PAD = "[PAD]"
UNK = "[UNK]"

WORDS = re.compile(r"\[[A-Z]+\]|[^\W_]+(?:['’][^\W_]+)*|\S")
"""A special token, a word (apostrophes inside stay), or one mark of punctuation."""

CHARACTERS = re.compile(rf"{re.escape(PAD)}|.", re.DOTALL)


def tokenize(sentence: str, split: str = "whitespace", *, lowercase: bool = False) -> list[str]:
    """Cut a sentence at whitespace, into words and punctuation, or into characters; [PAD] stays whole."""
    text = PAD.join(part.lower() for part in sentence.split(PAD)) if lowercase else sentence
    match split:
        case "whitespace":
            return text.split()
        case "words":
            return WORDS.findall(text)
        case "characters":
            return CHARACTERS.findall(text)
    raise ValueError(f"unknown split {split!r}")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id: token i has id i. Padding that is not among them has the next id after all."""

    tokens: tuple[str, ...]

    @classmethod
    def grown(cls, sentences: Iterable[Iterable[str]]) -> Vocabulary:
        """The tokens of these sentences in order of first appearance, padding left out."""
        seen = dict.fromkeys(token for sentence in sentences for token in sentence)
        seen.pop(PAD, None)
        return cls(tuple(seen))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def index(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token; one that is not there gets [UNK]'s.

        Raises KeyError where there is no [UNK] either: ask for `unknown` tokens first.
        """
        return [self.id(token) for token in tokens]

    def id(self, token: str) -> int:
        """The id of a token. Raises KeyError for an unknown one where there is no [UNK]."""
        if token in self.index:
            return self.index[token]
        return len(self) if token == PAD else self.index[UNK]

    def unknown_among(self, tokens: Iterable[str]) -> list[str]:
        """The tokens that have no id, each once; none where the vocabulary has [UNK]."""
        if UNK in self.index:
            return []
        return [token for token in dict.fromkeys(tokens) if token not in self.index and token != PAD]

"""From a sentence to the rows of X: toy tokenizers, a vocabulary, ids, embeddings, positions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import dims, nearest, one_of
from attnctl.inputs.config.settings import IDENTITY, SINUSOIDAL, FromFile, Random, Settings
from attnctl.inputs.config.sizes import adds_positions
from attnctl.inputs.plan.tensors import Named, description, draw_numbers, first_given, from_file, token_rows
from attnctl.math import Array, Shape
from attnctl.math.kind import documents_in
from attnctl.math.names import EMBEDDINGS, MEMORY, POSITIONS
from attnctl.math.ops import Sinusoid


def tokens_of(settings: Settings, sentence: str, name: str = "sentence") -> list[str]:
    how = settings.tokenizer
    tokens = tokenize(sentence, how.split, lowercase=how.lowercase)
    if not tokens:
        place = settings.where((name,))
        raise AttnError(f'{place}: no tokens in {sentence!r}; give words, like "I love AI"')
    return tokens


def vocabulary(settings: Settings, sentences: Sequence[Sequence[str]]) -> Vocabulary:
    """The vocabulary given, alone or by embeddings, else grown. Raises AttnError for unknown tokens."""
    if settings.vocab is not None:
        vocab, place = Vocabulary(settings.vocab), settings.where(("vocab",))
    elif isinstance(settings.embeddings, Mapping):
        vocab, place = Vocabulary(tuple(settings.embeddings)), settings.where(("embeddings",))
    else:
        return Vocabulary.grown(sentences)
    there = {*vocab.index, PAD}
    tokens = dict.fromkeys(token for sentence in sentences for token in sentence)
    unknown = [token for token in tokens if token not in there and UNK not in there]
    raise_all(f"{place}: unknown token {token!r}; {hint(vocab, token)}" for token in unknown)
    return vocab


def hint(vocab: Vocabulary, token: str) -> str:
    near = nearest(token, vocab.tokens, cutoff=0.4)
    instead = f"did you mean {one_of(map(repr, near))}? Or " if near else ""
    return f"{instead}add it, or an [UNK], to the vocabulary"


def d_model_of(settings: Settings, vocab: Vocabulary) -> int | None:
    """d_model, where the embeddings themselves say it."""
    if isinstance(settings.embeddings, Mapping):
        return len(next(iter(settings.embeddings.values()), ()))
    table = table_by_id(settings, vocab)
    return None if table is None else table.shape[-1]


def table_by_id(settings: Settings, vocab: Vocabulary) -> Array | None:
    """The embeddings that are written with a row for each id of the vocabulary; None where they are not."""
    match settings.embeddings:
        case "identity":
            return np.eye(len(vocab))
        case FromFile() as source:
            return from_file(source, settings.where(("embeddings",)))
        case list(rows):
            return np.array(rows, dtype=np.float64)
    return None


def embeddings(
    settings: Settings, vocab: Vocabulary, tokens: Iterable[str], d_model: int
) -> tuple[dict[str, Array], str]:
    """The row of each token, and how it came about; zeros for padding. Raises AttnError for misfits."""
    wanted = list(dict.fromkeys(tokens))
    words = [token for token in wanted if token != PAD or pad_is_given(settings, vocab)]
    rows, how = word_rows(settings, vocab, words, d_model)
    return {token: rows[token] if token in rows else np.zeros(d_model) for token in wanted}, how


def pad_is_given(settings: Settings, vocab: Vocabulary) -> bool:
    """True if the embeddings have a row for [PAD]: nothing is drawn for it."""
    match settings.embeddings:
        case Random() as how:
            return how.legacy and PAD in vocab.index
        case Mapping() as by_token:
            return PAD in by_token
    return PAD in vocab.index


def word_rows(
    settings: Settings, vocab: Vocabulary, words: Sequence[str], d_model: int
) -> tuple[dict[str, Array], str]:
    """The row of each of these words, none twice, and how the rows came about."""
    ids = dict(zip(words, vocab.ids(words), strict=True))
    table, said = table_by_id(settings, vocab), "E[ids]"
    match settings.embeddings:
        case Random() as how:
            seed = first_given(how.seed, settings.seed)
            said = f"E[ids], {description(how, seed)}"
            if not how.legacy:
                rows = token_rows(seed, [vocab.tokens[i] for i in ids.values()], d_model, how.distribution)
                return dict(zip(words, rows, strict=True)), said
            shape = (len(vocab), d_model)
            table = draw_numbers(np.random.RandomState(seed), shape, how.distribution, d_model)
        case Mapping() as by_token:
            place = settings.where(("embeddings",))
            raise_all(
                f"{place}: no row for {token!r}, which the vocabulary has; add one"
                for token in (vocab.tokens[i] for i in ids.values())
                if token not in by_token
            )
            return {token: np.array(by_token[vocab.tokens[i]]) for token, i in ids.items()}, said
        case "identity":
            said = f"E[ids], {IDENTITY}"
    assert table is not None
    if len(table) != len(vocab):
        raise AttnError(
            f"{settings.where(('embeddings',))}: {dims(table.shape)}, expected a row for each of the "
            f"{len(vocab)} tokens of the vocabulary"
        )
    return {token: table[i] for token, i in ids.items()}, said


def embeddings_needed(settings: Settings, vocab: Vocabulary, ids: Iterable[int]) -> dict[str, Any]:
    """What a config must say for these ids: of embeddings by token their rows, of those by id all."""
    tokens = [vocab.tokens[i] for i in sorted(set(ids)) if i < len(vocab)] or [PAD]
    match settings.embeddings:
        case Random() as how if not how.legacy:
            return {"vocab": tokens}
        case Mapping() as by_token:
            rows = {token: row for token, row in by_token.items() if token in {*tokens, PAD}}
            return {"vocab": tokens, "embeddings": rows}
    return {"vocab": list(vocab.tokens)}


def with_positions(named: Named, settings: Settings, past: int = 0, *, memory: bool = True) -> Named:
    """The arrays with learned positions after `past` rows, and a `memory` without any with its own."""
    if not adds_positions(settings):
        return named
    out = dict(named)
    if settings.positions != SINUSOIDAL:
        out[POSITIONS] = position_rows(settings, named[EMBEDDINGS][0].shape, past), "learned table"
    if memory and MEMORY in named:
        array, how = named[MEMORY]
        out[MEMORY] = array + position_rows(settings, array.shape, past), how
    return out


def position_rows(settings: Settings, shape: Shape, past: int = 0) -> Array:
    """The positions of rows that follow `past` others, (n, d_model). Raises AttnError for too few."""
    *_, length, d_model = shape
    rows = Sinusoid(length, d_model, past, documents_in(settings))
    if settings.positions == SINUSOIDAL:
        return rows.apply()
    table = np.array(settings.positions, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != d_model or len(table) <= rows.places.max():
        raise AttnError(
            f"{settings.where(('positions', 'learned'))}: {dims(table.shape)}, expected at least "
            f"{rows.places.max() + 1} rows of d_model {d_model}"
        )
    return table[rows.places]


PAD, UNK = "[PAD]", "[UNK]"

WORDS = r"\[[A-Z]+\]|[^\W_]+(?:['’][^\W_]+)*|\S"
"""A special token, a word (apostrophes inside stay), or one mark of punctuation."""


def text_queries(tokens: Sequence[str] | None, count: int) -> Array:
    """Which queries are text: weights of padding say nothing of a head. All of them where none is."""
    found = np.array([token != PAD for token in tokens or ()], bool)
    return found if len(found) == count and found.any() else np.ones(count, bool)


CHARACTERS = rf"(?s){re.escape(PAD)}|."


def tokenize(sentence: str, split: str = "whitespace", *, lowercase: bool = False) -> list[str]:
    """Cut a sentence at whitespace, into words and punctuation, or into characters; [PAD] stays whole."""
    text = PAD.join(part.lower() for part in sentence.split(PAD)) if lowercase else sentence
    match split:
        case "whitespace":
            return text.split()
        case "words":
            return re.findall(WORDS, text)
        case "characters":
            return re.findall(CHARACTERS, text)
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
        """The id of each token; one that is not there gets [UNK]'s. Raises KeyError without one."""
        known = {PAD: len(self)} | self.index
        return [known[token if token in known else UNK] for token in tokens]

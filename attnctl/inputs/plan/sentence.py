"""From a sentence to its plan: toy tokenizers, a vocabulary, ids, embeddings, positions; what all share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import dims, nearest, one_of
from attnctl.inputs.config.settings import IDENTITY, LENGTHS, NONE, SINUSOIDAL, FromFile, Random, Settings
from attnctl.inputs.config.sizes import (
    OPTIONS,
    adds_positions,
    given_places,
    misplaced,
    resolve,
    unmeant_cache,
    written_masks,
    written_places,
)
from attnctl.inputs.plan import PAD, LearnedTable, Plan, plan_of, tensors, variant, what_if_of, with_padding
from attnctl.inputs.plan.tensors import Named, description, draw_numbers, first_given, from_file, token_rows
from attnctl.math import Array, Shape, Sizes
from attnctl.math.derivation import Variant
from attnctl.math.engine.cost import require
from attnctl.math.kind import documents_in
from attnctl.math.names import EMBEDDINGS, MEMORY, POSITION_IDS, POSITIONS, W_O, shape_in
from attnctl.math.ops import Sinusoid
from attnctl.math.rules import Padding, Rule, VisibilityRule

if TYPE_CHECKING:
    from attnctl.math.ops.vectors import GivenPlaces
    from attnctl.record.edits import WhatIf


@dataclass(frozen=True)
class Common:
    """All that the sentences of one run share: sizes, vocabulary, rows of tokens, weights."""

    settings: Settings
    vocab: dict[str, int]
    sizes: Sizes
    embedded: TokenRows
    weights: Named
    config: dict[str, Any]
    """The settings in the form of a config, with everything that was left open written down."""
    what_if: WhatIf | None
    kinds: dict[tuple[int, tuple[Rule, ...]], Variant] = field(default_factory=dict)
    """The kinds of attention so far: sentences of one length and the same padding have the same."""

    def embed(self, tokens: Iterable[str]) -> Array:
        return np.array([self.embedded.rows[token] for token in tokens])


class TokenRows(NamedTuple):
    """The embedding of each token, and how they came about."""

    rows: Mapping[str, Array]
    origin: str


def prepare(settings: Settings, sentence: str | None = None) -> Plan:
    return prepare_all(settings, [] if sentence is None else [sentence])[0]


def prepare_all(settings: Settings, sentences: Sequence[str] = ()) -> list[Plan]:
    """Everything a run of each sentence needs, with one vocabulary and the same weights for all.

    No sentence means the settings' own. Raises AttnError with every problem of the stage that found
    one: the words, the sizes, the matrices.
    """
    if not sentences and settings.sentence is not None:
        sentences = [settings.sentence]
    if not sentences:
        where = settings.where(("sentence",))
        place = f"{where}: " if where.endswith("$.sentence") else ""
        raise AttnError(
            f'{place}no sentence; give one, like "I love AI", a config that has one, or - to read stdin'
        )
    raise_all(unmeant_cache((), settings))

    settings = tensors.with_file(settings)
    tokenized = [tokens_of(settings, sentence) for sentence in sentences]
    context = tokens_of(settings, settings.context, "context") if settings.context is not None else []
    common = common_to(settings, tokenized, context)
    return [
        prepare_sentence(common, sentence, tokens, context)
        for sentence, tokens in zip(sentences, tokenized, strict=True)
    ]


def common_to(settings: Settings, sentences: Sequence[list[str]], context: list[str]) -> Common:
    vocab = vocabulary(settings, [*sentences, context])
    given_weights = tensors.given_arrays(settings)
    shapes = {path: array.shape for path, array in given_weights.items()}
    sizes = resolve(settings, d_model_of(settings, vocab), shapes)
    tokens = dict.fromkeys(chain(*sentences, context))
    require_memory(settings, sizes, rows=max(len(tokens), *map(len, sentences)))

    embedded = embeddings(settings, vocab, tokens, sizes["d_model"])
    weights = tensors.resolve(settings, sizes, given_weights)

    written = settings.weights
    if W_O not in weights:
        written = replace(written, tensors={**written.tensors, W_O: NONE})
    stated = {option: sizes[axis] for axis, option in OPTIONS.items()}
    config = settings.with_(sentence="", vocab=(), weights=written, **stated).to_dict()

    return Common(
        settings=settings,
        vocab=vocab,
        sizes=sizes,
        embedded=embedded,
        weights=weights,
        config=config,
        what_if=what_if_of(settings),
    )


def require_memory(settings: Settings, sizes: Sizes, *, rows: int) -> None:
    """Refuse a run whose weights, or so many rows of embeddings, do not fit, before any is drawn."""
    of_weights = sum(prod(shape_in(row.own, sizes)) for row in tensors.weights_needed(settings))
    numbers = of_weights + rows * sizes["d_model"]
    require(8 * numbers, "the embeddings and weights", settings.max_memory)  # float64: they are drawn so


def prepare_sentence(common: Common, text: str, tokens: list[str], context: list[str]) -> Plan:
    settings = common.settings
    keys = context or tokens
    ids = ids_of(tokens, common.vocab)
    key_ids = ids_of(context, common.vocab)

    named: Named = {EMBEDDINGS: (common.embed(tokens), common.embedded.origin)}
    if context:
        named[MEMORY] = common.embed(context), "X of the context"
    places = places_of(settings, tokens, context)
    named = with_positions(named, settings, places=places) | common.weights
    named |= masks(settings, common.sizes, queries=len(tokens), keys=len(keys))

    header: dict[str, Any] = {"sentence": text, "tokens": tokens, "ids": ids}
    if context:
        header |= {"context": settings.context, "key_tokens": context, "key_ids": key_ids}
    if any(isinstance(rule, VisibilityRule) and rule.relative for rule in settings.rules):
        header["causal_offset"] = settings.causal_offset or 0

    needed = embeddings_needed(settings, common.vocab, [*ids, *key_ids])
    config = common.config | {"sentence": text, **needed}
    if PAD in keys and Padding not in map(type, settings.rules):
        config["rules"] = [*config["rules"], Padding.name]
    header["config"] = config

    kind = kind_of(common, named, tokens, keys)
    return plan_of(kind, named, header, settings, common.what_if)


def masks(settings: Settings, sizes: Sizes, *, queries: int, keys: int) -> Named:
    """The mask and the bias that are written out. Raises AttnError for a shape that does not fit."""
    fitting = {(queries, keys), (1, keys), (queries, 1), (sizes["head"], queries, keys)}
    named: Named = {}
    for name, array in written_masks(settings).items():
        if array.shape not in fitting:
            place = settings.where(("rules", name))
            raise AttnError(f"{place}: {dims(array.shape)}, expected {queries} × {keys} (query × key)")
        named[name] = array, "given"
    return named


def kind_of(common: Common, named: Named, tokens: Sequence[str], keys: Sequence[str]) -> Variant:
    settings = common.settings
    rules = with_padding(settings.rules, keys=keys)
    known = common.kinds.get((len(tokens), rules))
    if known is not None:
        return known

    if settings.causal_offset == LENGTHS:
        place = settings.where(("causal_offset",))
        raise AttnError(f"{place}: a sentence comes without key_lengths; write a number of keys")

    padded = settings.with_(rules=rules)
    sizes = {**common.sizes, "query": len(tokens), "key": len(keys)}
    places = given_places(written_places(settings), sizes)
    kind = variant(padded, sizes, named, int(settings.causal_offset or 0), places=places)
    common.kinds[len(tokens), rules] = kind
    return kind


def places_of(settings: Settings, tokens: Sequence[str], context: Sequence[str]) -> GivenPlaces:
    """The positions that a config gives the tokens. Raises AttnError for those that do not fit."""
    sizes = {"query": len(tokens), "key": len(context or tokens)}
    place = settings.where((POSITION_IDS,))
    if settings.position_ids is not None and context:
        raise AttnError(f"{place}: they do not say where the context's tokens stand; leave one of them out")

    try:
        places = given_places(written_places(settings), sizes)
    except AttnError as error:
        raise AttnError(f"{place}: {error.problems[0].partition(': ')[2]}") from None
    raise_all(misplaced(settings, sizes, places))
    return places


def pad_batch(settings: Settings, sentences: Sequence[str]) -> tuple[Settings, list[str]]:
    """Fill sentences up with [PAD], with padding among the rules, as a batch has them."""
    counts = [len(tokens_of(settings, sentence)) for sentence in sentences]
    longest = max(counts)
    separator = "" if settings.tokenizer.split == "characters" else " "

    filled = []
    for sentence, count in zip(sentences, counts, strict=True):
        padding = [PAD] * (longest - count)
        filled.append(separator.join([sentence, *padding]))

    if Padding not in map(type, settings.rules):
        settings = settings.with_(rules=(*settings.rules, Padding()))
    return settings, filled


# --- tokens, their ids and their rows ---

UNK = "[UNK]"

WORDS = r"\[[A-Z]+\]|[^\W_]+(?:['’][^\W_]+)*|\S"
"""A special token, a word (apostrophes inside stay), or one mark of punctuation."""


def text_queries(tokens: Sequence[str] | None, count: int) -> Array:
    """Which queries are text: weights of padding say nothing of a head. All of them where none is."""
    is_text = np.array([token != PAD for token in tokens or ()], bool)
    if len(is_text) == count and is_text.any():
        return is_text
    return np.ones(count, bool)


def tokenize(sentence: str, split: str = "whitespace", *, lowercase: bool = False) -> list[str]:
    """Cut a sentence at whitespace, into words and punctuation, or into characters; [PAD] stays whole."""
    text = sentence
    if lowercase:
        text = PAD.join(part.lower() for part in sentence.split(PAD))

    match split:
        case "whitespace":
            return text.split()
        case "words":
            return re.findall(WORDS, text)
        case "characters":
            return re.findall(rf"(?s){re.escape(PAD)}|.", text)
    raise ValueError(f"unknown split {split!r}")


def tokens_of(settings: Settings, sentence: str, name: str = "sentence") -> list[str]:
    how = settings.tokenizer
    tokens = tokenize(sentence, how.split, lowercase=how.lowercase)
    if not tokens:
        place = settings.where((name,))
        raise AttnError(f'{place}: no tokens in {sentence!r}; give words, like "I love AI"')
    return tokens


def vocabulary(settings: Settings, sentences: Sequence[Sequence[str]]) -> dict[str, int]:
    """The id of each token: of the vocabulary given, alone or by embeddings, or else of the sentences.

    Padding that is not among them has the next id after all. Raises AttnError for unknown tokens.
    """
    tokens = dict.fromkeys(chain(*sentences))
    name = "vocab"
    known: Iterable[str] = (token for token in tokens if token != PAD)
    if settings.vocab is not None:
        known = settings.vocab
    elif isinstance(settings.embeddings, Mapping):
        known = settings.embeddings
        name = "embeddings"

    vocab = {token: number for number, token in enumerate(known)}
    if UNK in vocab:
        return vocab

    unknown = [token for token in tokens if token not in vocab and token != PAD]
    place = settings.where((name,)) if unknown else ""
    raise_all(f"{place}: unknown token {token!r}; {hint(vocab, token)}" for token in unknown)
    return vocab


def ids_of(tokens: Iterable[str], vocab: Mapping[str, int]) -> list[int]:
    """The id of each token; one that is not there gets [UNK]'s. Raises KeyError without one."""
    known = {PAD: len(vocab), **vocab}
    return [known[token if token in known else UNK] for token in tokens]


def hint(vocab: Iterable[str], token: str) -> str:
    near = nearest(token, vocab, cutoff=0.4)
    instead = f"did you mean {one_of(map(repr, near))}? Or " if near else ""
    return f"{instead}add it, or an [UNK], to the vocabulary"


def d_model_of(settings: Settings, vocab: Mapping[str, int]) -> int | None:
    """d_model, where the embeddings themselves say it."""
    if isinstance(settings.embeddings, Mapping):
        return len(next(iter(settings.embeddings.values()), ()))
    table = table_by_id(settings, vocab)
    return None if table is None else table.shape[-1]


def table_by_id(settings: Settings, vocab: Mapping[str, int]) -> Array | None:
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
    settings: Settings, vocab: Mapping[str, int], tokens: Iterable[str], d_model: int
) -> TokenRows:
    """The row of each token, and how it came about; zeros for padding. Raises AttnError for misfits."""
    wanted = list(dict.fromkeys(tokens))
    words = [token for token in wanted if token != PAD or pad_is_given(settings, vocab)]
    known = {word: word if word in vocab or word == PAD else UNK for word in words}

    table = table_by_id(settings, vocab)
    origin = "E[ids]"
    rows: dict[str, Array] = {}
    match settings.embeddings:
        case Random() as how:
            seed = first_given(how.seed, settings.seed)
            origin = f"E[ids], {description(how, seed)}"
            if how.legacy:
                shape = (len(vocab), d_model)
                table = draw_numbers(np.random.RandomState(seed), shape, how.distribution, d_model)
            else:
                drawn = token_rows(seed, [*known.values()], d_model, how.distribution)
                rows = dict(zip(words, drawn, strict=True))
        case Mapping() as by_token:
            place = settings.where(("embeddings",))
            lacking = [token for token in known.values() if token not in by_token]
            raise_all(
                f"{place}: no row for {token!r}, which the vocabulary has; add one" for token in lacking
            )
            rows = {word: np.array(by_token[token]) for word, token in known.items()}
        case "identity":
            origin = f"E[ids], {IDENTITY}"

    if table is not None:
        if len(table) != len(vocab):
            place = settings.where(("embeddings",))
            expected = f"a row for each of the {len(vocab)} tokens of the vocabulary"
            raise AttnError(f"{place}: {dims(table.shape)}, expected {expected}")
        rows = {word: table[vocab[token]] for word, token in known.items()}

    padded = {token: rows[token] if token in rows else np.zeros(d_model) for token in wanted}
    return TokenRows(padded, origin)


def pad_is_given(settings: Settings, vocab: Mapping[str, int]) -> bool:
    """True if the embeddings have a row for [PAD]: nothing is drawn for it."""
    match settings.embeddings:
        case Random() as how:
            return how.legacy and PAD in vocab
        case Mapping() as by_token:
            return PAD in by_token
    return PAD in vocab


def embeddings_needed(settings: Settings, vocab: Mapping[str, int], ids: Iterable[int]) -> dict[str, Any]:
    """What a config must say for these ids: of embeddings by token their rows, of those by id all."""
    every_token = list(vocab)
    numbers = sorted(set(ids))
    tokens = [every_token[number] for number in numbers if number < len(every_token)] or [PAD]

    match settings.embeddings:
        case Random() as how if not how.legacy:
            return {"vocab": tokens}
        case Mapping() as by_token:
            rows = {token: row for token, row in by_token.items() if token in {*tokens, PAD}}
            return {"vocab": tokens, "embeddings": rows}
    return {"vocab": every_token}


def with_positions(
    named: Named, settings: Settings, past: int = 0, *, memory: bool = True, places: GivenPlaces = ()
) -> Named:
    """The arrays with learned positions after `past` rows, and a `memory` without any with its own.

    Where positions are given, `places` are those of the tokens.
    """
    if not adds_positions(settings):
        return named
    out = dict(named)
    if settings.positions != SINUSOIDAL:
        embeddings_given, _ = named[EMBEDDINGS]
        rows = position_rows(settings, embeddings_given.shape, past, places)
        out[POSITIONS] = rows, "learned table"
    if memory and MEMORY in named:
        array, how = named[MEMORY]
        out[MEMORY] = array + position_rows(settings, array.shape, past), how
    return out


def learned_table(settings: Settings, shape: Shape, past: int, places: GivenPlaces) -> LearnedTable | None:
    """The table of learned positions, and which of its rows tokens have; None where there is none."""
    if not isinstance(settings.positions, list):
        return None
    *_, length, d_model = shape
    given = places[0][0] if places else ()
    read = Sinusoid(length, d_model, past, documents_in(settings), given).positions_of_rows
    return LearnedTable(np.array(settings.positions, dtype=np.float64), read)


def position_rows(settings: Settings, shape: Shape, past: int = 0, places: GivenPlaces = ()) -> Array:
    """The positions of rows that follow `past` others, (n, d_model). Raises AttnError for too few."""
    *_, length, d_model = shape
    given = places[0][0] if places else ()
    rows = Sinusoid(length, d_model, past, documents_in(settings), given)
    if settings.positions == SINUSOIDAL:
        return rows.apply()

    table = np.array(settings.positions, dtype=np.float64)
    last = rows.positions_of_rows.max()
    if given and min(given) < 0:
        place = settings.where((POSITION_IDS,))
        raise AttnError(f"{place}: {min(given)} is no row of the learned table; write 0 or more")
    if table.ndim != 2 or table.shape[1] != d_model or len(table) <= last:
        place = settings.where(("positions", "learned"))
        expected = f"at least {last + 1} rows of d_model {d_model}"
        raise AttnError(f"{place}: {dims(table.shape)}, expected {expected}")
    return table[rows.positions_of_rows]

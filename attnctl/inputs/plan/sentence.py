"""Runs of sentences: what each starts from, with what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import dims
from attnctl.inputs.config.settings import LENGTHS, NONE, Settings
from attnctl.inputs.config.sizes import OPTIONS, resolve, unmeant_cache, written_masks
from attnctl.inputs.plan import Plan, embed, plan_of, tensors, variant, what_if_of, with_padding
from attnctl.inputs.plan.embed import PAD, Vocabulary, tokens_of
from attnctl.inputs.plan.tensors import Named
from attnctl.math import Array, Sizes
from attnctl.math.derivation import Variant
from attnctl.math.engine.cost import require
from attnctl.math.names import EMBEDDINGS, MEMORY, W_O, shape_in
from attnctl.math.rules import Padding, Rule, VisibilityRule

if TYPE_CHECKING:
    from attnctl.record.edits import WhatIf


@dataclass(frozen=True)
class Common:
    """All that the sentences of one run share: sizes, vocabulary, rows of tokens, weights."""

    settings: Settings
    vocab: Vocabulary
    sizes: Sizes
    rows: Mapping[str, Array]  # the embedding of each token
    embedded: str  # how the embeddings came about
    weights: Named
    config: dict[str, Any]
    """The settings in the form of a config, with everything that was left open written down."""
    what_if: WhatIf | None
    kinds: dict[tuple[int, tuple[Rule, ...]], Variant] = field(default_factory=dict)
    """The kinds of attention so far: sentences of one length and the same padding have the same."""


def prepare(settings: Settings, sentence: str | None = None) -> Plan:
    return prepare_all(settings, [] if sentence is None else [sentence])[0]


def prepare_all(settings: Settings, sentences: Sequence[str] = ()) -> list[Plan]:
    """Everything a run of each sentence needs, with one vocabulary and the same weights for all.

    No sentence means the settings' own. Raises AttnError with every problem of the stage that found
    one: the words, the sizes, the matrices.
    """
    sentences = sentences or ([] if settings.sentence is None else [settings.sentence])
    if not sentences:
        where = settings.where(("sentence",))
        place = f"{where}: " if where.endswith("$.sentence") else ""
        raise AttnError(
            f'{place}no sentence; give one, like "I love AI", a config that has one, or - to read stdin'
        )
    raise_all(unmeant_cache((), settings))
    settings = tensors.with_file(settings)
    tokens = [embed.tokens_of(settings, sentence) for sentence in sentences]
    context = embed.tokens_of(settings, settings.context, "context") if settings.context is not None else []
    common = common_to(settings, tokens, context)
    pairs = zip(sentences, tokens, strict=True)
    return [prepare_sentence(common, text, own, context) for text, own in pairs]


def common_to(settings: Settings, sentences: Sequence[list[str]], context: list[str]) -> Common:
    vocab = embed.vocabulary(settings, [*sentences, context])
    given_weights = tensors.given_arrays(settings)
    shapes = {path: array.shape for path, array in given_weights.items()}
    sizes = resolve(settings, embed.d_model_of(settings, vocab), shapes)
    tokens = dict.fromkeys(chain(*sentences, context))
    most = max(len(tokens), *map(len, sentences))
    numbers = sum(prod(shape_in(row.own, sizes)) for row in tensors.weights_needed(settings))
    size = 8 * (numbers + most * sizes["d_model"])  # as float64: they are drawn so
    require(size, "the embeddings and weights", settings.max_memory)
    rows, how = embed.embeddings(settings, vocab, tokens, sizes["d_model"])
    weights = tensors.resolve(settings, sizes, given_weights)
    config = complete(settings, sizes, projected=W_O in weights).to_dict()
    return Common(settings, vocab, sizes, rows, how, weights, config, what_if_of(settings))


def prepare_sentence(common: Common, text: str, tokens: list[str], context: list[str]) -> Plan:
    settings, keys = common.settings, context or tokens
    ids, key_ids = common.vocab.ids(tokens), common.vocab.ids(context)
    named: Named = {EMBEDDINGS: (np.array([common.rows[token] for token in tokens]), common.embedded)}
    if context:
        named[MEMORY] = np.array([common.rows[token] for token in context]), "X of the context"
    named = embed.with_positions(named, settings) | common.weights
    named |= masks(settings, common.sizes, len(tokens), len(keys))
    header: dict[str, Any] = {"sentence": text, "tokens": tokens, "ids": ids}
    if context:
        header |= {"context": settings.context, "key_tokens": context, "key_ids": key_ids}
    if any(isinstance(rule, VisibilityRule) and rule.relative for rule in settings.rules):
        header["causal_offset"] = settings.causal_offset or 0
    needed = embed.embeddings_needed(settings, common.vocab, [*ids, *key_ids])
    config = common.config | {"sentence": text, **needed}
    if PAD in keys and Padding not in map(type, settings.rules):
        config["rules"] = [*config["rules"], Padding.name]
    kind = kind_of(common, named, tokens, keys)
    return plan_of(kind, named, header | {"config": config}, settings, common.what_if)


def masks(settings: Settings, sizes: Sizes, queries: int, keys: int) -> Named:
    named: Named = {}
    for name, array in written_masks(settings).items():
        if array.shape not in {(queries, keys), (1, keys), (queries, 1), (sizes["head"], queries, keys)}:
            place = settings.where(("rules", name))
            raise AttnError(f"{place}: {dims(array.shape)}, expected {queries} × {keys} (query × key)")
        named[name] = array, "given"
    return named


def kind_of(common: Common, named: Named, tokens: Sequence[str], keys: Sequence[str]) -> Variant:
    settings, sizes = common.settings, common.sizes
    rules = with_padding(settings.rules, keys=keys)
    if (len(tokens), rules) not in common.kinds:
        if settings.causal_offset == LENGTHS:
            place = settings.where(("causal_offset",))
            raise AttnError(f"{place}: a sentence comes without key_lengths; write a number of keys")
        asked, here = settings.with_(rules=rules), {**sizes, "query": len(tokens), "key": len(keys)}
        common.kinds[len(tokens), rules] = variant(asked, here, named, int(settings.causal_offset or 0))
    return common.kinds[len(tokens), rules]


def complete(settings: Settings, sizes: Sizes, *, projected: bool) -> Settings:
    """The settings with what was left open written down, W_O too, but for sentence and vocabulary."""
    weights = settings.weights
    if not projected:
        weights = replace(weights, tensors={**weights.tensors, W_O: NONE})
    return settings.with_(
        sentence="", vocab=(), weights=weights, **{option: sizes[axis] for axis, option in OPTIONS.items()}
    )


def pad_batch(settings: Settings, sentences: Sequence[str]) -> tuple[Settings, list[str]]:
    """Fill sentences up with [PAD], with padding among the rules, as a batch has them."""
    counts = [len(tokens_of(settings, sentence)) for sentence in sentences]
    between = "" if settings.tokenizer.split == "characters" else " "
    filled = [
        between.join([sentence, *[PAD] * (max(counts) - count)])
        for sentence, count in zip(sentences, counts, strict=True)
    ]
    own = () if Padding in map(type, settings.rules) else (Padding(),)
    return settings.with_(rules=(*settings.rules, *own)), filled

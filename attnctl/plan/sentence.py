"""A run of a sentence: gather what it starts from, and derive what follows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from attnctl.arrays.problems import rotary
from attnctl.arrays.reader import written_masks
from attnctl.config.settings import SINUSOIDAL, Settings
from attnctl.derivation import Variant
from attnctl.engine.memory import require
from attnctl.errors import AttnError
from attnctl.names import EMBEDDINGS, MEMORY, POSITIONS, where
from attnctl.ops import Sinusoid
from attnctl.plan import embed, tensors
from attnctl.plan.prepared import Named, Prepared, arrays_of, mask_axes, what_if_of
from attnctl.plan.sizes import Sizes, resolve
from attnctl.plan.vocab import Vocabulary
from attnctl.rules import VisibilityRule
from attnctl.words import dims


def prepare(settings: Settings, sentence: str | None = None, like: Prepared | None = None) -> Prepared:
    """Everything a run of one sentence needs; its weights are those of one `like` it, if there is one.

    Raises AttnError with every problem of the stage that found one: the words, the sizes, the
    matrices.
    """
    settings = tensors.with_file(settings)
    text = settings.sentence if sentence is None else sentence
    if text is None:
        raise AttnError('no sentence; give one, like "I love AI", or a config that has one')
    tokens = embed.tokens_of(settings, text)
    context = embed.tokens_of(settings, settings.context, "context") if settings.context is not None else []
    vocab = embed.vocabulary(settings, [tokens, context])
    given_weights = tensors.given_arrays(settings)
    shapes = {path: array.shape for path, array in given_weights.items()}
    sizes = resolve(settings, embed.shown_d_model(settings, vocab), shapes)
    require(weight_bytes(sizes, len(tokens)), "the embeddings and weights", settings.max_memory)
    named = sentence_arrays(settings, sizes, vocab, tokens, context)
    named |= weights_of(like) if like else tensors.resolve(settings, sizes, given_weights)
    named |= masks(settings, sizes, len(tokens), len(context or tokens))
    kind = variant(settings, sizes, named, len(tokens))
    header: dict[str, Any] = {"sentence": text, "tokens": tokens, "ids": vocab.ids(tokens)}
    if context:
        header |= {"context": settings.context, "key_tokens": context, "key_ids": vocab.ids(context)}
    if any(isinstance(rule, VisibilityRule) and rule.relative for rule in settings.rules):
        header["causal_offset"] = settings.causal_offset or 0
    header["config"] = complete(settings, sizes, vocab, text).to_dict()
    return Prepared(
        kind, arrays_of(named), header, settings.dtype, settings.max_memory, what_if_of(settings)
    )


def weights_of(other: Prepared) -> Named:
    """The weights of another sentence of the same settings, and how they came about."""
    weights = where(lambda row: row.is_weight)
    return {name: (other.given[name], other.variant.given[name]) for name in weights if name in other.given}


def weight_bytes(sizes: Sizes, tokens: int) -> int:
    """Bytes of the embeddings and the weights, as float64: they are drawn so."""
    weights = sum(
        prod(shape) for name, shape in tensors.fused_shapes(sizes).items() if name.startswith("W")
    )
    return 8 * (weights + tokens * sizes.d_model)


def sentence_arrays(
    settings: Settings, sizes: Sizes, vocab: Vocabulary, tokens: Sequence[str], context: Sequence[str]
) -> Named:
    """Embeddings, learned positions, and the other sentence's X as memory."""
    rows, how = embed.embeddings(settings, vocab, [*tokens, *context], sizes.d_model)
    named: Named = {EMBEDDINGS: (np.array([rows[token] for token in tokens]), how)}
    has_table = isinstance(settings.positions, list)
    if has_table:
        named[POSITIONS] = embed.learned(settings, tokens, sizes.d_model), "learned table"
    if context:
        memory = np.array([rows[token] for token in context])
        if has_table:
            memory = memory + embed.learned(settings, context, sizes.d_model)
        if settings.positions == SINUSOIDAL:
            memory = memory + Sinusoid(len(context), sizes.d_model).apply()
        named[MEMORY] = memory, "X of the context"
    return named


def masks(settings: Settings, sizes: Sizes, queries: int, keys: int) -> Named:
    """The mask and the bias that the config writes out, held to the scores' shape."""
    named: Named = {}
    for name, array in written_masks(settings).items():
        if array.shape not in {(queries, keys), (1, keys), (queries, 1), (sizes.heads, queries, keys)}:
            raise AttnError(
                f"{settings.where(('rules', name))}: {dims(array.shape)}, expected "
                f"{queries} × {keys} (query × key)"
            )
        named[name] = array, "given"
    return named


def variant(settings: Settings, sizes: Sizes, named: Named, length: int) -> Variant:
    """The kind of attention these settings ask for."""
    sinusoid = Sinusoid(length, sizes.d_model) if settings.positions == SINUSOIDAL else None
    return Variant(
        given={name: how for name, (_, how) in named.items()},
        d_k=sizes.d_k,
        kv_share=sizes.heads // sizes.kv_heads,
        scale=settings.scale,
        rules=settings.rules,
        sinusoid=sinusoid,
        rotary=rotary(settings),
        offset=settings.causal_offset or 0,
        axes=mask_axes(named),
    )


def complete(settings: Settings, sizes: Sizes, vocab: Vocabulary, sentence: str) -> Settings:
    """The same settings with everything that was left open written down."""
    return settings.with_(
        sentence=sentence,
        vocab=vocab.tokens,
        d_model=sizes.d_model,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        d_k=sizes.d_k,
        d_v=sizes.d_v,
    )

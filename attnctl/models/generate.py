"""Text that a model goes on with: a token at a time, keys and values of earlier ones kept in a cache.

A pass over the new row alone gives what a pass over all would: the derivation of a layer has the past keys
and values before its own, as it has for anyone's arrays. Where more than K and V goes on from row to row (a
state, K and V that layers share, a table of distances), or edits may name any row, all are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Progress
from attnctl.math.derivation import Rotary
from attnctl.math.names import RESIDUAL, X
from attnctl.models.architectures import open_gguf
from attnctl.models.attention import Past, prepare_attention
from attnctl.models.description import Description
from attnctl.models.forward import embed_ids, require_length, through
from attnctl.models.gguf import is_gguf
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.next import Pass, Ranked, begin_pass, log_sum_exp, logits_of
from attnctl.models.run import ModelInput, begin_run
from attnctl.models.source import CONFIG, Tokens, folder_of
from attnctl.models.stream import steps_to_keep
from attnctl.models.tensors import LONGEST_CONFIG, json_file, path_inside
from attnctl.record import Trace


@dataclass(frozen=True)
class Generating:
    """How many tokens, and how each is chosen: the likeliest, or drawn at a temperature."""

    count: int
    temperature: float | None = None
    seed: int = 0


class Chosen(NamedTuple):
    """A token that was chosen, and the position of the row whose logits it was chosen of."""

    at: int
    token: Ranked
    rank: int
    """How many are likelier."""
    rival: int
    """The likeliest of the others."""


@dataclass(frozen=True)
class Continuation:
    """A prompt with what a model goes on with."""

    tokens: Tokens
    chosen: tuple[Chosen, ...]
    ended: bool
    """Whether the last one ends the text."""
    trace: Trace
    """From what left the last layer, a row for each token, to the logits of those chosen and rivals."""


def generate(prompt: Pass, asked: Generating, moved: Progress | None = None) -> Continuation:
    """Raises AttnError for more tokens than there are places."""
    model = prompt.runner.model
    start = len(prompt.tokens.ids)
    require_length(model, start + asked.count)

    ends = ends_of(model.name)
    rows = GrowingRows(prompt)
    draw = np.random.RandomState(asked.seed)  # whose stream is frozen
    chosen: list[Chosen] = []
    tokens = prompt.tokens
    for number in range(asked.count):
        if moved:
            moved(number, asked.count)
        chosen.append(choose(prompt, rows.last(tokens), len(tokens.ids) - 1, asked, draw))
        tokens = with_token(tokens, chosen[-1].token)
        if chosen[-1].token.id in ends:
            break

    rows.last(tokens)  # the row of the last token
    return Continuation(
        tokens=tokens,
        chosen=tuple(chosen),
        ended=chosen[-1].token.id in ends,
        trace=trace_of(prompt, tokens, chosen, rows.hidden),
    )


def choose(prompt: Pass, row: Array, at: int, asked: Generating, draw: np.random.RandomState) -> Chosen:
    """The next token after a row that left the last layer."""
    (logits,) = logits_of(prompt, row[None])
    order = np.argsort(-logits, kind="stable")
    rank = 0
    if asked.temperature is not None:
        scaled = logits[order].astype(np.float64) / asked.temperature
        shares = np.cumsum(np.exp(scaled - scaled[0]))
        rank = int(np.searchsorted(shares, draw.random_sample() * shares[-1], side="right"))

    chosen = order[rank : rank + 1]
    (token,) = prompt.rank(chosen, logits[chosen], log_sum_exp(logits))
    rival = int(order[0] if rank else order[min(1, len(order) - 1)])
    return Chosen(at, token, rank, rival)


def with_token(tokens: Tokens, token: Ranked) -> Tokens:
    return replace(
        tokens,
        ids=[*tokens.ids, token.id],
        labels=[*tokens.labels, token.token],
        segments=[*tokens.segments, tokens.segments[-1]],
        text=None,
    )


def trace_of(prompt: Pass, tokens: Tokens, chosen: Sequence[Chosen], hidden: Array) -> Trace:
    """The steps from what left the last layer to the logits of the tokens, and of the rival of each."""
    model = prompt.runner.model
    asked_about = list(
        dict.fromkeys([*(each.token.id for each in chosen), *(each.rival for each in chosen)])
    )
    labels = [token for token, _ in prompt.name_tokens(asked_about)]
    told = [{"at": each.at, "rank": each.rank, **each.token._asdict()} for each in chosen]
    header = {
        "tokens": tokens.labels,
        "ids": tokens.ids,
        "model": model.name,
        "family": model.description.family,
        "generated": {"vocabulary": prompt.head.vocab, "tokens": told},
    }
    if tokens.special:
        header["special"] = list(tokens.special)
    return prompt.head.trace(hidden, asked_about, labels, header)


# --- the rows that leave the last layer ---


@dataclass
class GrowingRows:
    """The rows of a text that leave the last layer, to which new ones are added as it grows."""

    prompt: Pass
    hidden: Array = field(default_factory=lambda: np.empty((0, 0)))
    past: dict[int, Past] = field(default_factory=dict)
    rotations: tuple[Rotary, ...] | None = None

    @property
    def model(self) -> Model:
        return self.prompt.runner.model

    def last(self, tokens: Tokens) -> Array:
        """The row of the last token, all that are not there yet computed."""
        if not self.may_go_on(tokens):
            self.compute_all(tokens)
        else:
            self.compute_new(tokens)
        return self.hidden[-1]

    def may_go_on(self, tokens: Tokens) -> bool:
        """Whether K and V of the earlier rows stay what they are."""
        if self.prompt.runner.edits or not has_only_past(self.model.description):
            return False
        rotations = rotations_of(self.model.description, len(tokens.ids))
        is_same = self.rotations in {None, rotations}
        if not is_same:  # another stretch of positions: all keys are turned by other angles
            self.past = {}
            self.hidden = self.hidden[:0]
        self.rotations = rotations
        return True

    def compute_all(self, tokens: Tokens) -> None:
        self.hidden = replace(self.prompt, tokens=tokens).last()

    def compute_new(self, tokens: Tokens) -> None:
        start = len(self.hidden)
        model = self.model
        hidden = embed_ids(model, tokens.ids[start:], tokens.segments[start:], start)
        for index in range(len(model.description.layers)):
            hidden = through(model.layer(index), hidden, None, self.attend)
        new = hidden[..., : model.description["width"]]
        self.hidden = np.concatenate([self.hidden, new]) if start else new

    def attend(self, tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        """The attention of a layer to all keys so far, those of these rows among them from now on."""
        passing = replace(tensors, passing=True)
        plan = prepare_attention(passing, hidden, past=self.past.get(tensors.index))
        names = {step.symbol: step.name for step in plan.derivation if step.name in KEPT}
        trace = plan.run(steps_to_keep(tensors, X, RESIDUAL, names["K"], names["V"]))
        self.past[tensors.index] = Past(trace[names["K"]], trace[names["V"]])
        return trace


KEPT = (
    *("K", "K_normed", "K_rotated", "present_key"),
    *("V", "V_normed", "present_value"),
)
"""The steps that may be the last of K or of V before heads share them."""


def has_only_past(d: Description) -> bool:
    """Whether K and V are all that a row reads of earlier ones."""
    counts_padding = d["positions"] == "after_pad"
    return len(d.attending) == len(d.layers) and not (d.sources or d["buckets"] or counts_padding)


def rotations_of(d: Description, length: int) -> tuple[Rotary, ...]:
    """How rows are turned in a text of this length, which a rope may go by."""
    ropes = [layer.rope for layer in d.layers if layer.rope is not None]
    return tuple(dict.fromkeys(rope.rotary(length) for rope in ropes))


def begin_text(name: str, source: ModelInput, settings: Settings) -> Pass:
    """A prompt that is to be gone on with. Raises AttnError for models that see both ways."""
    runner, _ = begin_run(name, "all", settings)
    d = runner.model.description
    if not d["causal"]:
        raise AttnError(f"--tokens: {d.family} sees both ways; it does not go on with a text")
    return begin_pass(name, source, settings)


# --- where a text ends ---

OF_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def ends_of(name: str) -> frozenset[int]:
    """The tokens that end a text, as a model's files say."""
    folder = folder_of(name)
    if is_gguf(folder):
        metadata = open_gguf(folder).gguf.metadata
        return whole_numbers(metadata.get(key) for key in OF_ENDS)

    found: list[Any] = []
    for file in ("generation_config.json", CONFIG):
        if not (folder / file).is_file():
            continue
        config = json_file(path_inside(folder, file), LONGEST_CONFIG)
        text = config.get("text_config")
        for entries in (config, text if isinstance(text, dict) else {}):
            said = entries.get("eos_token_id")
            found += said if isinstance(said, list) else [said]
        if whole_numbers(found):
            break
    return whole_numbers(found)


def whole_numbers(values: Any) -> frozenset[int]:
    return frozenset(int(value) for value in values if isinstance(value, int | np.integer))

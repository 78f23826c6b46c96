"""What follows the last layer: the final norm, the unembedding, and the likeliest next tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Progress
from attnctl.math.derivation import derive_head
from attnctl.math.engine import carry_out
from attnctl.math.names import FINAL
from attnctl.math.ops import LayerNorm, Scale, Squeeze
from attnctl.models.activations import ACTIVATIONS, activate
from attnctl.models.forward import final_norm, states
from attnctl.models.layer import Model, norm_op
from attnctl.models.run import ModelInput, Runner, begin_run, tokens_of
from attnctl.models.source import Tokens, Words, folder_of
from attnctl.record import NEXT_TOKENS, Trace


class LogitHead:
    """The head of a model that gives logits of tokens. Raises AttnError where there is none.

    It may have a layer of its own before the unembedding, as masked-language heads have, or project rows to
    the width of embeddings first, as the smallest OPT does.
    """

    def __init__(self, model: Model) -> None:
        d = model.description
        settings = d.head
        if not settings["unembed"]:
            raise AttnError(
                f"{model.name}: {d.family} has no head that is read here; next tokens are those of "
                "decoders without an encoder, and of encoders at [MASK]"
            )
        self.model = model
        self.settings = settings
        self.own_layer = settings["dense"] is not None
        self.projects = bool(d["project"] and "final_project" in d.stack.outer)
        self.width = int(d["embed_width"] if self.own_layer or self.projects else d["width"])
        self.vocab = model.rows("embed")

        self.layer: list[str] = []
        """The names of the layer's matrix and of its norm."""
        if self.own_layer:
            self.layer = [self.find_module(settings["dense"]), self.find_module(settings["norm"])]

        tied = f"{model.prefix}{d.stack.outer['embed']}.weight" if settings["tied"] else None
        self.weight = self.find(*(f"{name}.weight" for name in settings["unembed"]), otherwise=tied)
        self.bias = self.find(*settings["bias"]) if settings["bias"] else None
        tensor = model.checkpoint.tensors.get(self.weight)
        if self.weight == tied and tensor is not None and tensor.adapted:
            raise AttnError(
                f"{model.name}: the adapter changes the embeddings, which the head shares: programs differ "
                "in whether it has the change, too; merge the adapter, and give that"
            )

    def find_module(self, name: str) -> str:
        """The whole name of a module, whose weight may be called as TensorFlow called it."""
        module, _, _ = self.find(f"{name}.weight", f"{name}.gamma").rpartition(".")
        return module

    def find(self, *names: str, otherwise: str | None = None) -> str:
        """The first of these tensors that is there, whatever stands before its name."""
        for ending in names:
            for name in self.model.checkpoint.names:
                if name == ending or name.endswith(f".{ending}"):
                    return name
        if otherwise is not None:
            return otherwise

        kind = "masked-language head" if self.own_layer else "head"
        raise AttnError(
            f"{self.model.checkpoint.folder}: no tensor {names[0]}: the checkpoint has the layers of "
            f"{self.model.description.family}, not its {kind}; save the model with its head"
        )

    def read(self, name: str, *shape: int, part: Any = ...) -> Array:
        return self.model.checkpoint.read(name, shape, self.model.dtype, part)

    @np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
    def final(self, hidden: Array) -> Array:
        """The rows that the unembedding reads."""
        rows = final_norm(self.model, hidden)
        if not self.own_layer:
            return rows

        d = self.model.description
        dense, norm = self.layer
        rows = rows @ self.read(f"{dense}.weight", self.width, rows.shape[-1]).T
        if self.settings["dense_bias"]:
            rows = rows + self.read(f"{dense}.bias", self.width)
        rows = activate(ACTIVATIONS[self.settings["act"] or d["act"]], rows)
        factors = [self.read(f"{norm}{suffix}", self.width) for suffix in d.norm_suffixes]
        return LayerNorm(float(d["eps"])).apply(rows, *factors)

    def logits(self, rows: Array) -> Array:
        """The logits of every token, (…, vocab): the unembedding is read and multiplied in blocks."""
        shape = (self.vocab, self.width)
        out = self.model.checkpoint.multiply(rows, self.weight, shape, self.model.dtype, axis=0)
        if self.bias:
            out = out + self.read(self.bias, self.vocab)
        return self.bend(out)

    def logits_of(self, rows: Array, ids: Sequence[int], *, capped: bool = True) -> Array:
        """The logits of these tokens alone, (…, token)."""
        columns = self.columns(ids)
        no_bias = rows.dtype.type(0)
        return self.bend(rows @ columns["W_U"] + columns.get("b_U", no_bias), capped=capped)

    def bend(self, out: Array, *, capped: bool = True) -> Array:
        """Logits, scaled and held under the cap, in the array they came in."""
        scale = self.settings["scale"]
        cap = self.settings["cap"]
        if scale is not None:
            out = Scale(factor=scale).apply(out, out=out)
        if cap is not None and capped:
            out = Squeeze(cap).apply(out, out=out)
        return out

    def columns(self, ids: Sequence[int]) -> dict[str, Array]:
        """The unembedding of these tokens alone: W_U (width, token), and b_U."""
        part = np.asarray(ids, int)
        columns = {"W_U": self.read(self.weight, self.vocab, self.width, part=part).T}
        if self.bias:
            columns["b_U"] = self.read(self.bias, self.vocab, part=part)
        return columns

    def trace(
        self, hidden: Array, ids: Sequence[int], labels: Sequence[str], header: dict[str, Any]
    ) -> Trace:
        """The steps from what left the last layer to the logits of these tokens."""
        d = self.model.description
        arrays: dict[str, Array] = {}
        origins: dict[str, str] = {}
        norm = None
        if self.own_layer or self.projects:
            arrays[FINAL] = self.final(hidden)
            origins[FINAL] = "what the head makes of the last layer's rows before it unembeds them"
        else:
            arrays["hidden"] = hidden
            origins["hidden"] = "what left the last layer"
            if d["final_norm"]:
                norm = norm_op(d, d["eps"])
                for suffix in d.norm_suffixes:
                    name = f"norm_{suffix[1:]}"
                    arrays[name] = self.model.outer("final_norm", suffix, hidden.shape[-1:])
                    origins[name] = f"{d.stack.outer['final_norm']}{suffix}"

        arrays |= self.columns(ids)
        origins["W_U"] = self.weight
        if self.bias:
            origins["b_U"] = self.bias

        lines = derive_head(origins, norm, self.settings["scale"], self.settings["cap"])
        values = carry_out(lines, arrays, self.model.dtype).values
        steps = {step.name: step for step in lines}
        return Trace(steps, values, {**header, NEXT_TOKENS: list(labels)})


MASKS = ("[MASK]", "<mask>")

AT_ONCE = 2**22
"""Logits that are held at a time."""


@dataclass(frozen=True)
class Pass:
    """A prompt on its way through a model: what came into each layer, and out of the last."""

    runner: Runner
    head: LogitHead
    tokens: Tokens
    name_tokens: NameTokens

    def states(self, moved: Progress | None = None) -> Iterator[Array]:
        """The rows of all positions before each layer, then after the last."""
        runner = self.runner
        start = runner.begin(self.tokens)
        for index, hidden in states(runner.model, start, None, runner.pass_on, runner.networks):
            if moved:
                moved(index, len(runner.layers))
            yield hidden

    def last(self, moved: Progress | None = None) -> Array:
        return deque(self.states(moved), maxlen=1)[0]

    def rank(self, ids: Array, logits: Array, total: Array) -> list[Ranked]:
        """Tokens with their names, and their shares of exp(total)."""
        shares = np.exp(logits.astype(np.float64) - total)
        names = self.name_tokens(ids.tolist())
        ranked = []
        for number, (token, text), logit, share in zip(
            ids.tolist(), names, logits.tolist(), shares.tolist(), strict=True
        ):
            ranked.append(Ranked(number, token, text, logit=logit, probability=share))
        return ranked

    def pieces(self, text: str) -> list[int]:
        """The tokens of a text by itself; where a space before a word is written as none, without it."""
        tokenizer = Words(folder_of(self.runner.model.name)).tokenizer
        as_written = tokenizer.encode(text, add_special_tokens=False).ids
        stripped = tokenizer.encode(text.strip(), add_special_tokens=False).ids
        return list(as_written if len(as_written) <= len(stripped) else stripped)

    def place(self, at: int | None) -> int:
        """The position whose logits are meant: one that is named, the last, or that of the only mask.

        Raises AttnError where there is none.
        """
        count = len(self.tokens.ids)
        if at is not None:
            if not -count <= at < count:
                raise AttnError(f"--at: no position {at}; there are {count}, from 0 to {count - 1}")
            return at % count

        d = self.runner.model.description
        if d["causal"]:
            return count - 1

        masks = [place for place, label in enumerate(self.tokens.labels) if label in MASKS]
        if len(masks) == 1:
            return masks[0]
        problem = f"there are {len(masks)} masks" if masks else "there is no [MASK]"
        raise AttnError(f"--at: missing; {d.family} sees both ways, and {problem} to fill: name a position")


NameTokens = Callable[[Sequence[int]], list[tuple[str, str]]]
"""The label of each of some tokens, as addresses have it, and its text."""


def begin_pass(name: str, source: ModelInput, settings: Settings) -> Pass:
    """Open a model and read a prompt for it. Raises AttnError where it has no head, or they do not fit."""
    runner, _ = begin_run(name, "all", settings)
    head = LogitHead(runner.model)
    return Pass(runner, head, tokens_of(name, source), token_names(name))


def token_names(name: str) -> NameTokens:
    """What names tokens: a model's tokenizer, or where there is none their ids."""
    try:
        words = Words(folder_of(name))
    except AttnError:
        return lambda ids: [(str(number), str(number)) for number in ids]

    def name_of(number: int) -> tuple[str, str]:
        token = words.tokenizer.id_to_token(number)
        if token is None:
            return str(number), str(number)
        text = str(words.tokenizer.decode([number], skip_special_tokens=False))
        return words.label(number, token), text or token

    return lambda ids: list(map(name_of, ids))


class Ranked(NamedTuple):
    """A token, its label and its text, and how likely it is."""

    id: int
    token: str
    text: str
    logit: float
    probability: float


def run_next(prompt: Pass, count: int, at: int | None, moved: Progress | None = None) -> Trace:
    """The steps after the last layer, of the tokens that are likeliest at a position."""
    model = prompt.runner.model
    place = prompt.place(at)
    hidden = prompt.last(moved)

    (row,) = logits_of(prompt, hidden[place : place + 1])
    best = np.argsort(-row, kind="stable")[:count]
    ranked = prompt.rank(best, row[best], log_sum_exp(row))

    likeliest = [token._asdict() for token in ranked]
    header = {
        **prompt.runner.header,
        "model": model.name,
        "family": model.description.family,
        "next": {"at": place, "vocabulary": len(row), "tokens": likeliest},
    }
    return prompt.head.trace(hidden, best.tolist(), [token.token for token in ranked], header)


def top_tokens(prompt: Pass, hidden: Array) -> list[Ranked]:
    """The likeliest token at each position, were these rows those of the last layer."""
    at_once = max(1, AT_ONCE // prompt.head.vocab)
    ranked: list[Ranked] = []
    for start in range(0, len(hidden), at_once):
        logits = logits_of(prompt, hidden[start : start + at_once])
        best = logits.argmax(axis=-1)
        largest = np.take_along_axis(logits, best[:, None], -1)[:, 0]
        ranked += prompt.rank(best, largest, log_sum_exp(logits))
    return ranked


def logits_of(prompt: Pass, hidden: Array) -> Array:
    """The logits of every token in these rows. Raises AttnError where one is no finite number."""
    logits = prompt.head.logits(prompt.head.final(hidden))
    if not np.isfinite(logits).all():
        model = prompt.runner.model
        raise AttnError(f"{model.name}: logits grow too large for {model.dtype}; add --dtype float64")
    return logits


def log_sum_exp(logits: Array) -> Array:
    """log Σ exp of each row, the largest logit taken out of the sum so that nothing overflows."""
    largest = logits.max(axis=-1, keepdims=True)
    sums = np.exp((logits - largest).astype(np.float64)).sum(axis=-1)
    return np.log(sums) + largest[..., 0]

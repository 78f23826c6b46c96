"""What follows the last layer: the final norm, the unembedding, and the likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.derivation import derive_head
from attnctl.math.engine import carry_out
from attnctl.math.names import FINAL
from attnctl.math.ops import LayerNorm, Scale, Squeeze
from attnctl.models.activations import ACTIVATIONS, activate
from attnctl.models.forward import final_norm
from attnctl.models.layer import Model, norm_op
from attnctl.record import NEXT_TOKENS, Trace


class LogitHead:
    """The head of a model that gives logits of tokens. Raises AttnError where there is none.

    It may have a layer of its own before the unembedding, as masked-language heads have, or project rows to
    the width of embeddings first, as the smallest OPT does.
    """

    def __init__(self, model: Model) -> None:
        d, said = model.description, model.description.head
        if not said["unembed"]:
            raise AttnError(
                f"{model.name}: {d.family} has no head that is read here; next tokens are those of "
                "decoders without an encoder, and of encoders at [MASK]"
            )
        self.model, self.said, self.own_layer = model, said, said["dense"] is not None
        self.projects = bool(d["project"] and "final_project" in d.shared)
        self.width = int(d["embed_width"] if self.own_layer or self.projects else d["width"])
        self.vocab = model.rows("embed")
        modules = [said[name] for name in ("dense", "norm") if self.own_layer]
        weights = (self.find(f"{module}.weight", f"{module}.gamma") for module in modules)
        self.layer = [weight.rpartition(".")[0] for weight in weights]
        embeddings = f"{model.prefix}{d.shared['embed']}.weight" if said["tied"] else None
        self.weight = self.find(*(f"{name}.weight" for name in said["unembed"]), otherwise=embeddings)
        self.bias = self.find(*said["bias"]) if said["bias"] else None

    def find(self, *names: str, otherwise: str | None = None) -> str:
        """The first of these tensors that is there, whatever stands before its name."""
        there = self.model.checkpoint.names
        found = [name for end in names for name in there if name == end or name.endswith(f".{end}")]
        if not found and otherwise is None:
            kind = "masked-language head" if self.own_layer else "head"
            raise AttnError(
                f"{self.model.checkpoint.folder}: no tensor {names[0]}: the checkpoint has the layers of "
                f"{self.model.description.family}, not its {kind}; save the model with its head"
            )
        return (*found, otherwise or "")[0]

    def read(self, name: str, *shape: int, part: Any = ...) -> Array:
        return self.model.checkpoint.read(name, shape, self.model.dtype, part)

    @np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
    def final(self, hidden: Array) -> Array:
        """The rows that the unembedding reads."""
        rows = final_norm(self.model, hidden)
        if not self.own_layer:
            return rows
        said, d, width = self.said, self.model.description, self.width
        dense, norm = self.layer
        rows = rows @ self.read(f"{dense}.weight", width, rows.shape[-1]).T
        if said["dense_bias"]:
            rows = rows + self.read(f"{dense}.bias", width)
        rows = activate(ACTIVATIONS[said["act"] or d["act"]], rows)
        factors = (self.read(f"{norm}{suffix}", width) for suffix in d.norm_suffixes)
        return LayerNorm(float(d["eps"])).apply(rows, *factors)

    def logits(self, rows: Array) -> Array:
        """The logits of every token, (…, vocab): the unembedding is read and multiplied in blocks."""
        shape = (self.vocab, self.width)
        out = self.model.checkpoint.multiply(rows, self.weight, shape, self.model.dtype, axis=0)
        return self.bend(out + self.read(self.bias, self.vocab) if self.bias else out)

    def logits_of(self, rows: Array, ids: Sequence[int], *, capped: bool = True) -> Array:
        """The logits of these tokens alone, (…, token)."""
        columns = self.columns(ids)
        return self.bend(rows @ columns["W_U"] + columns.get("b_U", rows.dtype.type(0)), capped=capped)

    def bend(self, out: Array, *, capped: bool = True) -> Array:
        if self.said["scale"] is not None:
            out = Scale(factor=self.said["scale"]).apply(out, out=out)
        return (
            out if self.said["cap"] is None or not capped else Squeeze(self.said["cap"]).apply(out, out=out)
        )

    def columns(self, ids: Sequence[int]) -> dict[str, Array]:
        """The unembedding of these tokens alone: W_U (width, token), and b_U."""
        part = np.asarray(ids, int)
        found = {"W_U": self.read(self.weight, self.vocab, self.width, part=part).T}
        return found | ({"b_U": self.read(self.bias, self.vocab, part=part)} if self.bias else {})

    def trace(
        self, hidden: Array, ids: Sequence[int], labels: Sequence[str], header: dict[str, Any]
    ) -> Trace:
        """The steps from what left the last layer to the logits of these tokens."""
        d, arrays, made, norm = self.model.description, dict[str, Array](), dict[str, str](), None
        if self.own_layer or self.projects:
            arrays[FINAL] = self.final(hidden)
            made[FINAL] = "what the head makes of the last layer's rows before it unembeds them"
        else:
            arrays["hidden"], made["hidden"] = hidden, "what left the last layer"
            norm = norm_op(d, d["eps"]) if d["final_norm"] else None
            for suffix in d.norm_suffixes if norm else ():
                name = f"norm_{suffix[1:]}"
                arrays[name] = self.model.outer("final_norm", suffix, hidden.shape[-1:])
                made[name] = f"{d.shared['final_norm']}{suffix}"
        arrays |= self.columns(ids)
        made |= {"W_U": self.weight} | ({"b_U": self.bias} if self.bias else {})
        lines = derive_head(made, norm, self.said["scale"], self.said["cap"])
        values = carry_out(lines, arrays, self.model.dtype).values
        return Trace({step.name: step for step in lines}, values, {**header, NEXT_TOKENS: list(labels)})

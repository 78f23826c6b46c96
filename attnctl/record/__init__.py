"""A Trace: the record of a derivation carried out, or of anyone's numbers under the same names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from reprlib import Repr
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import nearest, one_of
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.names import SYMBOLS

SCHEMA = "attnctl/trace/1"

CALL = "call"
"""What a header says of a call of attention that was captured: number, function, at, module, options."""

ATTENTION = "attention"
"""What a header says of an attention of a program: its number there, and at which expression it ends."""

NEXT_TOKENS = "next_tokens"
"""The tokens whose logits a trace has, where it is of what follows the last layer."""

LAID_OUT = "laid_out"
"""What a header says where it is known which way matrices were multiplied: no other reading is tried."""

DROPPED = "dropped_out"
"""The output of a captured call after dropout, which nothing can be held to."""

KEPT_HEADS = "kept_heads"
"""What a header says of a trace of some heads: by step the numbers of those that are there."""


class MissingStep(AttnError, KeyError):  # noqa: N818  (what is missing, not an accident)
    """A step that is not in a trace; a KeyError too, as a mapping promises."""


@dataclass(frozen=True, repr=False)
class Trace(Mapping[str, Array]):
    """The steps that were kept, their arrays, and a header that says what was run.

    ``trace["attention_weights"]`` is the array of that step; iterating gives the names in order.
    `header` is what a dump carries beside its steps: sentence, tokens, ids, config, …
    Where it is to be filled in, steps that are `begun` hold NaN there, `unfilled` ones are lacking.
    """

    steps: dict[str, Step]
    arrays: Mapping[str, Array]
    header: dict[str, Any] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    unfilled: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        short = Repr()
        short.maxstring = 60  # characters of the sentence
        heads = self.config.get("heads")
        dtype = self.config.get("dtype")

        words = []
        if self.sentence is not None:
            words.append(short.repr(self.sentence))
        if heads is not None:
            words.append(f"{heads} head" if heads == 1 else f"{heads} heads")
        if dtype is not None:
            words.append(str(dtype))
        words.append(f"{len(self)} step" if len(self) == 1 else f"{len(self)} steps")
        return f"<Trace: {', '.join(words)}>\n{' '.join(self)}"

    def __getitem__(self, name: str) -> Array:
        if name not in self.steps:  # a symbol, or nothing here
            (name,) = names_of_steps([name], list(self.steps))
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __contains__(self, name: object) -> bool:
        return name in self.steps

    @property
    def sentence(self) -> str | None:
        return self.header.get("sentence")

    @property
    def tokens(self) -> list[str] | None:
        """The tokens of the queries, where there were any, pieces of bytes as the text that they are."""
        return self.as_read(self.header.get("tokens"))

    @property
    def key_tokens(self) -> list[str] | None:
        """The tokens of the keys: the queries' own unless the dump says otherwise."""
        if "key_tokens" not in self.header:
            return self.tokens
        return self.as_read(self.header["key_tokens"])

    def as_read(self, tokens: list[str] | None) -> list[str] | None:
        """Tokens as people read them: `Ġlove` of a byte-level vocabulary is love."""
        may_be_pieces = tokens and any(token.startswith(("Ġ", "Ċ")) for token in tokens)
        # A sentence with the letter Ġ in it is in Maltese: its words are words.
        if not tokens or not may_be_pieces or "Ġ" in (self.sentence or ""):
            return tokens
        from attnctl.base.pieces import read_pieces

        return read_pieces(tokens)

    @property
    def ids(self) -> list[int] | None:
        return self.header.get("ids")

    @property
    def config(self) -> dict[str, Any]:
        """Everything needed to run it again."""
        return self.header.get("config", {})

    @property
    def is_own_call(self) -> bool:
        """True of a captured call of a function that no library has: its layout is not known."""
        return CALL in self.header and "causal_offset" not in self.config

    @property
    def edited(self) -> frozenset[str]:
        # Anyone may have written the header: what is no edit is passed over.
        edits = self.header.get("edits")
        if not isinstance(edits, list):
            return frozenset()
        steps = [edit.get("step") for edit in edits if isinstance(edit, dict)]
        return frozenset(step for step in steps if isinstance(step, str))

    @property
    def derivation(self) -> Derivation:
        return Derivation(tuple(self.steps.values()))

    def tokens_along(self, name: str, axis: int) -> list[str] | None:
        """The tokens of an axis; None where it has none, or not as many."""
        tokens_of = {
            "token": self.tokens,
            "query": self.tokens,
            "key": self.key_tokens,
            "vocab": self.header.get(NEXT_TOKENS),
        }
        tokens = tokens_of.get(self.steps[name].axes[axis])
        if tokens is None or len(tokens) != self[name].shape[axis]:
            return None
        return list(tokens)

    def labels(self, name: str, axis: int) -> list[str]:
        """The label of each index along an axis: tokens where the axis has them, else numbers."""
        size = self[name].shape[axis]
        heads = self.kept_heads.get(name, [])
        if self.steps[name].axes[axis] == "head" and len(heads) == size:
            return list(map(str, heads))

        tokens = self.tokens_along(name, axis)
        return list(map(str, range(size))) if tokens is None else tokens

    @property
    def kept_heads(self) -> dict[str, list[int]]:
        """The numbers of the heads that steps have, where only some are recorded."""
        recorded = self.header.get(KEPT_HEADS)
        if not isinstance(recorded, dict):
            return {}
        return {
            name: heads
            for name, heads in recorded.items()
            if isinstance(heads, list) and {*map(type, heads)} == {int}
        }

    def select_heads(self, heads: Sequence[int], total: int) -> Trace:
        """Only these of `total` heads, with keys and values that they share; no step made of several."""
        arrays: dict[str, Array] = {}
        kept: dict[str, list[int]] = {}
        made_of_heads: set[str] = set()

        for name, step in self.steps.items():
            if "head" in step.axes:
                axis = step.axes.index("head")
                size = self[name].shape[axis]
                kept[name] = list(dict.fromkeys(head * size // total for head in heads))
                arrays[name] = self[name].take(kept[name], axis=axis)
                made_of_heads.add(name)
            elif made_of_heads & set(step.inputs):
                made_of_heads.add(name)
            else:
                arrays[name] = self[name]
        steps = {name: self.steps[name] for name in arrays}
        return replace(self, steps=steps, arrays=arrays, header={**self.header, KEPT_HEADS: kept})

    def select(self, names: Sequence[str]) -> Trace:
        """Only these steps, in the derivation's order. Raises MissingStep naming every missing one."""
        wanted = names_of_steps(names, list(self.steps))
        return replace(self, steps={name: step for name, step in self.steps.items() if name in wanted})


def is_unfinished(trace: Trace) -> bool:
    return bool(trace.begun or trace.unfilled)


def numbers_of(traces: Sequence[Trace]) -> Sequence[int]:
    """What FILE[N] calls each of several traces: the number of its call in a program, or its place here."""
    # Of a capture, whose calls are not read yet.
    known: Sequence[int] | None = getattr(traces, "numbers", None)
    if known is not None:
        return known
    calls = [trace.header.get(CALL, {}).get("number") for trace in traces]
    return list(range(len(traces))) if None in calls else calls


def names_of_steps(wanted: Iterable[str], there: Sequence[str]) -> list[str]:
    """The names of steps, some given by symbol (A). Raises MissingStep naming every missing one."""
    names = [name if name in there else SYMBOLS.get(name, name) for name in wanted]
    missing = [name for name in names if name not in there]
    if missing:
        raise MissingStep([refuse_step(name, there) for name in missing])
    return names


def refuse_step(name: str, there: Sequence[str]) -> str:
    near = nearest(name, there)
    hint = f"; did you mean {one_of(near)}?" if near else ""
    return f"no step {name!r} here; there are {', '.join(there)}{hint}"

"""Kernels as files of NumPy: the lines of attention, and in place of some those that make a mistake.

The mutants are those of the catalogue.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import pairwise
from textwrap import indent
from types import CodeType
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.math.derivation import Rotary
from attnctl.math.names import KEY_LENGTHS, PAGE_TABLE, PAGES, POSITION_IDS, STORED_SCALES, TABLE
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import KINDS, gather, list_assigned, list_used, rotate
from attnctl.mistakes.mistake import Mistake

# --- what a kernel may be asked for ---


OPTIONS = {
    "causal": "causal", "cached": "causal", "window": "window", "strided": "strided",
    "documents": "documents", "mask": "mask", "padded": "key_lengths", "softcap": "softcap",
    "alibi": "alibi_slopes", "bias": "bias", "sink": "sinks", "paged": "page_table", "grouped": "",
    "rope": "", "chunks": "",
}  # fmt: skip
"""The options of a kernel, and the parameter of each, if it has one."""

QUERY, KEY = "np.arange(n)[:, None]", "np.arange(keys)"
DOCUMENT = 'np.searchsorted(documents, {}, side="right")'

SEEN = {
    "causal": f"{KEY} <= {QUERY}",
    "cached": f"{KEY} <= {QUERY} + keys - n",
    "window": f"({KEY} >= {QUERY} - window[0]) & ({KEY} <= {QUERY} + window[1])",
    "strided": f"np.isin({QUERY} - {KEY}, np.arange(0, n, strided or 1))",
    "documents": f"{DOCUMENT.format(QUERY)} == {DOCUMENT.format(KEY)}",
    "mask": "mask",
    "padded": f"{KEY} < key_lengths.reshape(-1, *[1] * (Q.ndim - 1))",
}
"""The keys that an option lets be seen."""

OF_MEMBER = {
    **dict.fromkeys(("mask", "bias"), "{0} if np.ndim({0}) < 4 else {0}[at % len({0})]"),
    "key_lengths": "None if {0} is None else {0}[at : at + 1]",
}
"""The part of a parameter for one member, where it is not the same for all."""


def default_of(parameter: str) -> str:
    """What a function is passed that is not asked for it."""
    return "False" if parameter == "causal" else "None"


OF_ARRAYS = {KEY_LENGTHS: "padded", PAGE_TABLE: "paged"}


def kernel_options(meant: str) -> frozenset[str] | None:
    """The options of a kernel of this kind of the catalogue; None where it is more than Q, K and V."""
    kind = KINDS[meant]
    settings, arrays = kind.settings, {OF_ARRAYS.get(name, name) for name in kind.arrays}
    rope = isinstance(settings.positions, Rotary)
    own = (settings.scale, kind.stretched, settings.qk_norm, settings.gate, settings.temperature)
    of_models = any(own) or not {POSITION_IDS, *STORED_SCALES}.isdisjoint(kind.arrays)
    if of_models or settings.logsumexp or not (rope or settings.positions == "none"):
        return None
    asked = {"grouped": settings.kv_heads, "rope": rope, "chunks": settings.chunks}
    found = {*(rule.name for rule in settings.rules), *(name for name, value in asked.items() if value)}
    found |= arrays & {*OPTIONS}
    return frozenset(found - {"causal"} | {"cached"} if settings.causal_offset else found)


# --- lines ---


CodeLine = tuple[str, str]
"""A step, and how it is made; a line that makes a mistake has no step."""

OF_SCORES = {
    "softcapped_scores": (
        "softcap", "softcap * np.tanh({} / softcap)", "{} * (1 - (softcapped_scores / softcap) ** 2)",
    ),
    "biased_scores": ("bias", "{} + bias", "{}"),
    "masked_scores": ("", "np.where(hidden, -np.inf, {})", "np.where(hidden, 0, {})"),
}  # fmt: skip
"""What may become of the scaled scores, in this order, by which option, and on the way back."""

NAMES = {
    "n": "Q.shape[-2]",
    "heads": "Q.shape[-3]",
    "d_k": "Q.shape[-1]",
    "d_model": "Q.shape[-3] * Q.shape[-1]",
    "lengths": "key_lengths",
    "sink": "sinks",
    "starts": "documents",
    "slots": "key_pages.shape[1]",
    "merge": "lambda z: z.swapaxes(-3, -2).reshape(*z.shape[:-3], z.shape[-2], -1)",
    "split": "lambda x: x.reshape(*x.shape[:-1], heads, -1).swapaxes(-3, -2)",
}
"""What lines may read beside steps."""

OF_KEYS = {"keys": "K.shape[-2]", "distance": f"abs({QUERY} - {KEY})"}
"""The same, of the keys that there are."""

SOFTMAX = '''\
def softmax(s, axis=-1):
    """Along this axis; zeros where nothing is seen."""
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=axis, keepdims=True)
    return e / np.where(total == 0, 1, total)
'''

LOGSUMEXP = """\
def logsumexp_of(s):
    top = s.max(axis=-1)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(s - np.where(np.isneginf(top), 0, top)[..., None]).sum(axis=-1))
"""

WITH_SINKS = '''\
def with_sinks(s, sinks):
    """Softmax over the keys and one more, whose score is a head's own, without the weight of that."""
    more = np.broadcast_to(sinks[:, None, None], (*s.shape[:-1], 1))
    return softmax(np.concatenate([s, more], axis=-1))[..., :-1]
'''

GATHER, ROTATE = (
    re.sub(r": (Array|float|bool)( \| None)?| -> Array", "", inspect.getsource(helper))
    for helper in (gather, rotate)
)
SHARED_OUT = "attention_weights = e / e.sum(axis=-1, keepdims=True)"
"""How softmax ends: what is wrong stands above."""

HELPERS = {
    "gather": GATHER,
    "with_sinks": WITH_SINKS,
    "softmax": SOFTMAX,
    "logsumexp_of": LOGSUMEXP,
    "rotate": ROTATE,
}


@dataclass(frozen=True)
class Kernel:
    """Attention with these options, in which the lines of a mistake stand in place of the right ones.

    `meant` are the options of the kind that the lines are of. A function with more is right where it is
    not asked for these.
    """

    options: frozenset[str] = frozenset()
    lines: str = ""
    meant: frozenset[str] = frozenset()
    batched: bool = False
    """Whether the lines are of all members of a batch at once."""
    backward: bool = False
    name: str = ""
    """That of the mistake, or of one of its kind that shows less (`-slight`); none of a right kernel."""
    mistake: Mistake | None = None

    @property
    def said(self) -> dict[str, str]:
        """The mistake, and what is wrong; where that depends on numbers, the line that says them."""
        assert self.mistake is not None
        lines = [line for line in self.lines.split("\n") if line != SHARED_OUT]
        words = self.mistake.words if "{}" not in self.mistake.words else lines[-1]
        return {"mistake": self.mistake.name, "words": words}

    # --- the right lines ---

    def given(self) -> Iterator[CodeLine]:
        """Q, K and V as they come, or as a table reads them in pages, and what their shapes say."""
        pages = dict(zip("KV", PAGES, strict=True)) if "paged" in self.options else {}
        yield from ((name, symbol) for symbol, name in pages.items())
        yield from NAMES.items()
        for symbol in "QKV":
            read = f"gather({pages[symbol]}, page_table, key_lengths)" if symbol in pages else symbol
            yield symbol, self.asked("paged", read, symbol)
        yield from OF_KEYS.items()

    def forward(self) -> Iterator[CodeLine]:
        q, k, v = "Q", "K", "V"
        if "rope" in self.options:
            q, k = "Q_rotated", "K_rotated"
            yield from ((q, "rotate(Q)"), (k, "rotate(K)"))
        if "grouped" in self.options:
            for shared, name in (("K_shared", k), ("V_shared", v)):
                yield shared, f"np.repeat({name}, heads // {name}.shape[-3], axis=-3)"
            k, v = "K_shared", "V_shared"
        yield "scores", f"{q} @ {k}.swapaxes(-1, -2)"
        yield "scaled_scores", "scores / d_k**0.5"
        for before, step in pairwise(self.scores):
            yield from self.of_scores(before, step)
        last = self.scores[-1]
        if "chunks" in self.options:
            yield from self.in_chunks(last, v)
        else:
            plain = f"softmax({last})"
            yield "attention_weights", self.asked("sink", f"with_sinks({last}, sinks)", plain)
            yield "head_outputs", f"attention_weights @ {v}"
        yield "concat", "merge(head_outputs)"

    @property
    def masks(self) -> list[str]:
        return [name for name in SEEN if name in self.options]

    @property
    def scores(self) -> list[str]:
        """The scaled scores, and what becomes of them before softmax."""
        asked = (("softcap",), ("bias", "alibi"), self.masks)
        there = zip(OF_SCORES, asked, strict=True)
        return ["scaled_scores", *(step for step, names in there if self.options & {*names})]

    def of_scores(self, before: str, step: str) -> Iterator[CodeLine]:
        option, form, _ = OF_SCORES[step]
        if step == "masked_scores":
            seen = [self.asked(name, SEEN[name], "np.True_") for name in self.masks]
            yield "hidden", f"~({seen[0]})" if len(seen) == 1 else f"~(({') & ('.join(seen)}))"
        if step == "biased_scores" and "alibi" in self.options:
            option, form = "alibi", "{} - alibi_slopes[:, None, None] * distance"
        text = form.format(before)
        yield step, self.asked(option, text, before) if option else text

    def asked(self, option: str, text: str, otherwise: str) -> str:
        """The text where this option is asked for."""
        if option not in self.options:
            return otherwise
        parameter = OPTIONS[option]
        given = parameter if parameter == "causal" else f"{parameter} is not None"
        return text if option in self.meant else f"{text} if {given} else {otherwise}"

    def in_chunks(self, s: str, v: str) -> Iterator[CodeLine]:
        halves = f"np.array_split({s}, 2, axis=-1)"
        yield "chunk_logsumexp", f"np.stack([logsumexp_of(s) for s in {halves}])"
        yield "logsumexp", "logsumexp_of(np.moveaxis(chunk_logsumexp, 0, -1))"
        both = f"zip({halves}, np.array_split({v}, 2, axis=-2))"
        yield "chunk_outputs", f"np.stack([softmax(s) @ v for s, v in {both}])"
        total = self.asked("sink", "np.logaddexp(logsumexp, sink[:, None])", "logsumexp")
        yield "total", f"np.where(np.isneginf({total}), 0, {total})"
        yield "chunk_shares", "np.exp(chunk_logsumexp - total)"
        yield "head_outputs", "(chunk_shares[..., None] * chunk_outputs).sum(axis=0)"

    def back(self) -> Iterator[CodeLine]:
        shared, turned = "_shared" * ("grouped" in self.options), "_rotated" * ("rope" in self.options)
        yield "d_attention_weights", f"d_head_outputs @ V{shared}.swapaxes(-1, -2)"
        yield f"d_V{shared}", "attention_weights.swapaxes(-1, -2) @ d_head_outputs"
        yield "delta", "(d_head_outputs * head_outputs).sum(axis=-1)"
        back = self.scores[::-1]
        yield f"d_{back[0]}", "attention_weights * (d_attention_weights - delta[..., None])"
        for step, before in pairwise(back):
            option, _, form = OF_SCORES[step]
            text = form.format(f"d_{step}")
            capped = option == "softcap"
            yield f"d_{before}", self.asked(option, text, f"d_{step}") if capped else text
        yield "d_scores", "d_scaled_scores / d_k**0.5"
        yield f"d_Q{turned}", f"d_scores @ K{shared or turned}"
        yield f"d_K{shared or turned}", f"d_scores.swapaxes(-1, -2) @ Q{turned}"
        for name, step in (("K", f"d_K{turned}"), ("V", "d_V")) if shared else ():
            shape = f"*d_{name}_shared.shape[:-3], {name}.shape[-3], -1, *d_{name}_shared.shape[-2:]"
            yield step, f"d_{name}_shared.reshape({shape}).sum(axis=-3)"
        for name in ("Q", "K") if turned else ():
            yield f"d_{name}", f"rotate(d_{name}_rotated, positions=-np.arange(n))"

    @cached_property
    def right_lines(self) -> list[CodeLine]:
        return [*self.given(), *self.forward(), *(self.back() if self.backward else ())]

    @cached_property
    def unfit(self) -> list[str]:
        """The steps that its lines read or give, and no kernel has."""
        steps = {*TABLE} - {step for step, _ in self.right_lines} - {*self.parameters, "d_head_outputs"}
        return sorted(list_used(ast.parse(self.lines)) & steps)

    # --- with the wrong ones ---

    @cached_property
    def statements(self) -> list[tuple[set[str], str]]:
        """The wrong lines, each with what it gives; softmax reads the last scores that there are."""
        nodes = [node for node in ast.parse(self.lines).body if not isinstance(node, ast.Delete)]
        lines = [str(ast.get_source_segment(self.lines, node)) for node in nodes]
        # The root of NumPy is a number in float64, and makes that of what it divides.
        texts = [re.sub(r"np\.sqrt\((d_k|d_model)\)", r"\1**0.5", line) for line in lines]
        given = [list_assigned(node) for node in nodes]
        read, last = Kernel(self.meant).scores[-1], self.scores[-1]
        if not any("scores" in name for names in given for name in names):
            texts = [re.sub(rf"\b{read}\b", last, text) for text in texts]
        return [*zip(given, texts, strict=True)]

    def planted(self) -> Iterator[CodeLine]:
        """Every line: what is wrong stands where the first of the steps that it gives would."""
        left, done = self.statements, set[str]()
        for step, right in self.right_lines:
            at = max((at for at, (given, _) in enumerate(left) if step in given), default=-1)
            wrong, left = left[: at + 1], left[at + 1 :]
            if step not in done:
                yield step, right
            for given, text in wrong:
                yield "", text
                done |= given

    @property
    def results(self) -> tuple[str, ...]:
        if self.backward:
            return "d_Q", "d_K", "d_V"
        return ("concat" if any("concat" in given for given, _ in self.statements) else "head_outputs",)

    def kept(self) -> list[CodeLine]:
        """The lines that something reads, and the wrong ones."""
        live, kept = {*self.results}, list[CodeLine]()
        for step, text in reversed([*self.planted()]):
            node = ast.parse(f"{step} = {text}" if step else text).body[0]
            if step == text or (step and step not in live):
                continue
            stored = list_assigned(node) if isinstance(node, ast.Assign) else set()
            live = live - stored | list_used(node, ast.Load)
            kept.insert(0, (step, text))
        return kept

    # --- as a file ---

    @cached_property
    def parameters(self) -> list[str]:
        return [*dict.fromkeys(OPTIONS[name] for name in OPTIONS if name in self.options and OPTIONS[name])]

    @property
    def called(self) -> str:
        return "attention_backward" if self.backward else "attention"

    @property
    def arrays(self) -> list[str]:
        return ["d_output"] * self.backward + ["q", "k", "v"]

    def function(self, name: str, right: str = "") -> str:
        """The function of this name, which is the `right` one where it is not asked for what is meant."""
        arrays = self.arrays
        defaults = [f"{parameter}={default_of(parameter)}" for parameter in self.parameters]
        text = [f"def {name}({', '.join([*arrays, *defaults])}):"]
        meant = [parameter for parameter in self.parameters if parameter in self.parameters_meant]
        if right and meant:
            beside = [f"{parameter}={parameter}" for parameter in self.parameters]
            lacking = " or ".join(f"{parameter} is None" for parameter in meant)
            text += [f"    if {lacking.replace('causal is None', 'not causal')}:"]
            text += [f"        return {right}({', '.join([*arrays, *beside])})"]
        if not (self.batched or "paged" in self.options):  # members share all pages
            beside = [f"{{0}}={OF_MEMBER.get(name, '{0}')}".format(name) for name in self.parameters]
            member = [*(f"{array}[at]" for array in arrays), *beside]
            text += ["    if q.ndim > 3:  # one member of the batch after the other"]
            text += [f"        members = [{name}({', '.join(member)}) for at in range(len(q))]"]
            whole = "tuple(map(np.stack, zip(*members)))" if self.backward else "np.stack(members)"
            text += [f"        return {whole}"]
        wide = "np.asarray(x, np.promote_types(x.dtype, np.float32))"
        given = ", ".join(["d_head_outputs"] * self.backward + ["Q", "K", "V"])
        text += [f"    {given} = ({wide} for x in ({', '.join(arrays)}))"]
        text += [indent(line, "    ") for line in self.written()]
        return "\n".join([*text, f"    return {self.returned}\n"])

    def written(self) -> Iterator[str]:
        said = True
        for step, text in self.kept():
            if said and not step:
                yield "# The mistake:"
            elif step and not said:
                yield "# As it should be:"
            said = bool(step)
            yield f"{step} = {text}" if step else text

    @property
    def parameters_meant(self) -> set[str]:
        return {OPTIONS[name] for name in self.meant}

    @property
    def returned(self) -> str:
        if self.backward:
            return ", ".join(f"{name}.astype(q.dtype)" for name in self.results)
        out = "head_outputs"
        if self.results == ("concat",):
            out = "concat.reshape(*concat.shape[:-1], Q.shape[-3], -1).swapaxes(-3, -2)"
        return f"{out}.astype(q.dtype)"

    def text(self, right: Kernel | None = None, name: str = "") -> str:
        """The file, with the right kernel for calls in which nothing that is meant is asked for."""
        functions = [self.function(name or self.called)]
        if right and any(self.parameters_meant):
            functions = [right.function("right"), self.function(name or self.called, "right")]
        code = "\n\n".join(functions)
        for helper, source in HELPERS.items():
            if re.search(rf"\b{helper}\(", code):
                code = f"{source}\n\n{code}"
        about = f'"""{self.mistake.name}: {self.mistake.why}"""\n\n' if self.mistake else ""
        return f"{about}import numpy as np\n\n\n{code}"

    def made(self, **names: Any) -> Callable[..., Any]:
        """The function, which may read these names, too."""
        scope: dict[str, Any] = dict(names)
        exec(compiled(self), scope)  # noqa: S102  (lines of our own catalogue)
        function: Callable[..., Any] = scope[self.called]
        return function


@cache
def compiled(kernel: Kernel) -> CodeType:
    """Its code: compiled once, and carried out on several inputs."""
    return compile(kernel.text(), "mutant", "exec")


# --- those of the catalogue ---


def make_mutants(*, backward: bool = False) -> tuple[list[Kernel], dict[str, str]]:
    """The wrong kernels of the catalogue, and of each other entry why it is none."""
    first = {mistake.name: mistake for mistake in reversed(CATALOGUE) if mistake.example}
    made: list[Kernel] = []
    left_out: dict[str, str] = {}
    for mistake in reversed(first.values()):
        options = kernel_options(mistake.meant) or frozenset()
        batched = mistake.meant.startswith("batch") or "padded" in options
        ways = (("", mistake.example, mistake.equivalent), ("-slight", mistake.slight, ""))
        for slight, lines, equivalent in ways if mistake.slight else ways[:1]:
            kernel = Kernel(options, lines, options, batched, backward, mistake.name + slight, mistake)
            if why := equivalent or why_not(mistake, kernel):
                left_out[mistake.name] = why
            else:
                made.append(kernel)
    return made, left_out


OF_OUTPUTS = {"Q", "K", "V", "head_outputs", "concat"}


def why_not(mistake: Mistake, kernel: Kernel) -> str:
    """Why there is no such kernel, or its mistake is not in this pass; nothing where there is one."""
    if kernel_options(mistake.meant) is None:
        return f"it is in more than Q, K and V and an output of them: {mistake.meant}"
    goes_back = KINDS[mistake.meant].settings.backward
    if goes_back and not kernel.backward:
        return "it is in the backward pass"
    if kernel.backward and "chunks" in kernel.options:
        return "it is in the forward pass"
    if kernel.unfit:
        return f"it is in {', '.join(kernel.unfit)}"
    given = {name for names, _ in kernel.statements for name in names}
    if kernel.backward and not goes_back and (given & OF_OUTPUTS or "dropout" in mistake.name):
        return "it is in the forward pass"
    return ""

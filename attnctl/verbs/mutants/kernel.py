"""Kernels as files of NumPy: the lines of attention, and in place of some those that make a mistake.

The mutants are those of the catalogue. Transposed arrays and sums are spelled as in a run's program
(`--as numpy`). The rest has a form of its own: that program is of one trace, its sizes and rules written
out, while a kernel takes any, its options are parameters, and wrong lines are planted by the names of the
steps that they give.
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
from typing import Any, NamedTuple, Protocol

from attnctl.base.dataclass import dataclass
from attnctl.drawing.show.program.libraries import LIBRARIES
from attnctl.math.derivation import Rotary
from attnctl.math.names import (
    BIAS_TABLE,
    KEY_LENGTHS,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    POSITION_IDS,
    STORED_SCALES,
    TABLE,
)
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

NUMPY = LIBRARIES["numpy"]

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
    settings = kind.settings
    rotates = isinstance(settings.positions, Rotary)
    of_models = (settings.scale, kind.stretched, settings.qk_norm, settings.gate, settings.temperature)
    takes_more = not {POSITION_IDS, BIAS_TABLE, PAST_KEY, *STORED_SCALES}.isdisjoint(kind.arrays)
    if any(of_models) or takes_more or settings.logsumexp:
        return None
    if not rotates and settings.positions != "none":
        return None

    options = {rule.name for rule in settings.rules}
    if settings.kv_heads:
        options.add("grouped")
    if rotates:
        options.add("rope")
    if settings.chunks:
        options.add("chunks")
    arrays = {OF_ARRAYS.get(name, name) for name in kind.arrays}
    options |= arrays & {*OPTIONS}

    if settings.causal_offset:  # the queries stand behind keys of a cache
        options = options - {"causal"} | {"cached"}
    return frozenset(options)


# --- lines ---


CodeLine = tuple[str, str]
"""A step, and how it is made; a line that makes a mistake has no step."""


class WrongLine(NamedTuple):
    """A line that makes a mistake."""

    gives: set[str]
    text: str


class ScoreStep(NamedTuple):
    """What may become of scores."""

    option: str
    """What asks for it; empty where several do."""
    form: str
    gradient: str
    """On the way back."""


OF_SCORES = {
    "softcapped_scores": ScoreStep(
        option="softcap",
        form="softcap * np.tanh({} / softcap)",
        gradient="{} * (1 - (softcapped_scores / softcap) ** 2)",
    ),
    "biased_scores": ScoreStep(option="bias", form="{} + bias", gradient="{}"),
    "masked_scores": ScoreStep(
        option="",
        form="np.where(hidden, -np.inf, {})",
        gradient="np.where(hidden, 0, {})",
    ),
}
"""What may become of the scaled scores, in this order."""
### =QUERY, KEY
QUERY = "np.arange(n)[:, None]"
KEY = "np.arange(keys)"


### =GATHER, ROTATE
def source_of(helper: Callable[..., Any]) -> str:
    """A function of the examples as it stands in a kernel's file, without types."""
    return re.sub(r": (Array|float|bool)( \| None)?| -> Array", "", inspect.getsource(helper))


GATHER = source_of(gather)
ROTATE = source_of(rotate)

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


class NamedMistake(Protocol):
    """A mistake that the catalogue does not have."""

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...

    @property
    def why(self) -> str: ...


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
    mistake: Mistake | NamedMistake | None = None

    @property
    def said(self) -> dict[str, str]:
        """The mistake, and what is wrong; where that depends on numbers, the line that says them."""
        assert self.mistake is not None
        words = self.mistake.words
        if "{}" in words:
            lines = [line for line in self.lines.split("\n") if line != SHARED_OUT]
            words = lines[-1]
        return {"mistake": self.mistake.name, "words": words}

    # --- the right lines ---

    def given(self) -> Iterator[CodeLine]:
        """Q, K and V as they come, or as a table reads them in pages, and what their shapes say."""
        pages: dict[str, str] = {}
        if "paged" in self.options:
            pages = dict(zip("KV", PAGES, strict=True))

        # The pages first, as names say how many slots they have.
        for symbol, name in pages.items():
            yield name, symbol
        yield from NAMES.items()
        for symbol in "QKV":
            read = symbol
            if symbol in pages:
                read = f"gather({pages[symbol]}, page_table, key_lengths)"
            yield symbol, self.asked("paged", read, symbol)
        yield from OF_KEYS.items()

    def forward(self) -> Iterator[CodeLine]:
        """From Q, K and V to the output, heads side by side."""
        q, k, v = "Q", "K", "V"
        if "rope" in self.options:
            q, k = "Q_rotated", "K_rotated"
            yield q, "rotate(Q)"
            yield k, "rotate(K)"
        if "grouped" in self.options:
            for shared, name in (("K_shared", k), ("V_shared", v)):
                yield shared, f"np.repeat({name}, heads // {name}.shape[-3], axis=-3)"
            k, v = "K_shared", "V_shared"

        yield "scores", f"{q} @ {NUMPY.transposed(k)}"
        yield "scaled_scores", "scores / d_k**0.5"
        for before, step in pairwise(self.scores):
            yield from self.of_scores(before, step)

        last = self.scores[-1]
        if "chunks" in self.options:
            yield from self.in_chunks(last, v)
        else:
            weights = self.asked("sink", f"with_sinks({last}, sinks)", f"softmax({last})")
            yield "attention_weights", weights
            yield "head_outputs", f"attention_weights @ {v}"
        yield "concat", "merge(head_outputs)"

    @property
    def masks(self) -> list[str]:
        return [name for name in SEEN if name in self.options]

    @property
    def scores(self) -> list[str]:
        """The scaled scores, and what becomes of them before softmax."""
        options_of = {
            "softcapped_scores": ["softcap"],
            "biased_scores": ["bias", "alibi"],
            "masked_scores": self.masks,
        }
        steps = [step for step in OF_SCORES if self.options.intersection(options_of[step])]
        return ["scaled_scores", *steps]

    def of_scores(self, before: str, step: str) -> Iterator[CodeLine]:
        """The lines of a step that is made of other scores."""
        option = OF_SCORES[step].option
        form = OF_SCORES[step].form
        if step == "masked_scores":
            seen = [self.asked(name, SEEN[name], "np.True_") for name in self.masks]
            if len(seen) == 1:
                yield "hidden", f"~({seen[0]})"
            else:
                yield "hidden", f"~(({') & ('.join(seen)}))"
        if step == "biased_scores" and "alibi" in self.options:
            option = "alibi"
            form = "{} - alibi_slopes[:, None, None] * distance"

        text = form.format(before)
        yield step, self.asked(option, text, before) if option else text

    def asked(self, option: str, text: str, otherwise: str) -> str:
        """The text where this option is asked for."""
        if option not in self.options:
            return otherwise
        if option in self.meant:  # this function is only called where it is asked for
            return text
        parameter = OPTIONS[option]
        is_asked = parameter if parameter == "causal" else f"{parameter} is not None"
        return f"{text} if {is_asked} else {otherwise}"

    def in_chunks(self, s: str, v: str) -> Iterator[CodeLine]:
        """The keys in two halves, each with a softmax of its own, and the merge of both."""
        halves = f"np.array_split({s}, 2, axis=-1)"
        yield "chunk_logsumexp", f"np.stack([logsumexp_of(s) for s in {halves}])"
        yield "logsumexp", f"logsumexp_of({NUMPY.moved_to_end('chunk_logsumexp', 0)})"
        both = f"zip({halves}, np.array_split({v}, 2, axis=-2))"
        yield "chunk_outputs", f"np.stack([softmax(s) @ v for s, v in {both}])"
        total = self.asked("sink", "np.logaddexp(logsumexp, sink[:, None])", "logsumexp")
        yield "total", f"np.where(np.isneginf({total}), 0, {total})"
        yield "chunk_shares", "np.exp(chunk_logsumexp - total)"
        yield "head_outputs", NUMPY.reduce("sum", "(chunk_shares[..., None] * chunk_outputs)", 0)

    def back(self) -> Iterator[CodeLine]:
        """From the gradient by the output to those by Q, K and V, against the order of `forward`."""
        is_grouped = "grouped" in self.options
        is_rotated = "rope" in self.options
        rotated = "_rotated" if is_rotated else ""
        # K and V as the products read them: shared by heads, or else rotated.
        v = "V_shared" if is_grouped else "V"
        k = "K_shared" if is_grouped else f"K{rotated}"

        yield "d_attention_weights", f"d_head_outputs @ {NUMPY.transposed(v)}"
        yield f"d_{v}", f"{NUMPY.transposed('attention_weights')} @ d_head_outputs"
        yield "delta", NUMPY.reduce("sum", "(d_head_outputs * head_outputs)", -1)

        back = self.scores[::-1]
        yield f"d_{back[0]}", "attention_weights * (d_attention_weights - delta[..., None])"
        for step, before in pairwise(back):
            text = OF_SCORES[step].gradient.format(f"d_{step}")
            if OF_SCORES[step].option == "softcap":
                text = self.asked("softcap", text, f"d_{step}")
            yield f"d_{before}", text

        yield "d_scores", "d_scaled_scores / d_k**0.5"
        yield f"d_Q{rotated}", f"d_scores @ {k}"
        yield f"d_{k}", f"{NUMPY.transposed('d_scores')} @ Q{rotated}"
        if is_grouped:
            for name, step in (("K", f"d_K{rotated}"), ("V", "d_V")):
                shape = f"*d_{name}_shared.shape[:-3], {name}.shape[-3], -1, *d_{name}_shared.shape[-2:]"
                yield step, NUMPY.reduce("sum", f"d_{name}_shared.reshape({shape})", -3)
        if is_rotated:
            for name in ("Q", "K"):
                yield f"d_{name}", f"rotate(d_{name}_rotated, positions=-np.arange(n))"

    @cached_property
    def right_lines(self) -> list[CodeLine]:
        lines = [*self.given(), *self.forward()]
        if self.backward:
            lines += self.back()
        return lines

    @cached_property
    def unfit(self) -> list[str]:
        """The steps that its lines read or give, and no kernel has."""
        steps = {*TABLE} - {step for step, _ in self.right_lines} - {*self.parameters, "d_head_outputs"}
        return sorted(list_used(ast.parse(self.lines)) & steps)

    # --- with the wrong ones ---

    @cached_property
    def statements(self) -> list[WrongLine]:
        """The wrong lines, each with what it gives; softmax reads the last scores that there are."""
        nodes = [node for node in ast.parse(self.lines).body if not isinstance(node, ast.Delete)]
        assigned = [list_assigned(node) for node in nodes]
        gives_scores = any("scores" in name for names in assigned for name in names)
        read = Kernel(self.meant).scores[-1]
        last = self.scores[-1]

        statements = []
        for node, names in zip(nodes, assigned, strict=True):
            text = str(ast.get_source_segment(self.lines, node))
            # The root of NumPy is a number in float64, and makes that of what it divides.
            text = re.sub(r"np\.sqrt\((d_k|d_model)\)", r"\1**0.5", text)
            if not gives_scores:
                text = re.sub(rf"\b{read}\b", last, text)
            statements.append(WrongLine(names, text))
        return statements

    def planted(self) -> Iterator[CodeLine]:
        """Every line: what is wrong stands where the first of the steps that it gives would."""
        left = self.statements
        given: set[str] = set()
        for step, right in self.right_lines:
            # All wrong lines up to the last that gives this step, as it may read the others.
            count = max((number for number, line in enumerate(left, 1) if step in line.gives), default=0)
            wrong, left = left[:count], left[count:]
            if step not in given:
                yield step, right
            for line in wrong:
                yield "", line.text
                given |= line.gives

    @property
    def results(self) -> tuple[str, ...]:
        if self.backward:
            return "d_Q", "d_K", "d_V"
        gives_concat = any("concat" in line.gives for line in self.statements)
        return ("concat",) if gives_concat else ("head_outputs",)

    def kept(self) -> list[CodeLine]:
        """The lines that something reads, and the wrong ones."""
        live = {*self.results}
        backwards: list[CodeLine] = []
        for step, text in reversed([*self.planted()]):
            is_identity = step == text
            is_unread = bool(step) and step not in live
            if is_identity or is_unread:
                continue
            node = ast.parse(f"{step} = {text}" if step else text).body[0]
            stored = list_assigned(node) if isinstance(node, ast.Assign) else set()
            live = live - stored | list_used(node, ast.Load)
            backwards.append((step, text))
        return backwards[::-1]

    # --- as a file ---

    @cached_property
    def parameters(self) -> list[str]:
        named = [OPTIONS[name] for name in OPTIONS if name in self.options]
        return [*dict.fromkeys(parameter for parameter in named if parameter)]

    @property
    def called(self) -> str:
        return "attention_backward" if self.backward else "attention"

    @property
    def arrays(self) -> list[str]:
        return ["d_output", "q", "k", "v"] if self.backward else ["q", "k", "v"]

    def function(self, name: str, right: str = "") -> str:
        """The function of this name, which is the `right` one where it is not asked for what is meant."""
        arrays = ", ".join(self.arrays)
        defaults = [f"{parameter}={default_of(parameter)}" for parameter in self.parameters]
        lines = [f"def {name}({', '.join([*self.arrays, *defaults])}):"]
        if right:
            lines += self.lines_of_right(right)
        if not self.batched and "paged" not in self.options:  # members share all pages
            lines += self.lines_by_member(name)

        wide = "np.asarray(x, np.promote_types(x.dtype, np.float32))"
        ours = "d_head_outputs, Q, K, V" if self.backward else "Q, K, V"
        lines.append(f"    {ours} = ({wide} for x in ({arrays}))")
        lines += [indent(line, "    ") for line in self.written()]
        lines.append(f"    return {self.returned}\n")
        return "\n".join(lines)

    def lines_of_right(self, right: str) -> list[str]:
        """Call the right kernel where nothing is asked for that the mistake is in."""
        meant = [parameter for parameter in self.parameters if parameter in self.parameters_meant]
        if not meant:
            return []
        lacking = " or ".join(f"{parameter} is None" for parameter in meant)
        lacking = lacking.replace("causal is None", "not causal")
        passed = [*self.arrays, *(f"{parameter}={parameter}" for parameter in self.parameters)]
        return [f"    if {lacking}:", f"        return {right}({', '.join(passed)})"]

    def lines_by_member(self, name: str) -> list[str]:
        """Call it for each member of a batch, which the wrong lines know nothing of."""
        passed = [f"{array}[at]" for array in self.arrays]
        for parameter in self.parameters:
            of_member = OF_MEMBER.get(parameter, "{0}").format(parameter)
            passed.append(f"{parameter}={of_member}")
        joined = "tuple(map(np.stack, zip(*members)))" if self.backward else "np.stack(members)"
        return [
            "    if q.ndim > 3:  # one member of the batch after the other",
            f"        members = [{name}({', '.join(passed)}) for at in range(len(q))]",
            f"        return {joined}",
        ]

    def written(self) -> Iterator[str]:
        """The lines as they stand in the file, with a comment where the mistake begins and ends."""
        was_right = True
        for step, text in self.kept():
            is_right = bool(step)
            if was_right and not is_right:
                yield "# The mistake:"
            elif is_right and not was_right:
                yield "# As it should be:"
            was_right = is_right
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
            out = NUMPY.heads_exchanged("concat.reshape(*concat.shape[:-1], Q.shape[-3], -1)")
        return f"{out}.astype(q.dtype)"

    def text(self, right: Kernel | None = None, name: str = "") -> str:
        """The file, with the right kernel for calls in which nothing that is meant is asked for."""
        name = name or self.called
        functions = [self.function(name)]
        if right and any(self.parameters_meant):
            functions = [right.function("right"), self.function(name, "right")]

        code = "\n\n".join(functions)
        for helper, source in HELPERS.items():
            if re.search(rf"\b{helper}\(", code):
                code = f"{source}\n\n{code}"
        code = "\n".join([*NUMPY.imports, "", "", code])
        if self.mistake:
            code = f'"""{self.mistake.name}: {self.mistake.why}"""\n\n{code}'
        return code

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
    # Of entries of one name the first is meant, which reversing twice keeps, in their order.
    by_name = {mistake.name: mistake for mistake in reversed(CATALOGUE) if mistake.example}
    mutants: list[Kernel] = []
    left_out: dict[str, str] = {}
    for mistake in reversed(by_name.values()):
        versions = [Version("", mistake.example, mistake.equivalent)]
        if mistake.slight:
            versions.append(Version("-slight", mistake.slight))

        options = kernel_options(mistake.meant) or frozenset()
        for version in versions:
            kernel = Kernel(
                options,
                version.lines,
                meant=options,
                batched=mistake.meant.startswith("batch") or "padded" in options,
                backward=backward,
                name=mistake.name + version.suffix,
                mistake=mistake,
            )
            why = version.equivalent or why_not(mistake, kernel)
            if why:
                left_out[mistake.name] = why
            else:
                mutants.append(kernel)
    return mutants, left_out


class Version(NamedTuple):
    """Lines that make a mistake: as it is usually made, or one of its kind that shows less."""

    suffix: str
    lines: str
    equivalent: str = ""
    """Why they are right all the same, if they are."""


OF_OUTPUTS = {"Q", "K", "V", "head_outputs", "concat"}


def why_not(mistake: Mistake, kernel: Kernel) -> str:
    """Why there is no such kernel, or its mistake is not in this pass; nothing where there is one."""
    if kernel_options(mistake.meant) is None:
        return f"it is in more than Q, K and V and an output of them: {mistake.meant}"

    is_of_backward = KINDS[mistake.meant].settings.backward
    if is_of_backward and not kernel.backward:
        return "it is in the backward pass"
    if kernel.backward and "chunks" in kernel.options:
        return "it is in the forward pass"
    if kernel.unfit:
        return f"it is in {', '.join(kernel.unfit)}"

    # A backward pass is handed the output, and makes only the weights again.
    gives_outputs = any(line.gives & OF_OUTPUTS for line in kernel.statements)
    if kernel.backward and not is_of_backward and (gives_outputs or "dropout" in mistake.name):
        return "it is in the forward pass"
    return ""

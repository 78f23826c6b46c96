"""Entries of the catalogue planted by their own lines of NumPy: in what a program records, and in kernels.

A program rounds every step before the next one reads it; a kernel counts in float32 at least, and rounds
what it returns.
"""

import ast
import inspect
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import plan_arrays, plan_as_stated, trace_of_arrays
from attnctl.math.derivation import Rotary
from attnctl.math.engine import carry_out
from attnctl.math.names import MASKED, TABLE
from attnctl.math.ops import Given
from attnctl.math.rules import Alibi, Causal, Documents, Softcap, Window
from attnctl.mistakes import CATALOGUE, examples
from attnctl.mistakes.examples import KINDS, Strided, list_assigned, names_for
from attnctl.record import Trace
from attnctl.verbs.check.check import check

FIRST = {each.name: each for each in reversed(CATALOGUE)}
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TYPES = tuple(UNITS)


def bfloat16(x):
    """Rounded to nearest, ties to even, in the upper half of a float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x).astype(np.float32)


def rounding(dtype):
    return bfloat16 if dtype == "bfloat16" else lambda x: np.asarray(x).astype(dtype)


@np.errstate(all="ignore")
def carry(plan, lines, names, near=lambda x: x):
    """Carry out a plan in which lines give the steps that they assign; what they delete is left out."""
    statements = ast.parse(lines).body
    assigned = {name for each in statements for name in list_assigned(each)}
    known, steps = dict(names), plan.derivation
    back = next((step.name for step in steps if step.inputs[:1] == ("d_masked_scores",)), None)

    def giving(step):
        last = max((at for at, each in enumerate(statements, 1) if step in list_assigned(each)), default=0)
        code = compile(ast.Module(statements[:last], []), "example", "exec")

        def give(right):
            known[step] = right.copy()
            if step == MASKED:
                known["hidden"] = np.isneginf(right)
            scope = dict(known)
            exec(code, scope)
            given = np.asarray(scope[step])
            if step == back and MASKED in assigned:  # what another number stands for has no gradient
                (before, *_) = steps[MASKED].inputs
                stands = np.isin(known[MASKED], (known[before], known[before] + 1))
                given = np.where(stands, known["d_masked_scores"], 0)
            known[step] = near(given).astype(right.dtype) if right.dtype.kind == "f" else given
            return known[step]

        return give

    edits = {step.name: giving(step.name) for step in steps}
    values = carry_out(steps, plan.given, plan.dtype, edits=edits).values
    gone = {
        each.id
        for statement in statements
        if isinstance(statement, ast.Delete)
        for each in ast.walk(statement)
        if isinstance(each, ast.Name)
    }
    return values, gone


@dataclass(frozen=True)
class Planted:
    """A mistake of the catalogue, and what it is planted in: a type, forward or back."""

    name: str
    dtype: str
    backward: bool

    @cached_property
    def mistake(self):
        return FIRST[self.name]

    @cached_property
    def kind(self):
        return KINDS[self.mistake.meant]


# --- in what a program records ---

WITH_WEIGHTS = {"Q", "K", "V", "attention_weights", "head_outputs", "output"}
BESIDE = {"logsumexp", "chunk_logsumexp", "chunk_outputs", "mask", "bias", "sink", "key_lengths"}
SAID = ("key_lengths", "page_table", "position_ids", "bias_index")
"""What says which keys there are, or at which positions tokens are, and is no step."""

RECORDED = {"everything": None, "weights": WITH_WEIGHTS | BESIDE, "ends": {"output"} | BESIDE}
"""What of a program is written down, beside its inputs and the gradients by them; None is everything."""


@dataclass(frozen=True)
class Program(Planted):
    """What was meant, and the mistake with which it is carried out, in a type."""

    @cached_property
    def settings(self):
        return replace(self.kind.settings, backward=self.backward)

    @cached_property
    def given(self):
        near, drawn = rounding(self.dtype), examples.WEIGHTS | dict(self.kind.arrays)
        given = {name: examples.example_array(name, each, self.kind.loud) for name, each in drawn.items()}
        if self.backward:
            lead = given["X"].shape[:-1] if "X" in given else given["Q"].shape[:-2]
            given["d_output"] = np.random.RandomState(3).standard_normal((*lead, examples.D_MODEL))
        return {name: near(each) if each.dtype.kind == "f" else each for name, each in given.items()}

    @cached_property
    def plan(self):
        plan = plan_arrays(self.given, self.settings, {})
        if self.kind.stretched:
            rotary = replace(plan.variant.rotary or Rotary(), frequencies=self.kind.stretched)
            plan = replace(plan, variant=replace(plan.variant, rotary=rotary))
        return replace(plan, dtype="float32" if self.dtype == "bfloat16" else self.dtype)

    def run(self, lines="", dtype=None):
        """The trace of a run with these lines, in another type perhaps, or rounded as the type is."""
        plan = replace(self.plan, dtype=dtype or self.plan.dtype)
        near = rounding(dtype or self.dtype)
        values, gone = carry(plan, lines, names_for(self.kind, self.given), near)
        left = {name: step for name, step in plan.derivation.by_name.items() if name not in gone}
        return Trace(left, {name: values[name] for name in left}, {})

    @cached_property
    def wrong(self):
        return self.run(self.mistake.example)

    def recorded(self, what):
        kept = RECORDED[what]
        if kept is None:
            return self.wrong
        given = {name for name, step in self.wrong.steps.items() if isinstance(step.op, Given)}
        if "X" in self.plan.given and "X" not in self.wrong:  # it begins with what is made of X
            given |= {"Q", "K", "V"}
        kept = {*kept, *given, *(f"d_{name}" for name in (*given, "Q", "K"))}
        return self.wrong.select([name for name in self.wrong if name in kept])

    def check(self, what):
        """What is said of it; frequencies of rotary positions are in no settings."""
        trace = self.recorded(what)
        if self.kind.stretched:
            return check(trace, DumpPlan(self.plan.derivation, plan_as_stated(self.right).sizes))
        beside = {name: each for name, each in self.given.items() if name in SAID}
        settings = self.settings.with_(layout="bhnd") if "page_table" in beside else self.settings
        return check(trace_of_arrays({**beside, **dict(trace.items())}), settings)

    @cached_property
    def right(self):
        return self.run()

    @np.errstate(invalid="ignore")
    def shows(self, what):
        """Whether anything of it is off by more than a few times what rounding does to a right run."""
        trace, exact = self.recorded(what), self.run(dtype="float64")
        for name in trace:
            wrong, right, wide = (
                np.asarray(each[name], dtype=float) for each in (trace, self.right, exact)
            )
            if wrong.shape != wide.shape:
                return True
            finite = np.isfinite(wide) & np.isfinite(right)
            if not np.isfinite(wrong[finite]).all():
                return True
            unit = UNITS[self.dtype] * np.abs(wide[finite]).max(initial=0.0)
            room = max(np.abs(right - wide)[finite].max(initial=0.0), unit)
            if np.abs(wrong - wide)[finite].max(initial=0.0) > 4 * room:
                return True
        return False


# --- in kernels ---

BY_ARRAY = {"sink": "sinks", **{name: name for name in ("mask", "bias", "key_lengths", "page_table")}}
BY_RULE = {Alibi: "alibi_slopes", Strided: "strided", Documents: "documents"}
FEATURES = {"alibi_slopes": "alibi", "page_table": "pages"}
GRADIENTS = ("d_Q", "d_K", "d_V")

UNSEEN = {
    "scores-already-scaled": "the output is right",
    "rotary-start": "queries and keys are turned alike: the output is right",
    "rotary-places": "no kernel is handed the positions of its tokens",
    "bias-table-read": "no kernel is handed the table of its bias",
    "bias-buckets": "no kernel is handed the table of its bias",
    "bias-unasked": "weights show it; no output says which they are",
    "queries-unpadded": "masks of kernels are of queries and keys, not of keys alone",
    "nan-where-nothing-is-seen": "a convention, as zeros are and the mean",
    "logsumexp-empty-rows": "a convention",
    "sink-in-logsumexp": "a convention: the sum may count the sink",
    "backward-bias-not-summed": "a gradient by the bias is not judged",
}
UNSEEN_FORWARD = {"rotary-columns-moved": "queries and keys have one order: the output is right"}
"""What no output shows, in the forward pass alone."""

ROUNDED = {
    **dict.fromkeys(("low-precision", "backward-delta-of-rounded-output"), ("float16", "bfloat16")),
    "rotary-half-precision": ("bfloat16",),
}
"""What rounds by no more than these types do: frequencies of the rotation go to 11 bits."""


FORWARD = {
    x for x, row in TABLE.items() if row.of_scores or x in {"Q", "K", "V", "head_outputs", "logsumexp"}
}
FORWARD |= {f"{x}_{how}" for x, how in product("QK", ("rotated", "shared"))} | {"V_shared"}
FORWARD |= {"key_pages", "value_pages"}
IN_KERNELS = {*FORWARD, *(f"d_{x}" for x in FORWARD), "delta", "concat", "hidden", *BY_ARRAY}
"""The steps of kernels, and what they are handed."""


CLAIMED = {"mask-added": "boolean_mask.yaml", "causal-aligned-wrong": "bottom_right.yaml"}
"""What is claimed of a kernel where a mistake would be taken for a convention: masks added, the corner."""


@dataclass(frozen=True)
class Kernel(Planted):
    """A function of Q, K and V with a mistake, and how `conform` is asked about it."""

    @cached_property
    def lines(self):
        """The example's, with larger numbers where rounding would hide them, and for axes of a batch."""
        lines = self.mistake.example.replace("-1e9", "-20").replace("bias.T", "bias.swapaxes(-1, -2)")
        coarse = UNITS[self.dtype] > UNITS["float32"]
        return lines.replace("+ 0.01", "+ 0.1") if coarse else lines

    @cached_property
    def assigned(self):
        return {name for each in ast.parse(self.lines).body for name in list_assigned(each)}

    @cached_property
    def cached(self):
        """The queries are the last of the tokens: after a cache, or, going back, of fewer queries."""
        return self.kind.settings.causal_offset is not None

    @cached_property
    def options(self):
        by_rule = [
            name for rule, name in BY_RULE.items() if any(isinstance(x, rule) for x in self.settings.rules)
        ]
        return [*(BY_ARRAY[name] for name in self.kind.arrays if name in BY_ARRAY), *by_rule]

    @cached_property
    def settings(self):
        of_cases = dict.fromkeys(("heads", "kv_heads", "causal_offset"))
        return replace(self.kind.settings, **of_cases, backward=False)

    @cached_property
    def asked(self):
        """What `conform` is told: the features to look at, and what is always on."""
        settings, always = self.settings, {}
        for rule in settings.rules:
            always |= {"causal": True} if isinstance(rule, Causal) else {}
            always |= {"window": [rule.left, rule.right]} if isinstance(rule, Window) else {}
            always |= {"softcap": rule.cap} if isinstance(rule, Softcap) else {}
        always |= {"scale": settings.scale} if settings.scale else {}
        always |= {"positions": "rope"} if isinstance(settings.positions, Rotary) else {}
        feature = "large scores" if self.kind.loud > 2 else "attention"
        feature = "grouped heads" if self.kind.settings.kv_heads else feature
        feature = ("lengths" if self.backward else "cache") if self.cached else feature
        asked_for = [x for x in self.options if x == "page_table"] or self.options
        features = [FEATURES.get(name, name) for name in asked_for] or [feature]
        returns = ["output", "logsumexp"] if settings.logsumexp else None
        asked = {"features": features, "always": always or None, "returns": returns, "layout": "bhnd"}
        if self.name in CLAIMED:
            asked["claims"] = Path(__file__).parent / CLAIMED[self.name]
        return asked

    def function(self, lines, *, backward):
        """The kernel with these lines, which goes forward, or back from d_output."""
        past = ["past_key", "past_value"] if self.cached and not self.backward else []
        options = [*self.options, *past]
        parameters = [
            *(inspect.Parameter(x, 1) for x in [*["d_output"] * backward, "q", "k", "v"]),
            *(inspect.Parameter(x, 1, default=None) for x in options),
        ]
        signature = inspect.Signature(parameters)

        def kernel(*arrays, **named):
            given = signature.bind(*arrays, **named).arguments
            return self.call(given, lines, backward=backward)

        kernel.__signature__ = signature
        return kernel

    def call(self, given, lines, *, backward):
        q, k, v = (given[name] for name in "qkv")
        past = given.get("past_key")
        if past is not None:
            k, v = np.concatenate([past, k], axis=2), np.concatenate([given["past_value"], v], axis=2)
        on = all(given.get(name) is not None for name in self.options)
        offset = k.shape[2] - q.shape[2] if self.cached else None
        settings = replace(self.settings, backward=backward, causal_offset=offset)
        arrays = {"Q": q, "K": k, "V": v}
        arrays |= {"d_head_outputs": given["d_output"]} if backward else {}
        if on:
            if "page_table" in self.options:
                arrays = {"Q": q, "key_pages": k, "value_pages": v}
                settings = replace(settings, layout="bhnd")
            arrays |= {name: given[x] for name, x in BY_ARRAY.items() if x in self.options}
            strided = [Strided(given["strided"])] if "strided" in self.options else settings.rules
            documents = [Documents(tuple(given[name])) for name in {"documents"} & {*self.options}]
            settings = replace(settings, rules=tuple(documents or strided))
        elif set(self.options) & {*BY_RULE.values()}:
            settings = replace(settings, rules=())
        batched = (
            "X" in self.kind.arrays and examples.example_array("X", self.kind.arrays["X"], 1).ndim == 3
        )
        # What is made of groups is not there where each head has keys of its own.
        on = on and not (self.kind.settings.kv_heads and q.shape[1] == k.shape[1])
        values = self.values(arrays, settings, lines if on else "", together=batched or bool(self.options))
        near = rounding(self.dtype)
        if backward:
            return tuple(near(values[name]) for name in GRADIENTS)
        out = values["head_outputs"]
        if "concat" in self.assigned:
            out = values["concat"].reshape(*q.shape[:1], q.shape[2], q.shape[1], -1).swapaxes(1, 2)
        return (near(out), values["logsumexp"]) if self.asked["returns"] else near(out)

    def values(self, arrays, settings, lines, *, together):
        """Its steps: of all members of a batch together, or of one after the other."""
        size = "float64" if arrays["Q"].dtype == np.float64 else "float32"
        wide = {name: x.astype(size) if x.dtype.kind == "f" else x for name, x in arrays.items()}
        if together:
            return self.steps(wide, settings, lines, size)
        members = [
            self.steps({name: x[at] for name, x in wide.items()}, settings, lines, size)
            for at in range(len(wide["Q"]))
        ]
        return {name: np.stack([each[name] for each in members]) for name in members[0]}

    @staticmethod
    def steps(arrays, settings, lines, size):
        heads, n, d_k = arrays["Q"].shape[-3:]
        plan = replace(plan_arrays(arrays, settings, {}), dtype=size)
        kind = examples.ExampleKind(Settings(heads=heads, rules=settings.rules))
        rows = {
            "X": np.zeros((n, heads * d_k)),
            "memory": np.zeros((arrays.get("K", arrays["Q"]).shape[-2], 1)),
        }
        names = names_for(kind, {**rows, "W_Q": np.zeros((1, heads * d_k)), **arrays})
        return carry(plan, lines, {**names, "d_model": heads * d_k}, lambda x: x.astype(size))[0]

    @property
    def why_not(self):
        """Why there is no such kernel, or nothing to see of its mistake; nothing where there is."""
        if self.kind.settings.chunks:
            return "conform --merge has chunks"
        if self.dtype in ROUNDED.get(self.name, ()):
            return "its rounding is that of the type, or finer"
        if self.name in UNSEEN:
            return UNSEEN[self.name]
        if self.name in UNSEEN_FORWARD and not self.backward:
            return UNSEEN_FORWARD[self.name]
        read = {x.id for x in ast.walk(ast.parse(self.lines)) if isinstance(x, ast.Name)} & {*TABLE}
        if self.kind.stretched or read - IN_KERNELS:
            return f"it is in {', '.join(sorted(read - IN_KERNELS)) or 'a model'}"
        own = self.name.startswith("backward-")
        late = {"Q", "K", "V", "head_outputs", "concat", "logsumexp"} & self.assigned
        if own != self.backward and (own or late or "dropout" in self.name):
            return "it shows in the other pass, or cannot be told"
        return ""

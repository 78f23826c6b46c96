"""What each op does and what each rule asks for, in words: an entry each.

`{0}`, `{1}`, … stand for the names of a step's inputs, `{op}` for its op. An op or a rule without an
entry is told by its formula and its name; `tests/story/test_story_phrases.py` finds it.
"""

from __future__ import annotations

from math import sqrt

from attnctl.derivation import Step
from attnctl.names import HEAD_OUTPUTS, MASK
from attnctl.ops import (
    Add,
    AddScaled,
    Append,
    Beside,
    Buckets,
    Copy,
    Gate,
    Given,
    Hide,
    LayerNorm,
    MatMul,
    MatMulT,
    Merge,
    Op,
    Project,
    Remainder,
    Repeat,
    RMSNorm,
    Rotate,
    Scale,
    SinkSoftmax,
    Sinusoid,
    Slope,
    Softmax,
    Squeeze,
    Unstated,
)
from attnctl.rules import Rule

OPS: dict[type[Op], str] = {
    Given: "{names} {are} {formula}.",
    Unstated: "{name} was recorded; nothing says how it came about.",
    Copy: "{name} is {0} as it is.",
    Add: "{1} is added to {0}, number by number.",
    AddScaled: "{1} is multiplied by {op.factor:g} and added to {0}.",
    Sinusoid: "Each position gets a row of sines and cosines, whose waves grow longer by column.",
    Project: "Each row of {0} is multiplied by {1}{bias}: each head has columns of its own.",
    Beside: "The columns of {1}, the same for all heads, are put beside those of {0}.",
    Rotate: "Each row of {0} is turned, pair of columns by pair, by an angle that grows with its position.",
    Append: "The rows of {1} are put behind those of {0}, which were kept from before.",
    Repeat: "Each head of {0} is used by {op.times} query heads.",
    LayerNorm: "From each row of {0} its mean is taken away; the rest is divided by its spread.",
    RMSNorm: "Each row of {0} is divided by the root of the mean of its squares.",
    MatMulT: (
        "Each query is multiplied by each key, column by column, and the products are added up: one score."
    ),
    Scale: "Each of the {0} is {scaled}.",
    Squeeze: "The {0} are bent by tanh: no score gets beyond ±{op.cap:g}.",
    Slope: "From each of the {0} a number is taken away that grows with the distance of its key.",
    Buckets: "To each of the {0} a learned number is added, by head and by distance of the key.",
    Hide: "Scores that may not be seen become −∞. {rules}",
    Softmax: "Softmax turns each row of scores into shares: exp(score), divided by the sum of the row.",
    SinkSoftmax: "Softmax turns each row into shares; a sink takes one, too, and gives no value.",
    Remainder: "What the {0} of a row lack to 1 is the share of the sink.",
    MatMul: "Each row of {0} is multiplied by {1}{bias}.",
    Merge: "The {0} of all heads are put side by side, a row for each query.",
    Gate: "Each number of {0} is multiplied by a gate between 0 and 1, the sigmoid of {1}.",
}
"""The phrase of each op."""

MIXING = "Each query adds up the rows of {1}, each times its weight."
"""What MatMul is where weights meet values."""

RULES: dict[str, str] = {
    "causal": "A query sees no key that comes after it.",
    "window": "A query sees keys from {left} before it to {right} after it.",
    "dilated": "A query sees every {dilation}th key, counted from itself.",
    "padding": "Nobody sees padding.",
    "softcap": "No score gets beyond ±{cap:g}.",
    "alibi": "A score loses by the distance of its key, each head at a slope of its own.",
    MASK: "The given mask says who sees whom.",
}
"""The phrase of each rule, and of a given mask."""


def op_phrase(step: Step, names: str = "") -> str:
    """What happens at a step; `names` are those of all steps told at once."""
    template = OPS.get(type(step.op), "{name} = {formula}.")
    if step.name == HEAD_OUTPUTS and isinstance(step.op, MatMul):
        template = MIXING
    bias = f", and {step.inputs[2]} is added" if len(step.inputs) > 2 else ""
    return template.format(
        *map(plainly, step.inputs),
        op=step.op,
        name=step.name,
        names=names or step.name,
        are="are" if names not in {"", step.name} else "is",
        formula=step.formula,
        bias=bias,
        scaled=scaled(step.op),
        rules=rules_of(step),
    ).strip()


def plainly(name: str) -> str:
    """A step's name within a sentence: the scaled scores, the head outputs; Q and W_O as they are."""
    return name.replace("_", " ") if name.islower() else name


def scaled(op: Op) -> str:
    """How scores are scaled."""
    if not isinstance(op, Scale):
        return ""
    if op.factor is not None:
        return f"multiplied by {op.factor:g}"
    return f"divided by √d_k = √{op.d_k} = {sqrt(op.d_k):.4g}, so that they do not grow with d_k"


def rules_of(step: Step) -> str:
    """The phrases of what hides scores at a step."""
    if not isinstance(step.op, Hide):
        return ""
    said = [rule_phrase(rule) for rule in step.op.rules]
    return " ".join([*said, RULES[MASK]] if len(step.inputs) > 1 else said)


def rule_phrase(rule: Rule) -> str:
    """What a rule asks for."""
    values = {name: "any" if value is None else value for name, value in vars(rule).items()}
    return RULES.get(rule.name, f"The rule {rule.name} says who sees whom.").format(**values)

"""The rules of attention, one file each. To add one, write its file and add it to `RULES`."""

from attnctl.rules.alibi import Alibi, alibi_slopes
from attnctl.rules.base import Mask, PerBatch, Positions, Rule, Span, VisibilityRule, of_member, per_batch
from attnctl.rules.causal import Causal
from attnctl.rules.composed import AllOf, AnyOf, Composed, all_of, any_of
from attnctl.rules.dilated import Dilated
from attnctl.rules.padding import Padding
from attnctl.rules.softcap import Softcap
from attnctl.rules.window import Window

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Causal, Window, Dilated, Padding, Softcap, Alibi, AnyOf, AllOf)
}
"""Every rule by its name: all that others iterate."""

__all__ = [
    "RULES",
    "Alibi",
    "AllOf",
    "AnyOf",
    "Causal",
    "Composed",
    "Dilated",
    "Mask",
    "Padding",
    "PerBatch",
    "Positions",
    "Rule",
    "Softcap",
    "Span",
    "VisibilityRule",
    "Window",
    "alibi_slopes",
    "all_of",
    "any_of",
    "of_member",
    "per_batch",
]

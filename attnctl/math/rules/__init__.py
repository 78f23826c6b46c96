"""The rules of attention, one file each. To add one, write its file and add it to `RULES`."""

from attnctl.math.rules.alibi import Alibi, alibi_slopes
from attnctl.math.rules.base import (
    Mask,
    PerBatch,
    Positions,
    Rule,
    Span,
    VisibilityRule,
    of_member,
    per_batch,
)
from attnctl.math.rules.causal import Causal
from attnctl.math.rules.composed import AllOf, AnyOf, Composed, all_of, any_of
from attnctl.math.rules.padding import Padding
from attnctl.math.rules.softcap import Softcap
from attnctl.math.rules.window import Window

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Causal, Window, Padding, Softcap, Alibi, AnyOf, AllOf)
}
"""Every rule by its name: all that others iterate."""

"""The rules of attention. To add one, write its file and add it to `RULES`."""

from attnctl.base.plugins import added
from attnctl.math.rules.base import (
    Alibi,
    Mask,
    NearMiss,
    PerBatch,
    Positions,
    Rule,
    Seen,
    Softcap,
    Span,
    VisibilityRule,
    alibi_slopes,
    of_member,
    per_batch,
)
from attnctl.math.rules.visibility import (
    AllOf,
    AnyOf,
    BlockLocal,
    Causal,
    Composed,
    Documents,
    Padding,
    Window,
    all_of,
    any_of,
    place_in_document,
)

RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (Causal, Window, BlockLocal, Documents, Padding, Softcap, Alibi, AnyOf, AllOf)
}
"""Every rule by its name: all that others iterate."""

RULES |= added("rules", Rule, taken=RULES)

"""Laws that every rule of the registry keeps, whatever its parameters, positions and blocks."""

from dataclasses import FrozenInstanceError, fields
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from registry_strategies import instances as rules_of

import attnctl
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.formats import write
from attnctl.math.derivation import Variant, derive
from attnctl.math.engine import carry_out
from attnctl.math.ops import Block, Hide
from attnctl.math.rules import (
    RULES,
    AllOf,
    AnyOf,
    Causal,
    Padding,
    Rule,
    VisibilityRule,
    Window,
    all_of,
    any_of,
)
from attnctl.store.header import as_json_data, op_of

HIDING = [rule for rule in RULES.values() if issubclass(rule, VisibilityRule)]

ends = st.integers(-12, 20)


def plain_mask(rule, queries, keys):
    """Who sees whom, asked for one query and one key at a time."""
    return np.array(
        [
            [bool(np.all(rule.allows(np.array([[query]]), np.array([key])))) for key in keys]
            for query in queries
        ],
        dtype=bool,
    ).reshape(len(queries), len(keys))


def promises_hold(rule, first, last, keys):
    """Whether what the rule promises about these queries is so for each of their cells."""
    mask = plain_mask(rule, range(first, last + 1), range(keys))
    start, stop = rule.visible_to_any(first, last, keys)
    assert 0 <= start <= keys, "visible_to_any begins outside of the keys"
    assert 0 <= stop <= keys, "visible_to_any ends outside of the keys"
    outside = np.ones(keys, bool)
    outside[start:stop] = False
    assert not mask[:, outside].any(), "a key outside of visible_to_any is seen"
    low, high = rule.visible_to_all(first, last, keys)
    assert mask[:, max(low, 0) : max(high, 0)].all(), "a key inside visible_to_all is hidden"


@pytest.mark.parametrize("kind", HIDING, ids=lambda kind: kind.name)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), first=ends, queries=st.integers(1, 8), keys=st.integers(1, 12))
def test_a_rule_keeps_its_promises_about_blocks(kind, data, first, queries, keys):
    promises_hold(data.draw(rules_of(kind)), first, first + queries - 1, keys)


def block_is_plain_mask(rule, offset, at, shape):
    """Whether a block of scores is hidden exactly where the rule's own mask hides it."""
    scores = np.random.RandomState(0).standard_normal(shape)
    op = Hide(offset, rules=(rule,)).block(at)
    queries = range(at.query + offset, at.query + offset + shape[0])
    mask = plain_mask(rule, queries, range(at.key, at.key + shape[1]))
    np.testing.assert_array_equal(op.apply(scores), np.where(mask, scores, -np.inf))


@pytest.mark.parametrize("kind", HIDING, ids=lambda kind: kind.name)
@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    offset=st.integers(-5, 5),
    at=st.builds(Block, query=st.integers(0, 9), key=st.integers(0, 9)),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 7)),
)
def test_any_block_is_hidden_where_the_plain_mask_is(kind, data, offset, at, shape):
    block_is_plain_mask(data.draw(rules_of(kind)), offset, at, shape)


def attend(rules, offset, queries, keys, **how):
    """Head outputs of one head on drawn numbers."""
    rng = np.random.RandomState(1)
    given = {"Q": rng.randn(2, queries, 3), "K": rng.randn(2, keys, 3), "V": rng.randn(2, keys, 2)}
    variant = Variant(dict.fromkeys(given, "given"), d_k=3, rules=rules, offset=offset)
    return carry_out(derive(variant), given, **how)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)
@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    offset=st.integers(-4, 6),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 11)),
    tile=st.tuples(st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2, 3, 7])),
    keep=st.sampled_from([["head_outputs"], ["attention_weights", "head_outputs"]]),
)
def test_tiles_give_what_the_whole_gives(kind, data, offset, sizes, tile, keep):
    rule = data.draw(rules_of(kind))
    whole = attend((rule,), offset, *sizes)
    tiled = attend((rule,), offset, *sizes, keep=keep, tile=tile)
    assert tiled.empty_rows == whole.empty_rows
    for name in keep:
        np.testing.assert_allclose(tiled.values[name], whole.values[name], atol=1e-13)
    if isinstance(rule, VisibilityRule):
        mask = plain_mask(rule, range(offset, offset + sizes[0]), range(sizes[1]))
        assert (whole.values["attention_weights"][:, ~mask] == 0).all()
        assert (whole.values["attention_weights"][:, mask] > 0).all()


def says_whether_it_is_relative(rule, offset, sizes):
    """Whether what a rule that is not relative does is the same wherever queries stand among the keys."""
    here, there = (attend((rule,), at, *sizes).values["attention_weights"] for at in (0, offset))
    assert rule.relative or np.array_equal(here, there), "it is relative"


@pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), offset=st.integers(-4, 6), sizes=st.tuples(st.integers(1, 5), st.integers(1, 7)))
def test_a_rule_says_whether_it_is_relative(kind, data, offset, sizes):
    says_whether_it_is_relative(data.draw(rules_of(kind)), offset, sizes)


@pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_rule_is_a_value_that_reads_back_from_a_dump(kind, data):
    rule = data.draw(rules_of(kind))
    assert RULES[rule.name] is type(rule)
    assert hash(rule) == hash(type(rule)(**{each.name: getattr(rule, each.name) for each in fields(rule)}))
    with pytest.raises(FrozenInstanceError):
        rule.anything = 1
    if isinstance(rule, VisibilityRule):
        assert op_of(as_json_data(Hide(rules=(rule,))), "$") == Hide(rules=(rule,))


# --- the laws can fail ---


@dataclass(frozen=True)
class HoleUnderAPromise(VisibilityRule):
    """Hides every third key, and promises that all keys up to the query are seen."""

    name: ClassVar[str] = "hole"

    def allows(self, query, key):
        return ((query - key) % 3 != 0) & (key <= query)

    def visible_to_all(self, first, last, keys):
        return 0, first + 1


@dataclass(frozen=True)
class TooShort(VisibilityRule):
    """Sees all keys, and promises that the last is seen by nobody."""

    name: ClassVar[str] = "short"

    def allows(self, query, key):
        return np.ones(np.broadcast_shapes(query.shape, key.shape), bool)

    def visible_to_any(self, first, last, keys):
        return 0, keys - 1


@pytest.mark.parametrize("rule", [HoleUnderAPromise(), TooShort()], ids=lambda rule: rule.name)
def test_a_broken_promise_is_found(rule):
    with pytest.raises(AssertionError, match=r"is hidden|is seen"):
        promises_hold(rule, 4, 9, 8)


def test_a_hole_under_a_promise_shows_in_a_block():
    with pytest.raises(AssertionError):
        block_is_plain_mask(HoleUnderAPromise(), 0, Block(query=6, key=0), (3, 5))


def called_absolute(kind):
    """A rule that is relative and says that it is not."""
    return type(f"Absolute{kind.__name__}", (kind,), {"relative": False})


@pytest.mark.parametrize(
    "kind", [kind for kind in RULES.values() if kind.relative], ids=lambda kind: kind.name
)
def test_a_rule_that_is_called_absolute_and_is_not_is_found(kind):
    @settings(phases=[Phase.generate])
    @given(rule=rules_of(called_absolute(kind)), offset=st.integers(1, 3))
    def law(rule, offset):
        says_whether_it_is_relative(rule, offset, (5, 7))

    with pytest.raises(AssertionError, match="it is relative"):
        law()


# --- promises that are worth making ---

TIGHT = [Causal(), Window(2, 0), Window(0, 3), Window(None, 1), Window(1, None), Padding(4), Padding(0)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", TIGHT, ids=str)
def test_rules_without_holes_promise_all_that_is_so(rule):
    for first in range(-9, 10):
        for last in range(first, 10):
            mask = plain_mask(rule, range(first, last + 1), range(7))
            for span, seen in (
                (rule.visible_to_any(first, last, 7), mask.any(axis=0)),
                (rule.visible_to_all(first, last, 7), mask.all(axis=0)),
            ):
                where = np.flatnonzero(seen)
                assert where.size == 0 or span == (where[0], where[-1] + 1)


def test_every_rule_is_of_one_kind():
    assert all(issubclass(kind, Rule) and kind.name == name for name, kind in RULES.items())


# --- rules made of rules ---

NESTED = {"any_of": [{"window": [0, 2]}, {"all_of": ["causal", {"window": [1, 5]}]}]}
AT, KEY = np.arange(6)[:, None], np.arange(6)
NESTED_MASK = ((KEY >= AT) & (KEY <= AT + 2)) | ((KEY <= AT) & (KEY >= AT - 1))


def test_rules_that_are_put_together_see_what_their_masks_see_together(tmp_path):
    sentence = "the cat sat on the mat"
    expected = attnctl.run(sentence, mask=NESTED_MASK.tolist(), heads=2)["attention_weights"]
    made = any_of(Window(0, 2), all_of(Causal(), Window(1, 5)))
    for rule in (NESTED, made):
        trace = attnctl.run(sentence, rules=[rule], heads=2)
        np.testing.assert_array_equal(trace["attention_weights"], expected)
        assert trace.config["rules"] == [NESTED] == [made.plain()]
    write([trace], tmp_path / "x.json")
    again = attnctl.load(tmp_path / "x.json")
    assert again.steps["masked_scores"].op == trace.steps["masked_scores"].op
    assert attnctl.check(again).agrees


@pytest.mark.parametrize("kind", [AnyOf, AllOf])
@pytest.mark.parametrize(
    ("rules", "said"), [((), "no rules"), ((Causal(), Padding(3)), "nobody sees padding")]
)
def test_what_cannot_be_put_together_is_refused(kind, rules, said):
    with pytest.raises(AttnError, match=f"{kind.name}: {said}"):
        kind(rules)


@given(st.data())
def test_near_misses_of_a_rule_are_rules_that_the_catalogue_names(data):
    from attnctl.mistakes import CATALOGUE

    rule = data.draw(st.sampled_from(HIDING).flatmap(rules_of))
    names = {mistake.name for mistake in CATALOGUE}
    positions = np.arange(6)
    for mistake, _, other in rule.mistaken(6):
        assert mistake in names
        mask = other.allows(positions[:, None], positions)
        assert mask.dtype == bool
        assert np.broadcast_shapes(mask.shape[-2:], (6, 6)) == (6, 6)

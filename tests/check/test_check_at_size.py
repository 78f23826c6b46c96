"""What keeps the check of a large wrong dump short gives what the long way gives."""

from dataclasses import replace

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl
from attnctl.evidence.blocks import OverQueries
from attnctl.evidence.made import MadeOnce, are_same_bits
from attnctl.evidence.precision import FLOAT64
from attnctl.evidence.recompute import Probe, keep_digits, recompute
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.walk import Verdict, Walk
from attnctl.inputs.plan.intended import plan_dump
from attnctl.math.derivation import Derivation, Step
from attnctl.mistakes import CATALOGUE, wrong
from attnctl.verbs.check.parts import Part, samples, some_rows, whole_of
from attnctl.verbs.check.search import Search

N = 48
KIND = own.Kind(heads=2, n=N, d_model=16, d=8, causal=True, dtype=own.F32)
OVER_QUERIES = [
    wrong.SoftmaxOver(axes=(-2,)),
    wrong.SoftmaxOver(axes=(-2, -1)),
    wrong.GrownOver(),
    wrong.ByOtherSums(wrong.grown),
    wrong.ByOtherSums(np.exp),
]


@pytest.fixture
def large(monkeypatch):
    """A step of this size counts as large; what overflows is found, not warned of."""
    for name, value in (
        ("evidence.blocks.MANY", N * N),
        ("evidence.walk.MANY", N * N),
        ("evidence.blocks.BLOCK", 16 * N),
        ("evidence.blocks.SPARSE", 4),
        ("verbs.check.parts.MANY", N * N),
        ("verbs.check.parts.FEW", 8 * N),
    ):
        monkeypatch.setattr(f"attnctl.{name}", value)
    with np.errstate(all="ignore"):
        yield


def walked(mistake, names=()):
    arrays = own.attend(KIND, mistake)
    arrays = {name: array for name, array in arrays.items() if not names or name in names}
    record = with_precisions(Record(*plan_dump(foreign(arrays), meant(KIND))), FLOAT64)
    with np.errstate(all="ignore"):
        return Walk.over(record, record.intended)


@pytest.mark.parametrize("op", OVER_QUERIES, ids=lambda op: type(op).__name__)
def test_sums_over_queries_are_the_same_in_blocks(op):
    scores = 5 * np.random.RandomState(0).randn(2, N, N)
    scores = np.where(np.tri(N, dtype=bool), scores, -np.inf)
    blocks = [slice(start, start + 7) for start in range(0, N, 7)]
    told = op.told(scores[:, rows] for rows in blocks)
    by_rows = np.concatenate([told.apply(scores[:, rows]) for rows in blocks], axis=-2)
    assert by_rows == pytest.approx(op.apply(scores), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(
    "name",
    ["softmax-over-queries", "softmax-over-everything", "softmax-sums-transposed", "weights-transposed"],
)
def test_what_sums_over_queries_is_judged_in_some_rows(large, name):
    """The value in some rows, of the sums of all, is that of all in these rows."""
    walk = walked(None, (*own.INPUTS, "output"))
    (mistake,) = (mistake for mistake in CATALOGUE if mistake.name == name)
    whole = whole_of(walk)
    part = some_rows(walk, slice(16, 20))
    part = Part(Walk.over(part.record, part.derivation, part.walk), part.derivation, part.whole, 16)
    case_of = {}
    for where in (whole, part):
        search = Search.begin(where, "output", [], 1.0, plainly=True)
        case_of[where.begin] = [plant.case for plant in mistake.at(search.case)]
    assert len(case_of[0]) == len(case_of[16]) >= 1
    for in_all, in_part in zip(case_of[0], case_of[16], strict=True):
        assert any(isinstance(step.op, OverQueries) for step in in_all.derivation)
        value = part.value_in_blocks(part.in_blocks_by_sums(in_part.derivation, walk, "output"))
        assert value == pytest.approx(in_all.value(anyway=True)[16:20], rel=1e-9)


def made_over_queries(name):
    """The ends of a program that mixes up queries."""
    arrays = own.attend(KIND, name if name in own.PLANTED else None)
    if name == "weights-transposed":
        mixed = arrays["attention_weights"].swapaxes(-1, -2) @ arrays["V"]
        arrays["output"] = own.merge(mixed, None) @ arrays["W_O"]
    return {key: array for key, array in arrays.items() if key in {*own.INPUTS, "output"}}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["softmax-over-queries", "weights-transposed"])
@pytest.mark.parametrize("changed", [0, 16])
def test_what_sums_over_queries_has_to_fit_the_last_of_them(large, name, changed):
    arrays = made_over_queries(name)
    drawn = np.random.RandomState(0).randn(changed, KIND.d_model)
    arrays["output"] = np.concatenate([arrays["output"][: N - changed], drawn]).astype(own.F32)
    assert attnctl.check(foreign(arrays), meant(KIND)).mistake == (None if changed else name)


def test_no_other_mistake_is_judged_by_sums(large):
    walk = walked(None, (*own.INPUTS, "output"))
    part = some_rows(walk, slice(0, 4))
    assert part.in_blocks_by_sums(part.derivation, walk, "output") is None


@pytest.mark.parametrize("mistake", ["softmax-over-queries", "causal-strict", "no-scale", "mask-ignored"])
@pytest.mark.parametrize("names", [(), (*own.INPUTS, "output")], ids=["everything", "ends"])
def test_mistakes_of_large_dumps_are_named(large, mistake, names):
    arrays = own.attend(KIND, mistake)
    arrays = {name: array for name, array in arrays.items() if not names or name in names}
    report = attnctl.check(foreign(arrays), meant(KIND))
    assert report.mistake == mistake


def test_a_part_takes_over_what_agrees_in_all(large):
    walk = walked("causal-strict")
    part = next(samples(walk, "masked_scores"))
    assert part.walk.steps["scores"] is walk.steps["scores"]
    assert part.walk.steps["masked_scores"].verdict is Verdict.WRONG
    assert next(samples(walk, "masked_scores")) is part


def test_rows_are_looked_at_where_the_wrong_ones_begin(large):
    arrays = own.attend(KIND)
    arrays["attention_weights"][:, 40:] *= 1.01
    record = with_precisions(Record(*plan_dump(foreign(arrays), meant(KIND))), FLOAT64)
    walk = Walk.over(record, record.intended)
    part = next(samples(walk, "attention_weights"))
    assert part.begin >= 36


def test_a_program_that_hides_what_is_shown_is_not_walked(large, monkeypatch):
    """Of masks only those are held to rounding that leave alone what is right."""
    walk = walked("causal-strict")
    search = Search.begin(next(samples(walk, "masked_scores")), "masked_scores", [], 1.0, plainly=False)
    right, found = search.case.expected.value, search.case.found
    assert search.upsets(np.where(np.isfinite(right), 7.0, right))
    assert search.upsets(np.ones_like(right))
    assert not search.upsets(np.zeros_like(right))  # as rows of weights that see nothing are
    assert not search.upsets(found.astype(float))
    assert not search.upsets(right)


def test_ways_to_round_share_what_stands_before_them():
    walk = walked(None)
    names = ("scores", "scaled_scores", "masked_scores", "attention_weights", "head_outputs")
    steps = [walk.derivation[name] for name in names]
    kept = {}
    for rounded in names[2:]:

        def after(step, rounded=rounded):
            return (lambda x: np.round(x, 3)) if step.name == rounded else keep_digits

        ways = [
            recompute(walk.record, steps, lambda *_: keep_digits, after, plain) for plain in (None, kept)
        ]
        assert np.array_equal(*ways)
    assert "scaled_scores" in kept
    assert "head_outputs" not in kept


@pytest.mark.sample(6)
@pytest.mark.parametrize("n", [24, 64, 320])
@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("bias-missing", "b_Q, b_K, b_V and b_O are not added"),
        ("rotary-start/K", "positions are counted from elsewhere: K 1 too late"),
    ],
)
def test_of_ways_that_are_equal_on_paper_the_first_is_said(mistake, words, n):
    """Which of them leaves less is said by the last digits of sums, of as many terms as rows are read."""
    for kind in own.PLANTED[mistake]:
        arrays = own.attend(kind.but(n=n, dtype=own.F32), mistake)
        recorded = {name: arrays[name] for name in (*own.INPUTS, "attention_weights") if name in arrays}
        (finding,) = attnctl.check(foreign(recorded), meant(kind)).findings
        assert finding.words == words


def counted(rows):
    """A step whose op counts how often it is carried out."""
    times = []

    def function(x):
        times.append(1)
        return x @ rows

    return Step("head_outputs", wrong.By(function), ("x",), axes=(), formula="", symbol=""), times


def test_what_programs_make_of_the_same_numbers_is_made_once():
    rows = np.random.RandomState(0).randn(64, 40)
    step, times = counted(rows)
    made = MadeOnce()
    copy = Step("some", wrong.By(lambda x: x + 0.0), (), axes=(), formula="", symbol="")
    one = made.apply(copy, [np.full((128, 64), 2.0)])
    same = made.apply(replace(copy, op=wrong.By(lambda x: x * 1.0)), [np.full((128, 64), 2.0)])
    assert same is one  # other programs, the same numbers
    assert made.apply(step, [one]) is made.apply(step, [same])
    assert len(times) == 1

    other = made.apply(copy, [np.full((128, 64), 3.0)])
    assert np.array_equal(made.apply(step, [other]), np.full((128, 64), 3.0) @ rows)
    assert len(times) == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([0.0, 1.0], [0.0, 1.0], True),
        ([0.0, 1.0], [-0.0, 1.0], False),  # 1 / x tells them apart
        ([np.nan, -np.inf], [np.nan, -np.inf], True),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, 2.0], [3.0, 2.0], False),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_numbers_are_the_same_bit_by_bit(one, other, same):
    assert are_same_bits(np.array(one), np.array(other)) is same


def test_of_numbers_that_are_gone_nothing_is_known():
    """What is made of them is not taken for what is made of others in their place."""
    rows = np.random.RandomState(0).randn(64, 40)
    step, _ = counted(rows)
    made = MadeOnce()
    for number in range(20):
        x = np.full((128, 64), float(number))
        assert np.array_equal(made.apply(step, [x]), x @ rows)
        del x


@pytest.mark.parametrize("after", [lambda x: x[:, ::-1], lambda x: 2 * x])
def test_what_goes_on_from_the_right_step_has_it_from_the_walk(after):
    walk = walked(None, (*own.INPUTS, "output"))
    right = walk.derivation["Q"]
    known = walk.values["Q"].value
    op = wrong.Arranged(right.op, after=after)
    program = Derivation(tuple(replace(s, op=op) if s is right else s for s in walk.derivation))
    probe = Probe(walk, program)
    assert probe.begun(program["Q"]) is known
    assert np.array_equal(probe.compute("Q"), after(known))
    assert np.array_equal(op.apply(walk.record.value("X"), walk.record.value("W_Q")), after(known))

    moved = replace(op, before=(lambda x: x[::-1],))
    assert probe.begun(replace(program["Q"], op=moved)) is None

"""Laws of the table of names: every step is read, read back, laid out and checked."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

import attnctl
from attnctl.formats import FORMATS, write
from attnctl.inputs.arrays.reader import read_any, read_strictly
from attnctl.inputs.config.settings import Settings
from attnctl.math import derivation, names
from attnctl.math.axes import names_in, parse_axes
from attnctl.math.derivation import Rotary, Variant, derive, line
from attnctl.math.kind import KIND, HeadNorm
from attnctl.math.ops import Copy, Given, Sinusoid
from attnctl.math.ops.lookups import LookUp
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import RULES
from attnctl.record import Trace
from attnctl.store.header import foreign_step
from attnctl.store.source import read_one

SIZES = {
    "query": 7,
    "token": 7,
    "new": 5,
    "past": 4,
    "key": 9,
    "head": 6,
    "kv_head": 2,
    "d_k": 11,
    "d_v": 13,
    "d_model": 17,
    "d_memory": 19,
    "d_out": 17,
    "chunk": 4,
    "bucket": 5,
    "page": 10,
    "slot": 3,
    "batch": 3,
}
"""No two axes of one array are of one size, so that a layout can only be read in one way."""

SETTINGS = Settings(heads=SIZES["head"], kv_heads=SIZES["kv_head"])


def numbers(layout, batch=()):
    """Numbers in this layout."""
    return np.random.RandomState(0).uniform(-1, 1, (*batch, *shape_of(layout)))


def shape_of(layout):
    """Its sizes: (7, 66) of "query (head d_k)"."""
    return tuple(prod(SIZES[axis] for axis in group) for group in parse_axes(layout))


def moved(array, own, layout, lead):
    """An array of our layout in another one; the first `lead` axes stay."""
    inside, wanted = names_in(parse_axes(own)), names_in(parse_axes(layout))
    whole = array.reshape(*array.shape[:lead], *(SIZES[axis] for axis in inside))
    turned = whole.transpose(*range(lead), *(lead + inside.index(axis) for axis in wanted))
    return turned.reshape(*array.shape[:lead], *shape_of(layout))


OWN = set(names.where(lambda row: not (row.model or row.gradient)))
"""Every name but those that only layers of trained models have (tests/models/test_steps.py)."""

STEPS = OWN - {names.KEY_LENGTHS, names.POSITION_IDS, names.PAGE_TABLE, *names.PAGE_LIST}
STEPS -= {*names.CU_SEQLENS, names.BIAS_INDEX}
"""Those of them that are steps: others say which keys there are."""

# --- every derived step is read by another, or is the last ---

LEAVES = {
    "sentence": ("embeddings", "W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O", "b_O"),
    "learned": ("embeddings", "positions", "W_Q", "W_K", "W_V", "W_O"),
    "crossed": ("X", "memory", "W_Q", "W_K", "W_V", "b_K"),
    "gated": ("X", "W_Q", "W_K", "W_V", "W_gate", "b_gate", "W_O"),
    "projected": ("Q", "K", "V", "gate"),
    "cached": ("Q", "K", "V", "past_key", "past_value", "W_O", "b_O"),
}
OF_GRADIENTS = {"backward", "cotangent"}
ASKED = {name: each.at_example for name, each in KIND.items() if each and name not in OF_GRADIENTS}
"""What may be asked of attention itself; gradients are lines of their own (tests/math/test_backward.py)."""

BESIDE = [(), ("mask",), ("bias",), ("mask", "bias")]


def rules():
    """Every rule of the registry alone, and all together."""
    made = [kind.of(kind.setting.at_example) for kind in RULES.values() if kind.setting]
    return [(), *((rule,) for rule in made), tuple(made)]


def variants():
    for start, beside, chosen, share, rotary, batch in product(
        LEAVES.values(), BESIDE, rules(), (1, 2), (None, Rotary()), (False, True)
    ):
        sinusoid = Sinusoid(3, 4) if start == LEAVES["sentence"] else None
        yield Variant(
            dict.fromkeys((*start, *beside), "given"),
            d_k=4,
            kv_share=share,
            rules=chosen,
            sinusoid=sinusoid,
            rotary=rotary,
            batch=batch,
        )

    norms = [HeadNorm(), HeadNorm("layer", over="heads"), HeadNorm(after_rotation=True)]
    factors = [(), names.NORM_WEIGHTS, (*names.NORM_WEIGHTS, *names.NORM_BIASES)]
    for start, how, beside, rotary, unrotated in product(
        LEAVES.values(), norms, factors, (None, Rotary()), (False, True)
    ):
        given = dict.fromkeys((*start, *beside, names.SINK), "given")
        yield Variant(given, d_k=4, rotary=rotary, qk_norm=how, cache_unrotated=unrotated, logsumexp=True)

    yield Variant(dict.fromkeys(("Q", *names.PAGES), "given"), d_k=4, pages=Gather(((1, 0),), 3))

    relative = dict.fromkeys((*names.PROJECTED, names.BIAS_TABLE), "given")
    yield Variant(relative, d_k=4, lookup=LookUp(((0, 1), (2, 0))))

    for start, share in product(LEAVES.values(), (1, 2)):
        yield Variant(dict.fromkeys((*start, *names.STORED_SCALES), "given"), d_k=4, kv_share=share)

    for start, (name, value) in product(LEAVES.values(), ASKED.items()):
        yield Variant(dict.fromkeys(start, "given"), d_k=4, **{name: value})


def unread(lines):
    """The steps that no other reads, but for the last one and what is shown beside it."""
    read = {name for step in lines for name in step.inputs} | {names.SINK_WEIGHTS, names.LOGSUMEXP}
    read |= {names.WEIGHTS} if names.CHUNK_OUTPUTS in lines else set()
    return [step.name for step in lines.steps[:-1] if step.name not in read]


def test_every_step_of_every_variant_is_read_by_another_or_is_the_last():
    seen = set()
    for variant in variants():
        lines = derive(variant)
        assert unread(lines) == []
        seen |= {step.name for step in lines}
    assert seen == STEPS, "every name is a step of some variant"


@pytest.mark.sample(2)
@pytest.mark.parametrize("after", ["projections", "rotations", "cache", "sharing"])
def test_a_new_step_is_read_by_what_follows(monkeypatch, after):
    """A norm of Q and K put anywhere: one row and one part of the derivation each."""

    def norms(v, at):
        for symbol in "QK":
            yield line(f"{symbol}_unit", Copy(), (at[symbol],), f"norm of {at[symbol]}")

    for symbol in "QK":
        row = names.TABLE[symbol]._replace(name=f"{symbol}_unit", leaf=False, input=False)
        monkeypatch.setitem(names.TABLE, row.name, row)
    parts = list(derivation.PARTS)
    parts.insert([part.__name__ for part in parts].index(after) + 1, norms)
    monkeypatch.setattr(derivation, "PARTS", tuple(parts))
    for variant in variants():
        assert unread(derive(variant)) == []


# --- every name is read back from every format, alone and with the others ---


def in_ours(wanted, batch=()):
    """An array of each name in our layout."""
    return {
        name: numbers(names.TABLE[name].own, () if names.TABLE[name].once else batch) for name in wanted
    }


def everything(batch=()):
    """Arrays and options whose traces hold every name between them."""
    beside = in_ours(("past_key", "past_value", "bias", "W_O", "b_O"), batch)
    beside |= {"mask": beside["bias"] > -0.5, "key_lengths": np.full(batch or 1, 8)}
    options = {"softcap": 2.0, "causal": True, "logsumexp": True}
    yield {**beside, **in_ours(names.PROJECTED, batch)}, {**options, "positions": "alibi"}
    weights = in_ours(names.where(lambda row: row.is_split))
    crossed = {**beside, **weights, **in_ours(("X", "memory"), batch)}
    yield crossed, {**options, "chunks": SIZES["chunk"], "positions": Rotary(dims=4)}
    of_models = (*names.NORM_WEIGHTS, *names.NORM_BIASES, names.SINK, "W_gate", "b_gate")
    options = {"qk_norm": "layer", "cache_unrotated": True, "gate": True}
    yield {**crossed, **in_ours(of_models)}, {"positions": Rotary(dims=4), **options}
    own = {"W_K": numbers("kv_head d_model d_k"), "W_V": numbers("kv_head d_model d_v")}
    yield {"X": crossed["X"], **weights, **own, "W_O": beside["W_O"]}, {"positions": "sinusoidal"}
    table = np.arange(3 * (*batch, 1)[0]).reshape(*batch, 3)
    paged = in_ours(("Q", *names.PAGES), batch) | {
        "page_table": table,
        "key_lengths": np.full(batch or 1, 3 * SIZES["slot"]),  # a free slot may hold anything
    }
    yield paged, {"causal": True, "layout": "bhnd" if batch else "hnd"}
    index = np.arange(SIZES["query"] * SIZES["new"]).reshape(SIZES["query"], SIZES["new"]) % 5
    relative = {names.BIAS_TABLE: numbers("head bucket"), names.BIAS_INDEX: index}
    yield {**in_ours(names.PROJECTED, batch), **relative}, {"layout": "bhnd" if batch else "hnd"}
    projected = in_ours((*names.PROJECTED, names.GATE), batch)
    projected |= in_ours(names.STORED_SCALES)
    yield {**beside, **projected}, {**ASKED, "documents": [0, 2], "positions": Rotary(dims=4)}


def traces(batch=()):
    for arrays, options in everything(batch):
        yield attnctl.attend(arrays, **options), arrays, options


BATCHES = pytest.mark.parametrize("batch", [(), (3,)], ids=["alone", "batch"])


@BATCHES
def test_every_step_has_the_axes_that_the_table_says(batch):
    for trace, _, _ in traces(batch):
        for name, step in trace.steps.items():
            row = names.TABLE[name]
            assert step.axes == (() if row.once else ("batch",) * len(batch)) + row.axes
            assert trace[name].ndim == len(step.axes), name


FOR_PEOPLE = {"csv", "xlsx", "markdown"}
DUMPS = [each.suffix for each in FORMATS if not each.picture and each.name not in FOR_PEOPLE]
"""The formats of dumps; the others are for people and spreadsheets."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("suffix", DUMPS)
def test_every_name_reads_back_from_every_format(tmp_path, suffix):
    seen = set()
    for trace, _, _ in traces():
        for chosen in (list(trace), *([name] for name in trace)):
            part = trace.select(chosen)
            write([part], tmp_path / f"x{suffix}")
            again = read_one(tmp_path / f"x{suffix}")
            assert list(again) == chosen
            assert again.steps == part.steps
            assert all((again[name] == trace[name]).all() for name in chosen)
        seen |= set(trace)
    assert seen == STEPS


@pytest.mark.parametrize("name", names.TABLE)
def test_the_axes_of_arrays_without_a_header_are_those_of_the_table(name):
    axes = names.TABLE[name].axes
    for lead in ((), ("batch",)):
        step = foreign_step(name, np.zeros((1,) * (len(lead) + len(axes))))
        assert step.axes == (*lead, *axes)


# --- every name is checked where it is recorded ---


def foreign(arrays):
    return Trace({name: foreign_step(name, array) for name, array in arrays.items()}, arrays)


def recorded(trace, arrays):
    """The leaves and steps of a trace as anyone's arrays."""
    beside = (names.KEY_LENGTHS, names.PAGE_TABLE, names.BIAS_INDEX)
    return {**trace, **{name: arrays[name] for name in beside if name in arrays}}


def asked(options):
    """Our positions are those of embeddings where they are recorded."""
    return {**options, "heads": SIZES["head"], "kv_heads": SIZES["kv_head"]}


@pytest.mark.slow
def test_every_name_is_checked_where_it_is_recorded():
    given, checked = set(), set()
    for trace, arrays, options in traces():
        known = recorded(trace, arrays)
        report = attnctl.check(foreign(known), **asked(options))
        assert report.agrees, report.findings
        assert not report.unknown
        for name, step in trace.steps.items():
            if isinstance(step.op, Given):
                given.add(name)
                assert report.steps[name].verdict.value == "given"
                continue
            checked.add(name)
            assert report.steps[name].verdict.value == "agrees", name
            spoiled = known[name].copy()
            at = tuple(np.argwhere(np.isfinite(spoiled))[-1])
            spoiled[at] += 0.25
            wrong = attnctl.check(foreign({**known, name: spoiled}), **asked(options))
            assert (wrong.agrees, wrong.first) == (False, name)
    assert given | checked == STEPS
    assert checked >= set(names.where(lambda row: not row.leaf)) & OWN


def test_an_array_of_no_name_is_said():
    trace, arrays, options = next(traces())
    known = recorded(trace, arrays) | {"Q_unit": np.array(trace["Q"])}
    report = attnctl.check(foreign(known), **asked(options))
    assert report.unknown == ("Q_unit",)


# --- every layout of the table is read back to ours ---


def other_layouts(own, layouts_of, batch):
    """The arrays with one of them in another layout, for each that the table has for it."""
    for name, array in own.items():
        row = names.TABLE[name]
        for layout in layouts_of(row):
            if layout == "query key" or ("batch" in layout.split() and not batch):
                continue  # scores of one head: these are of several
            inside = "batch" in layout.split()  # behind other axes
            before = f"batch {row.own}" if inside else row.own
            lead = 0 if row.once or inside else len(batch)
            yield layout, {**own, name: moved(array, before, layout, lead)}


def assert_same(found, own, layout):
    assert found.keys() == own.keys()
    for name, array in own.items():
        np.testing.assert_array_equal(found[name], array, err_msg=f"{name}, {layout}")


@pytest.mark.slow
@BATCHES
def test_every_layout_of_the_table_is_found(batch):
    searched = names.where(lambda row: not (row.broadcasts or row.model) and row.own)
    own = in_ours(searched, batch)
    for layout, theirs in other_layouts(own, lambda row: (*row.layouts, *row.searched), batch):
        assert_same(read_any(theirs, SETTINGS).arrays, own, layout)


@BATCHES
def test_every_documented_layout_is_read(batch):
    inputs = names.where(lambda row: row.input and not row.broadcasts and row.own)
    own = in_ours([name for name in inputs if name not in names.PROJECTED], batch)
    for layout, theirs in other_layouts(own, lambda row: row.layouts, batch):
        assert_same(read_strictly(theirs, SETTINGS).arrays, own, layout)
    own = in_ours(names.PROJECTED, batch)
    for at, settings in enumerate((Settings(), SETTINGS)):
        lead = len(batch)
        theirs = {
            name: moved(array, names.TABLE[name].own, names.TABLE[name].layouts[at], lead)
            for name, array in own.items()
        }
        assert_same(read_strictly(theirs, settings).arrays, own, settings)


# --- what one accepts the other does not refuse ---


def linear(arrays):
    """The matrices as nn.Linear keeps them."""
    turned = {
        name: moved(array, names.TABLE[name].own, names.TABLE[name].linear, 0)
        for name, array in arrays.items()
        if names.TABLE[name].linear
    }
    return {**arrays, **turned}


def test_attend_takes_the_weights_of_linear_layers():
    _, arrays, options = list(traces())[1]
    expected = attnctl.attend(arrays, **options)["output"]
    found = attnctl.attend(linear(arrays), **options, heads=SIZES["head"], kv_heads=SIZES["kv_head"])
    np.testing.assert_allclose(found["output"], expected, rtol=0, atol=1e-12)


def test_a_square_matrix_is_as_the_others_are():
    rng = np.random.RandomState(0)
    x, w_q, w_k, w_v = (rng.uniform(-1, 1, shape) for shape in [(3, 8), (8, 8), (8, 4), (8, 4)])
    expected = attnctl.attend({"X": x, "W_Q": w_q, "W_K": w_k, "W_V": w_v}, heads=4, kv_heads=2)
    turned = {"X": x, "W_Q": w_q.T, "W_K": w_k.T, "W_V": w_v.T}
    found = attnctl.attend(turned, heads=4, kv_heads=2)
    np.testing.assert_array_equal(found["Q"], expected["Q"])
    np.testing.assert_array_equal(found["V"], expected["V"])
    square = {"X": x, **dict.fromkeys(("W_Q", "W_K", "W_V"), w_q)}
    np.testing.assert_array_equal(attnctl.attend(square)["Q"][0], x @ w_q)


@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("axes", ["batch key", "batch query key"])
def test_a_mask_for_each_member_of_a_batch(name, axes):
    rng = np.random.RandomState(0)
    q, k, v = (rng.uniform(-1, 1, (2, 3, n, 4)) for n in (5, 7, 7))
    full = rng.uniform(-1, 1, (2, 1, 1 if axes == "batch key" else 5, 7))
    full = full > 0 if name == "mask" else full
    given = {"Q": q, "K": k, "V": v}
    expected = attnctl.attend({**given, name: full})
    lean = full[:, 0, 0] if axes == "batch key" else full[:, 0]
    found = attnctl.attend({**given, name: lean})
    np.testing.assert_array_equal(found["attention_weights"], expected["attention_weights"])
    kept = {"Q": q, "K": k, name: lean, "attention_weights": expected["attention_weights"]}
    assert attnctl.check(kept).agrees


def test_a_weight_is_what_says_what_it_multiplies_or_is_added_to_whatever_its_symbol():
    matrix = names.Name("W_loud", "Ω", ("head",), leaf=True, input=True, once=True, of="Q")
    bias = names.bias("b_loud", "Q", "head d_k")._replace(symbol="ω")
    beside = names.Name("mask_loud", "W", ("head",), leaf=True, input=True, once=True)

    assert (matrix.is_weight, matrix.drawn) == (True, True)
    assert (bias.is_weight, bias.drawn) == (True, False)
    assert not beside.is_weight


def test_weights_of_the_table_are_the_matrices_and_the_biases():
    drawn = names.where(lambda row: row.drawn)
    added = names.where(lambda row: row.is_weight and not row.drawn)

    assert drawn == ["W_Q", "W_K", "W_V", "W_gate", "W_O"]
    assert added == ["b_Q", "b_K", "b_V", "b_gate", "b_O"]

"""A step put after any line from the weights to the output is followed by every verb.

Expected numbers are those of a few lines of NumPy, which say for each step what it makes of its input.
"""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
from command_line import call

import attnctl
from attnctl import formats
from attnctl.math import derivation, names
from attnctl.math.ops import Add, Gate, RMSNorm, Rotate, Scale
from attnctl.pages.describe import value_norms
from attnctl.sources import open_source
from attnctl.sources.sentence import Arguments
from attnctl.traces import Trace
from attnctl.verbs import explore as go
from attnctl.verbs.explain import parts_of
from attnctl.verbs.explore.remake import begin_walk
from attnctl.verbs.story import Hidden, Mix, NotFinite, OddRows

SENTENCE, OTHER = "the cat sat on the mat", "the old cat sat here"
RESULT = ("head_outputs", "concat", "output")
BESIDE = {"attention_weights": "scaled_scores", "head_outputs": "Q", "concat": "X", "output": "X"}
"""The lines after which a step is put, and a step of the same shape for it to read beside."""


def turned(x, _):
    """Rotary positions by hand: the first half of the columns with the second."""
    out, half = x.copy(), x.shape[-1] // 2
    for row, pair in product(range(x.shape[-2]), range(half)):
        a, b = x[..., row, pair], x[..., row, pair + half]
        angle = row * 10000 ** (-pair / half)
        out[..., row, pair] = a * math.cos(angle) - b * math.sin(angle)
        out[..., row, pair + half] = a * math.sin(angle) + b * math.cos(angle)
    return out


STEPS = {
    "scaling": (Scale(factor=0.5), lambda x, _: x / 2, lambda x, _: x / 2),
    "gate": (Gate(), lambda x, y: x / (1 + np.exp(-y)), lambda x, y: x / (1 + np.exp(-y))),
    "bias": (Add(), lambda x, y: x + y, lambda x, _: x),
    "rotation": (Rotate(), turned, turned),
    "norm": (RMSNorm(1e-6), lambda x, _: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6), None),
}
"""The op of each, what it makes of x and of what it reads beside, and what it makes of a part of x."""


class Put:
    """A step after a line of every derivation."""

    def __init__(self, after, kind):
        self.after, self.kind = after, kind
        self.op, self.whole, self.part = STEPS[kind]
        self.beside = BESIDE[after] if kind in {"gate", "bias"} else None

    def __repr__(self):
        return f"{self.kind} after {self.after}"

    def register(self, patch):
        row = names.TABLE[self.after]._replace(name="put", leaf=False, input=False, result=False)
        patch.setitem(names.TABLE, "put", row)
        patch.setitem(names.TABLE, "d_put", row._replace(name="d_put", gradient="put"))
        patch.setattr(derivation, "PARTS", tuple(partial(self.lines, part) for part in derivation.PARTS))

    def lines(self, part, v, at):
        for step in part(v, at):
            yield step
            if step.name == self.after:
                inputs = (step.name, self.beside) if self.beside else (step.name,)
                yield derivation.line("put", self.op, inputs, "put there")

    def of(self, trace, step, x, how=None):
        """What becomes of (a part of) a step."""
        beside = trace[self.beside] if self.beside else None
        return (how or self.whole)(x, beside) if step == self.after else x

    def rows(self, trace, x, how=None):
        """What comes of head outputs, or of a part of them, before W_O."""
        side_by_side = np.concatenate(list(self.of(trace, "head_outputs", x, how)), axis=-1)
        return self.of(trace, "concat", side_by_side, how)

    def mixing(self, trace):
        """What the values are multiplied with."""
        return self.of(trace, "attention_weights", trace["attention_weights"])


CASES = [Put(*each) for each in product(BESIDE, STEPS)]


@pytest.fixture(params=CASES, ids=repr)
def put(request, monkeypatch):
    request.param.register(monkeypatch)
    return request.param


def run(sentence=SENTENCE, **options):
    return attnctl.run(sentence, **{"heads": 2, **options})


def test_it_is_computed_and_read(put, monkeypatch):
    trace = run()
    assert np.allclose(trace["put"], put.of(trace, put.after, trace[put.after]), atol=1e-13)
    assert np.allclose(trace["head_outputs"], put.mixing(trace) @ trace["V"], atol=1e-13)
    assert np.allclose(trace["output"], put.rows(trace, trace["head_outputs"]) @ trace["W_O"], atol=1e-13)
    monkeypatch.setattr("attnctl.math.engine.FEWEST_FOR_TILES", 0)
    assert np.allclose(run(keep=["output"])["output"], trace["output"], atol=1e-13)


def test_diff_pushes_parts_through_it_or_says_why_not(put):
    a, b = run(), run(seed=1)
    found = attnctl.diff(a, b)
    if put.part is None and put.after in {"head_outputs", "concat"}:
        assert found.no_split == f"put is not linear in {put.after}"
        assert [change.head for change in found.split] == [0, 1]
        said = f"Why the outputs differ cannot be said beyond the heads: {found.no_split}."
        assert said in " ".join(str(found).split())
        return
    (m_a, v_a), (m_b, v_b) = ((put.mixing(each), each["V"]) for each in (a, b))
    of_heads = {"attended_elsewhere": (m_b - m_a) @ v_a, "said_something_else": m_a @ (v_b - v_a)}
    of_heads["both"] = (m_b - m_a) @ (v_b - v_a)
    expected = {name: put.rows(a, part, put.part) @ a["W_O"] for name, part in of_heads.items()}
    z = b["head_outputs"]
    expected["projection"] = put.rows(b, z) @ (b["W_O"] - a["W_O"])
    if put.beside and put.after in {"head_outputs", "concat"}:
        expected[put.beside] = (put.rows(b, z) - put.rows(a, z)) @ a["W_O"]
    *heads, last = found.split
    assert set(last.parts) == {*expected, "rest"}
    for name, part in expected.items():
        assert last.parts[name].norm == pytest.approx(np.linalg.norm(part), rel=1e-9), name
    for name, part in of_heads.items():
        sizes = np.linalg.norm(part, axis=(1, 2))
        assert [each.parts[name].norm for each in heads] == pytest.approx(list(sizes), rel=1e-9), name
    for head, each in enumerate(heads):
        alone = np.where(np.arange(2)[:, None, None] == head, z - a["head_outputs"], 0)
        whole, delta = put.rows(a, alone, put.part) @ a["W_O"], b["output"] - a["output"]
        assert each.of_output == pytest.approx((whole * delta).sum() / (delta**2).sum())


PAIRS = {
    "rule": lambda: (run(), run(causal=True)),
    "sentence": lambda: (run(), run(OTHER)),
    "sentence and seed": lambda: (run(OTHER), run(seed=2)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_parts_are_the_change(put, pair):
    found = attnctl.diff(*pair())
    assert (found.split[-1].head is None) == (found.no_split is None)
    for change in found.split:
        assert change.parts["rest"].norm < 1e-9 * change.norm
        assert sum(part.share for part in change.parts.values()) == pytest.approx(1)
        assert change.a + sum(change.terms.values()) == pytest.approx(change.b)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_step_that_only_one_trace_has_is_a_part(case):
    """The parts of the heads' change go through the lines of A; what is beyond them adds one."""
    bare = run(seed=1)
    with pytest.MonkeyPatch.context() as patch:
        case.register(patch)
        have = run()
    for a, b, put in ((have, bare, case), (bare, have, None)):
        found = attnctl.diff(a, b)
        if found.no_split is None:
            last = found.split[-1]
            assert last.parts["rest"].norm < 1e-9
            elsewhere = put.mixing(a) if put else a["attention_weights"]
            moved = (case.mixing(b) if put is None else b["attention_weights"]) - elsewhere
            part = moved @ a["V"]
            part = np.concatenate(list(part), axis=-1) if put is None else put.rows(a, part, put.part)
            assert last.parts["attended_elsewhere"].norm == pytest.approx(np.linalg.norm(part @ a["W_O"]))
            assert ("lines" in last.parts) == (case.after in {"head_outputs", "concat"})


@pytest.mark.sample(3)
def test_pages_weigh_values_by_what_they_add(put, tmp_path):
    """A weight is worth what raising it by 1 adds to the output, if that is the same for every query."""
    trace = run()
    worth = np.empty((6, 2, 6))
    for query, head, key in np.ndindex(*worth.shape):
        weights = trace["attention_weights"].copy()
        weights[head, query, key] += 1
        z = put.of(trace, "attention_weights", weights) @ trace["V"]
        worth[query, head, key] = np.linalg.norm(put.rows(trace, z) @ trace["W_O"] - trace["output"])
    norms = value_norms(trace)
    known = put.after == "output" or (put.after != "attention_weights" and put.kind in {"scaling", "bias"})
    assert (norms is not None) == known
    assert norms is None or np.allclose(worth, norms)
    formats.write([trace], tmp_path / "x.html")
    back = attnctl.load(tmp_path / "x.html")
    assert all(np.array_equal(back[name], trace[name]) for name in trace)


def test_explain_and_explore_go_through_it(put):
    trace = run()
    for step in ("put", *RESULT):
        cell = (0,) * (trace[step].ndim - 2) + (1, 1)
        found = attnctl.explain(trace, f"{step}[{','.join(map(str, cell))}]")
        assert found.value == trace[step][cell] == pytest.approx(eval(found.expression, dict(vars(math))))
        walk = go.to_step(begin_walk(open_source(SENTENCE, Arguments(None, {"heads": 2}))), step)
        read = {name for name, _ in walk.operands}
        assert read == set(trace.steps[step].inputs)


def test_the_story_tells_what_values_are_mixed_by(put):
    trace = run()
    told = attnctl.story(trace)
    assert [step.name for chapter in told.chapters for step in chapter.steps if step.name == "put"] == [
        "put"
    ]
    claims = [claim for chapter in told.chapters for claim in chapter.claims]
    assert not [claim for claim in claims if isinstance(claim, OddRows)]
    for claim in claims:
        if isinstance(claim, Mix):
            mixing = put.mixing(trace)[claim.row]
            assert claim.parts == tuple((key, pytest.approx(mixing[key])) for key, _ in claim.parts)
            assert claim.rest + sum(share for _, share in claim.parts) == pytest.approx(mixing.sum())


def test_stats_are_those_of_the_weights(put):
    found = run()
    bare = Trace({"attention_weights": found.steps["attention_weights"]}, dict(found), found.header)
    assert attnctl.stats(found).heads == attnctl.stats(bare).heads


@pytest.mark.sample(6)
def test_check_recomputes_it_and_finds_it_wrong(put):
    trace = run()
    assert attnctl.check(trace).agrees
    for step in ("put", *RESULT):
        wrong = {**trace, step: trace[step] * 1.01}
        assert attnctl.check(Trace(trace.steps, wrong, trace.header)).first == step


def test_show_has_it(put, tmp_path):
    trace = run()
    trace.save(tmp_path / "x.npz")
    shown = call("show", tmp_path / "x.npz", "--step", "put")
    assert (shown.code, shown.err) == (0, "")
    assert "put there" in shown.out
    assert f"{trace['put'].flat[0]:.4f}" in shown.out


@pytest.mark.parametrize("kind", ["scaling", "rotation", "norm"])
@pytest.mark.parametrize("after", BESIDE)
def test_gradients_go_back_through_it(monkeypatch, after, kind):
    Put(after, kind).register(monkeypatch)
    options = {"heads": 2, "backward": True}
    trace = run(**options)
    given = {name: trace[name] for name in ("X", "W_Q", "W_K", "W_V", "W_O")}
    random = np.random.RandomState(0)
    for name, array in given.items():
        by = 1e-6 * random.standard_normal(array.shape)
        moved = [attnctl.attend({**given, name: array + each})["output"] for each in (by, -by)]
        change = ((moved[0] - moved[1]) * trace["d_output"]).sum()
        assert change == pytest.approx(2 * (trace[f"d_{name}"] * by).sum(), rel=1e-6, abs=1e-12), name


@pytest.mark.parametrize("kind", ["scaling", "rotation", "norm"])
@pytest.mark.parametrize("after", ["X", "Q", "K"])
def test_explain_keeps_token_and_position_apart_through_it_or_does_not_say(monkeypatch, after, kind):
    put = Put(after, kind)
    put.register(monkeypatch)
    trace, head, row, column = run(positions="sinusoidal"), 1, 2, 4
    found = parts_of(trace, "scores", (head, row, column))
    if put.part is None:
        assert found is None
        return

    def side(name, part):
        x = put.of(trace, "X", trace[part], put.part) @ trace[f"W_{name}"][head]
        return put.of(trace, name, x, put.part)

    read = {"token": "embeddings", "position": "positions"}
    expected = {
        f"{a}×{b}": side("Q", read[a])[row] @ side("K", read[b])[column] for a, b in product(read, repeat=2)
    }
    assert {name: part for name, part in found.items() if name != "rest"} == pytest.approx(expected)


@pytest.mark.parametrize("after", ["scores", "scaled_scores", "masked_scores"])
def test_scores_may_be_hidden_in_any_step_of_scores(monkeypatch, after):
    Put(after, "scaling").register(monkeypatch)
    trace = run(causal=True, edits=["put[0,5,1]=-inf"])
    claims = {claim for chapter in attnctl.story(trace).chapters for claim in chapter.claims}
    assert not [claim for claim in claims if isinstance(claim, NotFinite)]
    hidden = {claim.step: dict(claim.by) for claim in claims if isinstance(claim, Hidden)}
    causal = {"causal": 30} if after == "masked_scores" else {}
    assert hidden["put"] == {**causal, "an edit": 1}

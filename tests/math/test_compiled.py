"""The exp for attention at size: its error, when it is used, and that it never stands in the way."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import attnctl
from attnctl.api import choose_settings
from attnctl.base.errors import AttnError
from attnctl.formats import write
from attnctl.inputs.plan import operator
from attnctl.math import engine
from attnctl.math.engine import compiled
from attnctl.math.engine.compiled import FEWEST, TYPES, VARIABLE, compiled_exp, exp_by, exp_for, exp_loop
from attnctl.math.ops import Scale
from attnctl.store.header import Contents, assemble_trace, heading

INF, NAN = float("inf"), float("nan")
NUMBA = importlib.util.find_spec("numba") is not None
RANGE = {"float32": (-105, 89), "float64": (-747, 710)}
MOST_OFF = {"float32": 1e-7, "float64": 3e-16}


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    yield compiled.compiled_exp.cache_clear()
    compiled_exp.cache_clear()


@pytest.fixture(params=["by Python", *["by numba"] * NUMBA])
def exp(request):
    """The exp of a type of number, its loop run by Python, and compiled where numba is installed."""
    if request.param == "by numba":
        return compiled_exp
    return lambda name: lambda x, out: exp_by(exp_loop(*TYPES[name]), x, out)


@pytest.mark.parametrize("name", TYPES)
def test_the_error_over_the_whole_range(name, exp, request):
    rng, (least, most) = np.random.RandomState(0), RANGE[name]
    count = 200_000 if "numba" in request.node.name else 2_000
    x = np.concatenate([rng.uniform(least, most, count), rng.uniform(-1, 1, count // 4)]).astype(name)
    with np.errstate(all="ignore"):
        exact, found = np.exp(x.astype(np.longdouble)), exp(name)(x, np.empty_like(x))
    info = np.finfo(name)
    usual = (exact >= info.tiny) & (exact <= info.max)
    assert np.abs(found / exact - 1)[usual].max() <= MOST_OFF[name]
    assert (np.abs(found - exact)[exact < info.tiny] <= info.smallest_subnormal).all()
    assert np.isinf(found[exact > info.max]).all()
    assert usual.mean() > 0.8
    assert ((exact < info.tiny) & (found > 0)).any()


SAID = {
    "the ends": ([-INF, INF, 0.0, -0.0, 1e-30, -1e-30], [0, INF, 1, 1, 1, 1]),
    "no number": ([NAN], [NAN]),
    "too small": ([-747, -1e6, -3e38], [0, 0, 0]),
    "too large": ([710, 1e6, 3e38], [INF, INF, INF]),
    "none": ([], []),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("what", SAID)
def test_numbers_at_the_ends(what, name, exp):
    x, expected = (np.array(each, name) for each in SAID[what])
    with np.errstate(all="ignore"):
        found = exp(name)(x, np.empty_like(x))
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found).any() or what == "no number"


@pytest.mark.parametrize("name", TYPES)
def test_it_fills_what_it_is_handed_and_no_more(name, exp):
    x = np.linspace(-9, 3, 77).astype(name).reshape(7, 11)
    before, room, own = x.copy(), np.full((8, 11), 5, name), x.copy()
    assert exp(name)(x, out=room[:7]) is not room
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(room[7], 5)
    exp(name)(own, out=own)
    np.testing.assert_array_equal(own, room[:7])


USED = [  # asked, type, how many of FEWEST, NumPy's is quick: compiled?
    (None, "float32", 1, False, True),
    (None, "float64", 1, False, True),
    (None, "float64", 0.9, False, False),
    (None, "float64", 1, True, False),
    (None, "float16", 1, False, False),
    ("", "float32", 0.9, False, False),
    ("off", "float64", 9, False, False),
    ("0", "float32", 9, False, False),
    ("on", "float32", 0, True, True),
    ("ON", "float64", 0, True, True),
    ("on", "float16", 9, False, False),
]


@pytest.mark.parametrize(("asked", "name", "count", "quick", "used"), USED)
def test_where_it_is_used(asked, name, count, quick, used, monkeypatch):
    monkeypatch.setattr(compiled, "compiled_exp", lambda name: f"compiled {name}")
    monkeypatch.setattr(compiled, "numpy_is_quick", lambda: quick)
    if asked is not None:
        monkeypatch.setenv(VARIABLE, asked)
    found = exp_for(np.dtype(name), int(count * FEWEST.get(name, 2**40)))
    assert found == (f"compiled {name}" if used else np.exp)


@pytest.mark.parametrize(("current", "quick"), [("AVX512_SKX", True), ("X86_V4", True), ("X86_V3", False)])
def test_what_numpy_says_of_its_own(current, quick, monkeypatch):
    class Introspect:
        opt_func_info = staticmethod(lambda func_name: {"exp": {"dd": {"current": current}}})

    monkeypatch.setattr(np.lib, "introspect", Introspect, raising=False)
    assert compiled.numpy_is_quick() == quick
    monkeypatch.setattr(Introspect, "opt_func_info", staticmethod(lambda func_name: {}))
    assert not compiled.numpy_is_quick()
    monkeypatch.delattr(np.lib, "introspect")
    assert not compiled.numpy_is_quick()


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(compiled, "numpy_is_quick", lambda: False)
    assert exp_for(np.dtype("float64"), 2**40) is np.exp
    monkeypatch.setenv(VARIABLE, "on")
    with pytest.raises(AttnError, match=r"pip install 'attnctl\[compiled\]'"):
        exp_for(np.dtype("float64"), 1)


class Broken:
    """A numba that cannot keep what it compiled, or cannot compile at all."""

    config = SimpleNamespace(DISABLE_JIT=0)

    def __init__(self, *, compiles):
        self.compiles = compiles

    def njit(self, *, cache, **_):
        if cache or not self.compiles:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function


@pytest.mark.parametrize("compiles", [True, False])
def test_a_cache_that_cannot_be_written(compiles, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", Broken(compiles=compiles))
    monkeypatch.setattr(compiled, "numpy_is_quick", lambda: False)
    one = np.ones(3)
    exp = exp_for(one.dtype, 2**40)
    assert (exp is np.exp) != compiles
    np.testing.assert_allclose(exp(one, out=one), np.e, rtol=1e-15)


@pytest.fixture
def calls(monkeypatch):
    """The sizes that an exp in place of NumPy's was called with, whatever the size of a run."""
    sizes = []
    other = lambda x, out: sizes.append(x.size) or np.exp(x, out=out)  # noqa: E731
    monkeypatch.setattr(compiled, "exp_for", lambda dtype, count: other)
    monkeypatch.setattr(engine, "FEWEST_FOR_TILES", 0)
    return sizes


@pytest.mark.parametrize("size", [1, 40])
def test_it_is_used_with_and_without_the_maximum(size, calls):
    arrays = {name: size * np.random.RandomState(0).randn(6, 5) for name in "QKV"}
    assert attnctl.attend(arrays, keep=["head_outputs"]).header["exp"] == "compiled"
    assert calls == [36]


def test_each_of_a_batch_says_so(calls):
    traces = attnctl.run_many(["I love AI", "so do we all"], keep=["output"])
    assert [trace.header["exp"] for trace in traces] == ["compiled", "compiled"]
    assert calls


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 1000 * 1000), ({"causal": True}, 480 * 480 + 480 * 960 + 40 * 1000)],
)
def test_what_no_tile_computes_does_not_count(options, count, monkeypatch):
    counts = []
    monkeypatch.setattr(compiled, "exp_for", lambda dtype, count: counts.append(count) or np.exp)
    attnctl.attend({name: np.ones((2, 1000, 1)) for name in "QKV"}, keep=["head_outputs"], **options)
    assert counts == [2 * count]


def test_numba_that_is_told_to_compile_nothing(monkeypatch):
    numba = Broken(compiles=True)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setattr(numba, "config", SimpleNamespace(DISABLE_JIT=1))
    assert compiled_exp("float64") is None


SCALED = [  # what is asked, what is kept: is Q scaled instead of the scores?
    ({}, (), True),
    ({"causal": True, "softcap": 3.0}, (), True),
    ({"positions": "alibi"}, (), True),
    ({}, ("scaled_scores",), True),
    ({}, ("scores",), False),
    ({"scale": 0.3}, (), False),
]


@pytest.mark.parametrize(("options", "kept", "scaled"), SCALED, ids=str)
def test_queries_are_scaled_before_the_product(options, kept, scaled, monkeypatch):
    """Where the exp is the compiled one; here it is NumPy's under another name."""
    shapes = []
    monkeypatch.setattr(compiled, "exp_for", lambda dtype, count: lambda x, out: np.exp(x, out=out))
    monkeypatch.setattr(
        Scale,
        "apply",
        lambda op, s, out=None, own=Scale.apply: shapes.append(s.shape) or own(op, s, out=out),
    )
    arrays = {name: np.random.RandomState(0).randn(2, 6, 5) for name in "QKV"}
    ready = operator.prepare(arrays, choose_settings(None, dict(options)), {})
    keep = [*kept, "head_outputs"]
    tiled = engine.carry_out(ready.derivation, ready.given, keep=keep, tile=(4, 3))
    assert {shape[1] == 5 for shape in shapes} == {scaled}
    whole = engine.carry_out(ready.derivation, ready.given)
    assert (tiled.compiled, whole.compiled) == (True, False)
    shapes.clear()
    monkeypatch.setattr(compiled, "exp_for", lambda dtype, count: np.exp)
    engine.carry_out(ready.derivation, ready.given, keep=keep, tile=(4, 3))
    assert 5 not in {shape[1] for shape in shapes}  # no bit of it changes
    for name in keep:
        np.testing.assert_allclose(tiled.values[name], whole.values[name], atol=1e-14)


@pytest.mark.parametrize("asked", ["off", *["on"] * NUMBA])
def test_a_dump_says_which(asked, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, asked)
    arrays = {name: np.random.RandomState(0).randn(1100, 4).astype("float32") for name in "QKV"}
    trace = attnctl.attend(arrays, dtype="float32", keep=["head_outputs"])
    write([trace], tmp_path / "trace.json")
    said = {"exp": "compiled"} if asked == "on" else {}
    for each in (trace, attnctl.load(tmp_path / "trace.json")):
        assert {key: value for key, value in each.header.items() if key == "exp"} == said
    with pytest.raises(AttnError, match=r"\$\.exp"):
        assemble_trace(Contents({**heading(trace), "steps": {"scores": {}}, "exp": 1}, {}, "x"), {})
    whole = attnctl.attend(arrays, dtype="float32")
    assert "exp" not in whole.header  # its weights are there: NumPy's
    np.testing.assert_allclose(trace["head_outputs"], whole["head_outputs"], atol=1e-6)

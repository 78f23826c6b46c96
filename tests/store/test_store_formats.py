"""Every format that is read: what was written comes back, bit for bit, and is written the same again."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from store_examples import bits, carried_out, of_arrays, same, traces, typed

from attnctl.base.errors import AttnError
from attnctl.formats import write
from attnctl.math.ops import Unstated
from attnctl.store import json_file
from attnctl.store.source import arrays, read, read_one

GOLDEN = Path(__file__).parent / "golden"
UNHURRIED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
READ = ["json", "jsonl", "npz", "safetensors"]


@pytest.fixture(params=["orjson", "standard library"])
def either_json(request, monkeypatch):
    if request.param == "standard library":
        monkeypatch.setattr(json_file, "find_orjson", lambda: None)


@pytest.mark.parametrize("suffix", [*READ, "csv"])
def test_the_bytes_are_those_that_were_agreed(suffix, tmp_path, either_json):
    write([typed()], tmp_path / f"typed.{suffix}")
    assert (tmp_path / f"typed.{suffix}").read_bytes() == (GOLDEN / f"typed.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", READ)
def test_what_was_agreed_is_read(suffix):
    trace = read_one(GOLDEN / f"typed.{suffix}")
    assert same(trace, typed())
    assert trace.tokens == ["=a,", "猫"]
    assert isinstance(trace.steps["b_O"].op, Unstated)


@pytest.mark.parametrize("suffix", READ)
@pytest.mark.parametrize(
    "form", [{}, {"heads": 1}, {"batch": True}, {"dtype": "float32"}, {"dtype": "float16"}], ids=str
)
def test_a_whole_attention_comes_back(suffix, form, tmp_path):
    trace = carried_out(**form)
    write([trace], tmp_path / f"a.{suffix}")
    back = read_one(tmp_path / f"a.{suffix}")
    assert same(back, trace)
    assert {**back.header, "attnctl": None} == {**trace.header, "attnctl": None}
    write([back], tmp_path / f"b.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


@pytest.mark.sample(2)
@pytest.mark.parametrize("suffix", READ)
@given(trace=traces())
@settings(max_examples=60, suppress_health_check=UNHURRIED)
def test_reading_and_writing_again_is_the_identity(suffix, trace, tmp_path):
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    write([trace], first)
    back = read_one(first)
    write([back], second)
    assert first.read_bytes() == second.read_bytes()
    assert list(back) == list(trace)
    for name in trace:
        array = trace[name].astype(trace[name].dtype.newbyteorder("="))
        if suffix.startswith("json") and array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan  # JSON has one
        assert bits(back[name]) == bits(array)
        assert back.steps[name].inputs == trace.steps[name].inputs
        assert back.steps[name].axes == trace.steps[name].axes


def test_a_format_is_told_from_what_is_in_the_file_not_from_its_name(tmp_path):
    for suffix in READ:
        hidden = tmp_path / f"{suffix}.dump"
        hidden.write_bytes((GOLDEN / f"typed.{suffix}").read_bytes())
        assert same(read_one(hidden), typed())


def test_a_dump_of_part_of_the_steps_is_read(tmp_path):
    part = carried_out().select(["attention_weights", "output"])
    for suffix in READ:
        write([part], tmp_path / f"a.{suffix}")
        assert read_one(tmp_path / f"a.{suffix}").steps == part.steps


def test_a_transposed_or_repeated_array_is_written_in_order(tmp_path):
    matrix = np.arange(6.0).reshape(2, 3)
    trace = of_arrays(turned=matrix.T, repeated=np.broadcast_to(matrix, (2, 2, 3)), back=matrix[:, ::-1])
    for suffix in READ:
        write([trace], tmp_path / f"a.{suffix}")
        assert same(read_one(tmp_path / f"a.{suffix}"), trace)


@pytest.mark.parametrize("dtype", ["complex128", "longdouble", "object", "U3", "M8[s]"])
@pytest.mark.parametrize("suffix", READ)
def test_what_no_dump_can_hold_is_refused_before_it_is_written(suffix, dtype, tmp_path):
    with pytest.raises(AttnError, match="step x: a dump cannot hold numbers of type"):
        write([of_arrays(x=np.zeros(2, dtype=dtype))], tmp_path / f"a.{suffix}")
    assert not list(tmp_path.iterdir())


# --- files of others ---

THEIRS = {
    "scores": np.zeros((2, 3, 3)),
    "attention_weights": np.ones((3, 3), dtype=np.float32),
    "Q": np.ones((4, 2, 3, 5)),
    "theirs": np.arange(6).reshape(1, 2, 3),
    "b_O": np.zeros((7, 7, 7)),
}
AXES = {
    "Q": ("batch", "head", "query", "d_k"),
    "scores": ("head", "query", "key"),
    "attention_weights": ("query", "key"),
    "b_O": ("axis 0", "axis 1", "axis 2"),
    "theirs": ("axis 0", "axis 1", "axis 2"),
}


def npz(path, found):
    np.savez(path, **found)


def npz_compressed(path, found):
    np.savez_compressed(path, **found)


def safetensors(path, found):
    pytest.importorskip("safetensors.numpy").save_file(found, path)


def nested_lists(path, found):
    path.write_text(json.dumps({name: array.tolist() for name, array in found.items()}))


@pytest.mark.parametrize("writer", [npz, npz_compressed, safetensors, nested_lists])
def test_arrays_of_others_get_the_axes_that_their_names_and_dimensions_tell(writer, tmp_path):
    path = tmp_path / "x.npz"
    writer(path, THEIRS)
    trace = read_one(path)
    assert {name: step.axes for name, step in trace.steps.items()} == AXES
    assert list(trace)[:3] == ["Q", "scores", "attention_weights"]  # the order of the derivation
    assert {type(step.op) for step in trace.steps.values()} == {Unstated}
    assert all((trace[name] == array).all() for name, array in THEIRS.items())
    assert arrays(path).keys() == THEIRS.keys()


@pytest.mark.parametrize("writer", [npz, safetensors, nested_lists])
def test_their_names_become_ours(writer, tmp_path):
    path = tmp_path / "x.npz"
    writer(path, {"attn": np.zeros((1, 2, 2)), "q": np.ones((1, 2, 4))})
    trace = read_one(path, rename={"attn": "attention_weights"})
    assert {name: step.axes for name, step in trace.steps.items()} == {
        "attention_weights": ("head", "query", "key"),
        "q": ("axis 0", "axis 1", "axis 2"),
    }
    with pytest.raises(AttnError, match="no array 'probs' to rename; it has "):
        read(path, rename={"probs": "attention_weights"})
    with pytest.raises(AttnError, match="two arrays would be called 'q'"):
        read(path, rename={"attn": "q"})


def test_the_steps_of_a_dump_keep_their_names(tmp_path):
    write([carried_out()], tmp_path / "a.json")
    with pytest.raises(AttnError, match="a dump of attnctl has names of its own"):
        read_one(tmp_path / "a.json", rename={"attention_weights": "probs"})


def test_an_array_alone_goes_by_the_name_of_its_file(tmp_path):
    np.save(tmp_path / "Q.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    trace = read_one(tmp_path / "Q.npy")
    assert trace["Q"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert trace.steps["Q"].axes == ("query", "d_k")


def test_booleans_of_others_stay_booleans(tmp_path):
    (tmp_path / "x.json").write_text('{"mask": [[true, false]], "Q": [[1, 2]]}')
    found = arrays(tmp_path / "x.json")
    assert (found["mask"].dtype, found["Q"].dtype) == (np.dtype(bool), np.dtype(np.float64))


# --- several traces, and streams ---


def test_several_traces_in_an_array_or_a_line_each(tmp_path):
    several = [typed(), carried_out(heads=1)]
    for suffix in ("json", "jsonl"):
        write(several, tmp_path / f"a.{suffix}")
        back = read(tmp_path / f"a.{suffix}")
        assert all(same(one, other) for one, other in zip(back, several, strict=True))
        with pytest.raises(AttnError, match="2 traces where one was expected"):
            read_one(tmp_path / f"a.{suffix}")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 2
    assert isinstance(json.loads((tmp_path / "a.json").read_text()), list)


class Pipe(io.RawIOBase):
    """Bytes that come once, a few at a time."""

    def __init__(self, data):
        self.inside = io.BytesIO(data)

    def readable(self):
        return True

    def read(self, size=-1):
        return self.inside.read(min(size, 1000) if size >= 0 else 1000)


@pytest.mark.parametrize("suffix", READ)
def test_standard_input_is_read_to_its_end(suffix):
    data = (GOLDEN / f"typed.{suffix}").read_bytes()
    assert same(read_one("-", Pipe(data)), typed())
    assert same(read_one("-", io.BytesIO(data)), typed())


@pytest.mark.parametrize("suffix", READ)
def test_a_file_on_standard_input_is_read_from_where_it_stands(suffix, tmp_path):
    with (GOLDEN / f"typed.{suffix}").open("rb") as stream:
        assert same(read_one("-", stream), typed())
    (tmp_path / "later").write_bytes(b"line\n" + (GOLDEN / f"typed.{suffix}").read_bytes())
    with (tmp_path / "later").open("rb") as stream:
        stream.readline()
        assert same(read_one("-", stream), typed())

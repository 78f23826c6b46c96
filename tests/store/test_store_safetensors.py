"""safetensors: the format's own package reads ours, we read its, and what its rules forbid is refused."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from store_examples import carried_out, of_arrays

from attnctl.base.errors import AttnError
from attnctl.formats import write
from attnctl.store.source import read_one

package = pytest.importorskip("safetensors")
package_numpy = pytest.importorskip("safetensors.numpy")

GOLDEN = Path(__file__).parent / "golden" / "typed.safetensors"
DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


def test_the_package_reads_ours(tmp_path):
    trace = carried_out()
    write([trace], tmp_path / "a.safetensors")
    found = package_numpy.load_file(tmp_path / "a.safetensors")
    assert found.keys() == set(trace)
    assert all(found[name].tobytes() == trace[name].tobytes() for name in trace)
    with package.safe_open(tmp_path / "a.safetensors", framework="numpy") as opened:
        header = json.loads(opened.metadata()["attnctl.json"])
    assert header["steps"]["scores"]["shape"] == [2, 3, 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_read_the_package_in_every_dtype(dtype, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    theirs = {"Q": array, "empty": array[:0], "one": np.array(array[0, 1])}
    package_numpy.save_file(theirs, tmp_path / "x.safetensors")
    trace = read_one(tmp_path / "x.safetensors")
    assert trace["Q"].dtype == array.dtype
    assert trace["Q"].tolist() == array.tolist()
    assert trace["empty"].shape == (0, 3)
    assert trace["one"] == array[0, 1]
    write([trace], tmp_path / "b.safetensors")
    assert package_numpy.load_file(tmp_path / "b.safetensors")["Q"].tolist() == array.tolist()


def test_ours_are_aligned_whatever_stands_before_them(tmp_path):
    arrays = {"a": np.ones(3, bool), "b": np.ones(3, "f2"), "c": np.ones(3), "d": np.ones(3, "f4")}
    write([of_arrays(**arrays)], tmp_path / "a.safetensors")
    trace = read_one(tmp_path / "a.safetensors")
    assert list(trace) == ["a", "b", "c", "d"]
    assert not any(trace[name].flags.owndata for name in trace)


def file_of(header, data=b"", length=None):
    """A file with this header, in Python or already text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(*offsets, dtype="F64", shape=(1,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_bfloat16_is_read_as_float32(tmp_path):
    data = struct.pack("<4H", 0x3F80, 0xC000, 0x7F80, 0x3DCD)
    (tmp_path / "x").write_bytes(file_of({"Q": tensor(0, 8, dtype="BF16", shape=(2, 2))}, data))
    trace = read_one(tmp_path / "x")
    assert trace["Q"].dtype == np.float32
    assert trace["Q"].tolist() == [[1.0, -2.0], [float("inf"), 0.10009765625]]
    assert trace.steps["Q"].axes == ("query", "d_k")


REFUSED = {
    "no header": (b"\x08\0\0\0\0\0\0\0{", "a safetensors header of 8 B in 9 B"),
    "header 2**63": (file_of({}, length=2**63), "a safetensors header of"),
    "header over the limit": (file_of({}, length=100_000_001), "a safetensors header of 95.4 MiB"),
    "header cut": (file_of({"Q": tensor(0, 8)}, b"\0" * 8, length=20), "not JSON"),
    "twice": (file_of(b'{"Q": 1, "Q": 2}'), "the key 'Q' stands twice in one object"),
    "metadata numbers": (file_of({"__metadata__": {"a": 1}}), "$.__metadata__: expected strings by name"),
    "metadata a list": (file_of({"__metadata__": []}), "$.__metadata__: expected strings by name"),
    "nothing": (file_of({}), "no arrays in it"),
    "not an object": (file_of({"Q": 3}), "$.Q: expected dtype, shape and data_offsets, found 3"),
    "no shape": (file_of({"Q": {"dtype": "F64"}}), "$.Q: expected dtype, shape and data_offsets"),
    "unknown dtype": (
        file_of({"Q": tensor(0, 8, dtype="F8_E4M3")}, b"\0" * 8),
        "$.Q.dtype: F8_E4M3; quantised numbers are not read",
    ),
    "dtype a list": (file_of({"Q": tensor(0, 8, dtype=[])}, b"\0" * 8), "$.Q.dtype: a list is none of"),
    "negative": (
        file_of({"Q": tensor(0, 8, shape=(-1,))}, b"\0" * 8),
        "$.Q.shape: expected sizes",
    ),
    "true": (file_of({"Q": tensor(0, 8, shape=(True,))}, b"\0" * 8), "$.Q.shape: expected sizes"),
    "many axes": (
        file_of({"Q": tensor(0, 8, shape=(1,) * 9)}, b"\0" * 8),
        "$.Q.shape: 9 axes; 8 are the most",
    ),
    "overflow": (
        file_of({"Q": tensor(0, 0, shape=(2**32, 2**32, 0))}),
        "$.Q.shape: the shape 4294967296 × 4294967296 × 0 is too large",
    ),
    "one offset": (file_of({"Q": tensor(0)}, b"\0" * 8), "$.Q.data_offsets: expected two offsets"),
    "too few bytes": (file_of({"Q": tensor(0, 7)}, b"\0" * 7), "$.Q: shape and data disagree: 7 B where"),
    "backwards": (file_of({"Q": tensor(8, 0)}, b"\0" * 8), "$.Q: shape and data disagree: 0 B where"),
    "overlap": (
        file_of({"Q": tensor(0, 8), "K": tensor(4, 12)}, b"\0" * 12),
        "$.K: begins at byte 4 where the array before it ends at 8",
    ),
    "the same bytes": (
        file_of({"Q": tensor(0, 8), "K": tensor(0, 8)}, b"\0" * 8),
        "begins at byte 0 where",
    ),
    "a hole": (file_of({"Q": tensor(0, 8), "K": tensor(9, 17)}, b"\0" * 17), "$.K: begins at byte 9 where"),
    "beyond the end": (file_of({"Q": tensor(0, 8)}, b"\0" * 7), "the arrays end at byte 8 of 7"),
    "more at the end": (file_of({"Q": tensor(0, 8)}, b"\0" * 9), "the arrays end at byte 8 of 9"),
    "our header no JSON": (
        file_of({"__metadata__": {"attnctl.json": "{"}, "Q": tensor(0, 8)}, b"\0" * 8),
        "attnctl.json: not JSON",
    ),
    "our header a list": (
        file_of({"__metadata__": {"attnctl.json": "[]"}, "Q": tensor(0, 8)}, b"\0" * 8),
        "attnctl.json: expected one object",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_format_forbids_is_refused(case, tmp_path):
    data, message = REFUSED[case]
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(AttnError) as found:
        read_one(tmp_path / "x.safetensors")
    assert message in str(found.value)


def test_a_header_of_ours_that_does_not_fit_its_arrays_is_refused(tmp_path):
    data = GOLDEN.read_bytes()
    (tmp_path / "a").write_bytes(data.replace(b'\\"shape\\": [3, 2]', b'\\"shape\\": [2, 3]'))
    with pytest.raises(AttnError, match=r"\$\.steps\.scores\.shape: says 2 × 3, but the numbers are 3 × 2"):
        read_one(tmp_path / "a")


def test_the_name_that_the_format_keeps_for_itself_is_refused(tmp_path):
    with pytest.raises(AttnError, match="step __metadata__: this cannot be the name of an array"):
        write([of_arrays(__metadata__=np.zeros(2))], tmp_path / "a.safetensors")

"""Archives of arrays: NumPy reads ours, we read NumPy's, in place and step by step."""

import gc
import io
import json
import os
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from store_examples import carried_out, of_arrays, same, typed

from attnctl.base.errors import AttnError
from attnctl.formats import write
from attnctl.store import npz
from attnctl.store.source import read_one

GOLDEN = Path(__file__).parent / "golden" / "typed.npz"


def test_numpy_reads_every_member_of_ours():
    with np.load(GOLDEN, allow_pickle=False) as found:
        assert found.files == ["scores", "mask", "b_O", "masked_scores", "attnctl.json"]
        assert found["mask"].tolist() == [[True, False], [True, True]]
        assert found["b_O"].dtype == np.float16
        header = json.loads(found["attnctl.json"].item())
    assert header["tokens"] == ["=a,", "猫"]
    assert header["steps"]["masked_scores"]["inputs"] == ["scores", "mask"]
    assert "data" not in header["steps"]["scores"]


def test_the_header_is_one_line_of_json_for_a_shell():
    with zipfile.ZipFile(GOLDEN) as archive:
        first, text = archive.read("attnctl.json.npy").split(b"\n", 1)
    assert first.startswith(b"\x93NUMPY")
    assert json.loads(text)["schema"] == "attnctl/trace/1"


def test_arrays_are_mapped_aligned_and_cannot_be_written_to(tmp_path):
    write([carried_out()], tmp_path / "a.npz")
    trace = read_one(tmp_path / "a.npz")
    for name in trace:
        array = trace[name]
        assert not array.flags.owndata
        assert not array.flags.writeable
        assert array.ctypes.data % 64 == 0


def test_archives_too_large_for_sizes_of_32_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "LARGE", 0)
    write([typed()], tmp_path / "a.npz")
    assert same(read_one(tmp_path / "a.npz"), typed())
    assert all(read_one(tmp_path / "a.npz")[name].ctypes.data % 64 == 0 for name in typed())
    with np.load(tmp_path / "a.npz") as found:
        assert found["mask"].tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_numpy_in_any_layout(save, tmp_path):
    matrix = np.arange(12.0).reshape(3, 4)
    theirs = {
        "turned": matrix.T,
        "swapped": matrix.astype(">f4"),
        "one": np.float32(2),
        "none": np.zeros((0, 3)),
    }
    save(tmp_path / "x.npz", **theirs)
    trace = read_one(tmp_path / "x.npz")
    for name, array in theirs.items():
        assert trace[name].dtype.isnative
        assert trace[name].shape == np.shape(array)
        assert (trace[name] == array).all()


def test_only_the_step_that_is_asked_for_is_read(tmp_path):
    write([of_arrays(Q=np.zeros(1000), K=np.ones(1000))], tmp_path / "a.npz")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    at = data.index(np.ones(1000).tobytes())
    data[at + 8 * 500] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    trace = read_one(tmp_path / "a.npz")
    assert not trace["Q"].any()
    with pytest.raises(AttnError, match="'K': damaged: its numbers do not have the checksum"):
        trace["K"]


def test_a_damaged_compressed_step_is_refused_too(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", Q=np.random.RandomState(0).normal(size=1000))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.npz").write_bytes(data)
    trace = read_one(tmp_path / "x.npz")
    with pytest.raises(AttnError, match=r"not a sound \.npz"):
        trace["Q"]


def test_a_compressed_array_is_inflated_once_while_it_is_in_use(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", Q=np.zeros(1000))
    trace = read_one(tmp_path / "x.npz")
    assert trace["Q"] is trace["Q"]


def test_many_threads_read_one_file(tmp_path):
    theirs = {f"s{n}": np.full(20_000, float(n)) for n in range(16)}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **theirs)
        trace = read_one(tmp_path / "x.npz")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(trace.__getitem__, list(theirs) * 4))
        assert [set(array) for array in found] == [{float(n)} for n in range(16)] * 4


def test_what_is_beside_the_arrays_is_left_alone(tmp_path):
    np.savez(tmp_path / "x.npz", Q=np.zeros(3))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr("README.txt", "not an array")
    assert list(read_one(tmp_path / "x.npz")) == ["Q"]


def test_a_file_that_shrinks_after_it_was_opened(tmp_path):
    write([of_arrays(Q=np.zeros(100_000))], tmp_path / "a.npz")
    trace = read_one(tmp_path / "a.npz")
    os.truncate(tmp_path / "a.npz", 100)
    with pytest.raises(AttnError, match="'Q': cannot be read from its file any more"):
        trace["Q"]


def test_files_are_closed_with_their_last_reader(tmp_path):
    write([typed()], tmp_path / "a.npz")
    write([typed()], tmp_path / "a.safetensors")
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        kept = [read_one(tmp_path / "a.npz")["scores"], read_one(tmp_path / "a.safetensors")["scores"]]
        read_one("-", io.BytesIO((tmp_path / "a.npz").read_bytes()))
    del kept
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_array_outlives_its_file(tmp_path):
    write([typed()], tmp_path / "a.npz")
    scores = read_one(tmp_path / "a.npz")["scores"]
    (tmp_path / "a.npz").unlink()
    gc.collect()
    assert scores.tolist() == typed()["scores"].tolist()


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_writing_takes_no_copy_of_the_arrays(suffix, tmp_path):
    array = np.zeros((2, 1024, 1024))
    tracemalloc.start()
    write([of_arrays(Q=array, K=array.swapaxes(1, 2))], tmp_path / f"a.{suffix}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < array.nbytes / 4
    assert same(read_one(tmp_path / f"a.{suffix}"), of_arrays(Q=array, K=array.swapaxes(1, 2)))


@pytest.mark.parametrize("name", ["attnctl.json", "a\0b", "\ud800", "a" * 1001])
def test_a_name_that_an_archive_cannot_hold_is_refused(name, tmp_path):
    with pytest.raises(AttnError, match=r"this cannot be the name of an array in an \.npz"):
        write([of_arrays(**{name: np.zeros(2)})], tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())

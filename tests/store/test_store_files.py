"""Files: by suffix, whole or not at all, whatever fails."""

import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from store_examples import carried_out, of_arrays, typed

from attnctl.base.errors import AttnError
from attnctl.formats import write, write_all
from attnctl.store import files
from attnctl.store.files import write_text
from attnctl.store.json_file import write_json
from attnctl.store.source import read, read_one

SUFFIXES = ["json", "jsonl", "npz", "safetensors", "csv", "md"]
OLD = b"what was there before"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_suffix_says_the_format_and_nothing_else_is_left(suffix, tmp_path):
    write([carried_out()], tmp_path / f"a.{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]
    assert (tmp_path / f"a.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["a.txt", "a", "a.JSON", ".json", "a.npz.gz", "json"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(name, tmp_path):
    with pytest.raises(
        AttnError, match=r"expected one of \.json, \.jsonl, \.npz, \.safetensors, \.csv, \.xlsx, \.md"
    ):
        write([typed()], tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["safetensors"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_file_of_one_trace_takes_no_other_number(suffix, count, tmp_path):
    with pytest.raises(AttnError, match=rf"\.{suffix} holds one trace, not {count}"):
        write([typed()] * count, tmp_path / f"a.{suffix}")


def test_a_suffix_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(AttnError, match="holds one trace, not 2"):
        write_all([typed()] * 2, [tmp_path / "a.json", tmp_path / "a.safetensors"])
    assert not list(tmp_path.iterdir())


def test_an_npz_holds_several_traces_in_folders(tmp_path):
    traces = [typed(), carried_out()]
    write(traces, tmp_path / "a.npz")
    found = read(str(tmp_path / "a.npz"))
    assert [trace.steps for trace in found] == [trace.steps for trace in traces]
    assert [trace.tokens for trace in found] == [trace.tokens for trace in traces]
    for ours, theirs in zip(traces, found, strict=True):
        assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


def test_several_files_at_once(tmp_path):
    write_all([typed()], [tmp_path / "a.json", tmp_path / "a.npz"])
    assert read_one(tmp_path / "a.json").steps == read_one(tmp_path / "a.npz").steps


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write([typed()], tmp_path / "a.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_an_existing_file_keeps_its_mode(mode, tmp_path):
    (tmp_path / "a.json").write_bytes(OLD)
    (tmp_path / "a.json").chmod(mode)
    write([typed()], tmp_path / "a.json")
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == mode
    assert read_one(tmp_path / "a.json").tokens


def test_symbolic_links_are_followed_and_stay(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real.json").write_bytes(OLD)
    (tmp_path / "middle.json").symlink_to("folder/real.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "middle.json")
    write([typed()], tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "middle.json").is_symlink()
    assert read_one(tmp_path / "folder" / "real.json").tokens
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["real.json"]


def test_a_link_to_nothing_yet_makes_its_target(tmp_path):
    (tmp_path / "link.json").symlink_to("new.json")
    write([typed()], tmp_path / "link.json")
    assert read_one(tmp_path / "new.json").tokens


def test_a_reader_of_the_old_file_keeps_it(tmp_path):
    write([of_arrays(Q=np.zeros(1000))], tmp_path / "a.npz")
    old = read_one(tmp_path / "a.npz")
    write([of_arrays(Q=np.ones(1000))], tmp_path / "a.npz")
    assert not old["Q"].any()
    assert read_one(tmp_path / "a.npz")["Q"].all()


def test_a_dump_can_be_written_over_itself(tmp_path):
    for suffix in ("json", "npz", "safetensors"):
        path = tmp_path / f"a.{suffix}"
        write([carried_out()], path)
        before = path.read_bytes()
        write([read_one(path)], path)
        assert path.read_bytes() == before


# --- what the system refuses ---


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/a.json", "cannot be written: No such file or directory"),
        ("folder.json", "cannot be written: it is a folder"),
        ("file.json/a.json", "cannot be written: Not a directory"),
        ("x" * 300 + ".json", "cannot be written: File name too long"),
        ("loop.json", "cannot be written: Too many levels of symbolic links"),
    ],
)
def test_a_place_that_cannot_be_written_to(name, message, tmp_path):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file.json").write_bytes(OLD)
    (tmp_path / "loop.json").symlink_to("loop.json")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AttnError) as found:
        write([typed()], tmp_path / name)
    assert str(found.value) == f"{tmp_path / name}: {message}"
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file.json").read_bytes() == OLD


def test_a_file_marked_read_only_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_bytes(OLD)
    (tmp_path / "a.json").chmod(0o444)
    monkeypatch.setattr(
        os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o200)
    )  # not as root
    with pytest.raises(AttnError, match=r"a\.json: cannot be written: it is read-only"):
        write([typed()], tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == OLD


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_one_clear_message(suffix, tmp_path):
    (tmp_path / f"full.{suffix}").symlink_to("/dev/full")
    with pytest.raises(AttnError, match=rf"full\.{suffix}: cannot be written: No space left on device"):
        write([carried_out()], tmp_path / f"full.{suffix}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", ["/dev/null", "/dev/stdout"])
def test_a_device_is_written_to_directly(path, tmp_path):
    imports = "from attnctl.formats import write; from attnctl.store.source import read_one"
    code = f"{imports}; write([read_one('-')], {path!r})"
    data = (Path(__file__).parent / "golden" / "typed.json").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout == (data if path == "/dev/stdout" else b"")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize(
    ("path", "special"),
    [
        ("/dev/null", True),
        ("/dev/stdout", True),
        ("/dev/fd/63", True),
        ("/proc/self/fd/1", True),
        ("/dev/shm/a.json", False),
        ("/dev", False),
        ("a.json", False),
    ],
)
def test_what_is_a_device(path, special):
    assert files.is_special(path) == special


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors"])
def test_a_named_pipe_is_written_to_directly(suffix, tmp_path):
    pipe = tmp_path / f"pipe.{suffix}"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write([typed()], pipe)
    reader.join()
    (tmp_path / f"copy.{suffix}").write_bytes(found[0])
    assert read_one(tmp_path / f"copy.{suffix}").steps == typed().steps
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_reader_that_leaves_is_no_mistake_of_ours(tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    threading.Timer(0.2, os.close, [reader]).start()
    with pytest.raises(BrokenPipeError):
        write([of_arrays(x=np.zeros(100_000))], pipe)


def test_a_text_is_written_whole_too(tmp_path):
    (tmp_path / "a.yaml").write_bytes(OLD)
    write_text("sentence: 猫\n", tmp_path / "a.yaml")
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "sentence: 猫\n"


# --- streams ---


def test_json_goes_to_streams_of_bytes_and_of_text_alike():
    data, text = io.BytesIO(), io.StringIO()
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")  # JSON is UTF-8 all the same
    for stream in (data, text, latin):
        write_json([typed()], stream)
    assert data.getvalue() == text.getvalue().encode() == latin.buffer.getvalue()
    assert "猫" in text.getvalue()

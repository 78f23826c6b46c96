"""A captured program is at home: whatever it does with files and descriptors is as it is by itself."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.store import calls
from attnctl.store.source import read
from attnctl.verbs.capture.file import CaptureFile

ATTEND = """
import os, signal, sys
import numpy as np
def attend(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
a = np.random.default_rng(0).normal(size=(4, 8))
"""

# Of this program alone: ru_maxrss begins with what the process was that started it.
PEAK = "print(int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024)"


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """Capture a program that is given as text; what it said, and its exit code."""
    monkeypatch.chdir(tmp_path)

    def run(text, output="c.npz", **more):
        Path("guest.py").write_text(ATTEND + text)
        words = [sys.executable, "-m", "attnctl", "capture", "-o", output]
        words += ["--function", "guest:attend", "guest.py"]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **more)

    return run


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


AT_HOME = {
    "its folder is gone": (
        'import tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d); attend(a, a, a); print("done")',
        1,
    ),
    "every descriptor is closed": (
        ('attend(a, a, a); os.closerange(3, 4096); f = open("f", "w"); g = open("g", "w")\n'
        'f.write("me"); f.flush(); attend(a, a, a); g.write("me"); g.close(); f.close(); print("done")'),
        2,
    ),
    "our descriptor is another file's": (
        ('attend(a, a, a)\nfor n in range(3, 1024):\n'
        '    f = os.open("theirs", os.O_WRONLY | os.O_CREAT)\n'
        "    if f != n: os.dup2(f, n); os.close(f)\n"
        'attend(a, a, a); os.write(600, b"mine"); print("done")'),
        2,
    ),
    "stray bytes into every descriptor": (
        ('attend(a, a, a)\nfor n in range(3, 1024):\n'
        '    try: os.write(n, b"xxxx")\n    except OSError: pass\nattend(a, a, a); print("done")'),
        2,
    ),
    "a complex call": ('attend(a, a, a); attend(a + 0j, a, a); print("done")', 1),
    "a call of long doubles": ('attend(a, a, a); attend(a.astype(np.longdouble), a, a); print("done")', 1),
    "a call of texts": (
        'attend(a, a, a)\ntry: attend(a.astype(str), a, a)\nexcept TypeError: print("done")', 1
    ),
    "infinity as an option": (
        ('g = attend\ndef attend(q, k, v, fill=0.0): return g(q, k, v)\n'
        'attend(a, a, a, fill=float("-inf")); attend(a, a, a, fill=10**5000); print("done")'),
        2,
    ),
    "a document as an option": (
        ('g = attend\ndef attend(q, k, v, text=""): return g(q, k, v)\n'
        'attend(a, a, a, text="x" * 10**7); print("done")'),
        1,
    ),
    "SystemExit of an array": (
        ("class A(np.ndarray):\n"
        "    def __getattribute__(self, name):\n"
        '        if name == "nbytes": raise SystemExit(7)\n'
        "        return super().__getattribute__(name)\n"
        'attend(a, a, a); attend(a.view(A), a, a); print("done")'),
        1,
    ),
    "stderr is closed": ('attend(a, a, a); os.closerange(3, 4096); os.close(2); print("done")', 1),
    "stderr is another file": (
        ('attend(a, a, a)\nfor n in range(2, 1024):\n'
        '    f = os.open("theirs", os.O_RDWR | os.O_CREAT); os.dup2(f, n)\n    if f != n: os.close(f)\n'
        'print("done", flush=True); os._exit(0)'),
        1,
    ),
    "a fork": (
        ("attend(a, a, a)\nif os.fork() == 0:\n    attend(a, a, a); os._exit(0)\n"
        'os.wait(); attend(a, a, a); print("done")'),
        2,
    ),
    "no more descriptors": (
        ("import resource; attend(a, a, a); resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        'attend(a, a, a); print("done")'),
        2,
    ),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("text", "kept"), AT_HOME.values(), ids=AT_HOME)
def test_what_a_program_does_is_as_it_is_by_itself(guest, call, text, kept):
    alone = subprocess.run(
        [sys.executable, "-c", ATTEND + text], capture_output=True, text=True, timeout=60, check=False
    )
    theirs = {path.name: path.read_bytes() for path in Path().iterdir() if path.name != "guest.py"}
    for path in theirs:
        Path(path).unlink()
    done = guest(text)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert done.stdout == "done\n"
    assert {path: Path(path).read_bytes() for path in theirs} == theirs
    assert "Traceback" not in done.stderr
    assert len(read("c.npz")) == kept
    assert call("check", "c.npz").code == 0


KEPT = {
    "a program that reads it": 'np.load("c.npz")["a"]; attend(a, a, a)',
    "a program that reads it through a link": (
        'os.symlink("c.npz", "link.npz"); np.load("link.npz")["a"]; attend(a, a, a)'
    ),
    "a program that is killed": "attend(a, a, a); os.kill(os.getpid(), signal.SIGKILL)",
    "a program that ends at once": "attend(a, a, a); os._exit(3)",
    "a program that fails before": "sys.exit(3)",
    "a call that is not read": "attend(a + 0j, a, a)",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_file_that_was_there_is_kept(guest, text):
    np.savez("c.npz", a=np.eye(4))
    before = digest("c.npz")
    guest(text)
    assert digest("c.npz") == before
    if "attend(a, a" in text:
        assert len(read("c.part.npz")) == 1
    else:
        assert not Path("c.part.npz").exists()


def test_a_capture_takes_the_place_of_another(guest):
    guest("attend(a, a, a)")
    Path("c.npz").chmod(0o640)
    done = guest("attend(a, a, a); attend(a, a, a)")
    assert done.stderr == "attnctl: c.npz: 2 calls; attnctl check c.npz judges them\n"
    assert len(read("c.npz")) == 2
    assert Path("c.npz").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in Path().iterdir()) == ["c.npz", "guest.py"]


def test_what_a_program_writes_under_the_name_is_its_own(guest):
    done = guest('attend(a, a, a); np.savez("c.npz", mine=a); attend(a, a, a)')
    assert done.returncode == 0
    with np.load("c.npz") as file:
        assert file.files == ["mine"]
    assert len(read("c.part.npz")) == 2
    assert (
        "c.npz: left as it is, as the program opened or wrote it; the calls are in c.part.npz"
        in done.stderr
    )


def test_what_a_program_moves_there_is_its_own(guest):
    guest('attend(a, a, a); np.savez("d.npz", mine=a); os.replace("d.npz", "c.npz"); attend(a, a, a)')
    with np.load("c.npz") as file:
        assert file.files == ["mine"]
    assert len(read("c.part.npz")) == 2


def test_the_source_of_a_module_is_kept(guest):
    Path("mine.py").write_text("x = 1\n")
    Path("c.npz").symlink_to("mine.py")
    for _ in range(2):  # the second time it is read from a cache
        guest("import mine; attend(a, a, a)")
        assert Path("mine.py").read_text() == "x = 1\n"
    Path("c.npz").unlink()
    Path("c.npz").symlink_to("guest.py")
    done = guest("attend(a, a, a)")
    assert (done.returncode, done.stderr) == (
        2, "attnctl: -o c.npz: it is guest.py, which this command reads; give another name\n",
    )  # fmt: skip


def test_a_pipe_is_refused(guest):
    os.mkfifo("c.npz")
    done = guest("attend(a, a, a)")
    assert (done.returncode, done.stderr) == (
        2, "attnctl: -o c.npz: it is a pipe or a socket; name a file\n",
    )  # fmt: skip


def test_a_program_may_remove_what_is_there(guest):
    done = guest('attend(a, a, a); os.remove("c.npz"); attend(a, a, a)')
    assert done.returncode == 0
    assert not Path("c.npz").exists()
    assert len(read("c.part.npz")) == 2


def test_a_file_that_is_removed_unheard_is_said(guest):
    done = guest('attend(a, a, a); os.system("rm c.npz"); attend(a, a, a)')
    assert done.returncode == 0
    assert done.stderr == "attnctl: c.npz: the program removed it, and 2 calls with it\n"


def arrays(number=0):
    q = np.random.default_rng(number).normal(size=(4, 8)).astype(np.float32)
    return {"Q": q, "K": q, "V": q}


def header(number):
    return {"schema": "attnctl/trace/1", "call": {"number": number, "at": "", "module": ""}}


def test_a_writer_and_its_reader_share_one_limit(tmp_path, monkeypatch):
    """As many calls as are written are read, and one more is neither."""
    monkeypatch.setattr(calls, "MOST_CALLS", 5)
    monkeypatch.setattr("attnctl.verbs.capture.file.MOST_CALLS", 5)
    file = CaptureFile(str(tmp_path / "c.npz"))
    for number in range(5):
        file.add(number, arrays(number), header(number))
    with pytest.raises(OSError, match="5 calls are the most"):
        file.add(5, arrays(), header(5))
    file.close()
    assert [trace.header["call"]["number"] for trace in read(tmp_path / "c.npz")] == [0, 1, 2, 3, 4]
    monkeypatch.setattr(calls, "MOST_CALLS", 4)
    with pytest.raises(attnctl.AttnError, match="more than 4 calls, which are the most"):
        read(tmp_path / "c.npz")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((1,) * 9), "9 axes; 8 are the most"),
        (np.zeros(2, np.complex64), "numbers of type complex64"),
        (np.zeros(2, object), "numbers of type object"),
        (np.zeros(2, "M8[s]"), "numbers of type datetime64"),
    ],
)
def test_what_no_reader_takes_is_not_written(array, words):
    with pytest.raises(attnctl.AttnError, match=words):
        calls.refuse_unreadable("Q", array)


@pytest.mark.parametrize("longest", [200, 120])
def test_a_header_is_as_long_as_it_is_read(tmp_path, monkeypatch, longest):
    text = json.dumps(header(0))
    monkeypatch.setattr(calls, "LONGEST_HEADER", longest)
    file = CaptureFile(str(tmp_path / "c.npz"))
    more = {"sentence": "x" * (longest - len(text) - len(', "sentence": ""'))}
    file.add(0, arrays(), {**header(0), **more})
    with pytest.raises(attnctl.AttnError, match="are the most"):
        file.add(1, arrays(), {**header(1), "sentence": more["sentence"] + "x"})
    file.close()
    assert len(read(tmp_path / "c.npz")) == 1


def test_a_file_that_was_packed_again_is_read(tmp_path):
    """Whoever makes it smaller leaves members that are compressed, with names in any order of bytes."""
    written = tmp_path / "c.npz"
    file = CaptureFile(str(written))
    for number in range(2):
        file.add(number, arrays(), header(number))
    file.close()

    smaller = tmp_path / "smaller.npz"
    with zipfile.ZipFile(written) as before, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            after.writestr(name, before.read(name))
    assert smaller.stat().st_size < written.stat().st_size
    for one, again in zip(read(written), read(smaller), strict=True):
        assert one.header == again.header
        for name in one:
            np.testing.assert_array_equal(one[name], again[name])


@pytest.mark.parametrize("count", [20, pytest.param(40_000, marks=pytest.mark.slow)])
def test_any_zip_reads_it(tmp_path, count):
    """Its directory is one that zipfile takes, with more members than fit into 16 bits, too."""
    file = CaptureFile(str(tmp_path / "c.npz"))
    one = {"Q": np.float32(1.0)}
    for number in range(count):
        file.add(number, {"Q": np.asarray(one["Q"])}, {"number": number})
    file.close()
    with zipfile.ZipFile(tmp_path / "c.npz") as archive:
        assert len(archive.namelist()) == 2 * count
        assert archive.namelist()[-1] == f"{count - 1}/attnctl.json.npy"
        assert archive.testzip() is None


def test_calls_are_judged_each_by_itself(tmp_path, call, monkeypatch):
    """One whose arrays are of no attention, one that is damaged, one that is of another schema."""
    monkeypatch.chdir(tmp_path)
    file = CaptureFile("c.npz")
    good = arrays()
    weights = np.exp(good["Q"] @ good["K"].T / np.sqrt(8))
    good["output"] = (weights / weights.sum(-1, keepdims=True) @ good["V"]).astype(np.float32)
    file.add(0, good, header(0))
    file.add(1, {**good, "K": np.zeros((3, 5), np.float32)}, header(1))
    file.add(2, good, {**header(2), "schema": "other"})
    file.add(3, good, {**header(3), "config": {"scale": "x"}})
    file.add(4, good, header(4))
    file.close()
    data = bytearray(Path("c.npz").read_bytes())
    with zipfile.ZipFile("c.npz") as archive:
        last = archive.getinfo("4/Q.npy")
    data[last.header_offset + 30 : last.header_offset + 34] = b"XXXX"
    Path("c.npz").write_bytes(bytes(data))
    done = call("check", "c.npz")
    assert done.out.splitlines()[0] == "1 call agrees; 4 cannot be judged."
    assert done.code == 2
    assert [one["agrees"] for one in json.loads(call("check", "c.npz", "--json").out)] == [
        True,
        *[None] * 4,
    ]


@pytest.mark.slow
def test_100_000_calls(guest):
    """In bounded memory, at once into one file, of which every verb reads one call."""
    done = guest(f"for _ in range(100_000): attend(a, a, a)\n{PEAK}")
    assert int(done.stdout) < 200
    traces = read("c.npz")
    assert len(traces) == 100_000
    assert attnctl.check(traces[-1]).agrees
    code = (
        "import sys; from attnctl.cli.program import program\n"
        "program(['explain', 'c.npz[99999]', 'output[0,0]'])\n" + PEAK
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) < 200


@pytest.mark.slow
@pytest.mark.parametrize("told", ["-q", "--json"])
def test_a_check_of_calls_takes_flat_memory(guest, told):
    def peak(count):
        guest(f"for _ in range({count}): attend(a, a, a)")
        code = f"from attnctl.cli.program import program\nprogram(['check', '{told}', 'c.npz'])\n{PEAK}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return int(done.stdout.splitlines()[-1])

    assert peak(2000) < peak(200) + 20

"""Programs that do whatever they like, under each verb that runs one: judged truly, or refused.

Nothing hangs, nothing ends in a bug of ours, no file of theirs is touched, and what is right is not called
wrong, nor what is wrong right.
"""

import os
import subprocess
import sys

import pytest

TEXT = """
import os, signal, sys, threading, time
import numpy as np

def attend(q, k, v):
    s = q @ np.swapaxes(k, -1, -2){scale}
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return p @ v

def every(do):
    for n in range(3, 2048):
        try: do(n)
        except OSError: pass

def act():
    {act}

def f(q, k, v):
    act()
    return attend(q, k, v)

if __name__ == "__main__":
    x = np.random.default_rng(0).normal(size=(3, 5, 4))
    output = attend(*x)
    mine = open("mine.txt", "w"); mine.write("mine"); mine.flush()
    act()
    output = attend(*x[::-1])
    mine.close()
"""

SCALES = {"right": " / np.sqrt(q.shape[-1])", "wrong": ""}

ACTS = {
    "nothing": "pass",
    "closes descriptors that are not its own": "own = mine.fileno() if 'mine' in globals() else -1\n"
    "    every(lambda n: n == own or os.close(n))",
    "writes into descriptors": "own = mine.fileno() if 'mine' in globals() else -1\n"
    "    every(lambda n: n == own or os.write(n, b'x' * 8))",
    "turns descriptors": "own = mine.fileno() if 'mine' in globals() else -1\n"
    "    null = os.open('/dev/null', os.O_RDWR)\n"
    "    every(lambda n: n in (null, own) or os.dup2(null, n))",
    "forks, and both go on": "os.fork()",
    "forks, and one stays": "os.fork() or (time.sleep(600), os._exit(0))",
    "begins a session": "os.fork() or (os.setsid(), time.sleep(5), os._exit(0))",
    "leaves a thread": "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "goes to a folder that is gone": "import tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
    "prints much": "print('x' * 10**6); print('y' * 10**6, file=sys.stderr)",
    "prints what steers a terminal": "print('\\x1b]0;x\\x07\\x1b[2J\\u202e', flush=True)",
    "closes stdout": "sys.stdout.flush(); os.close(1)",
    "closes stderr": "os.close(2)",
    "has no stdout": "sys.stdout = sys.stderr = None",
    "may open nothing more": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
    "may recurse little": "sys.setrecursionlimit(80)",
    "may write little": (
        "import resource; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))"
    ),
    "forgets its environment": "os.environ.clear()",
    "takes open away": "import builtins; builtins.open = None",
    "takes the system's functions away": (
        "os.write = os.open = os.close = os.stat = os.fstat = os.getpid = os.getcwd = None\n"
        "    os.replace = os.unlink = os.ftruncate = os.dup = os.lstat = None"
    ),
    "puts its own in the place of the system's functions": (
        "os.write = os.read = lambda *words: 1 / 0\n    time.monotonic = time.perf_counter = lambda: 1 / 0"
    ),
    "takes parts of NumPy away": "np.savez = np.save = np.array_equal = np.asarray = None",
    "takes modules away": "sys.modules.pop('json', None); sys.modules.pop('attnctl', None)",
    "ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15)]",
    "is interrupted": "signal.signal(10, lambda *_: None); os.kill(os.getpid(), 10)",
    "makes floating-point warnings errors": "np.seterr(all='raise')",
    "makes warnings errors": "import warnings; warnings.simplefilter('error')",
    "removes what is temporary": (
        "import glob, shutil, tempfile\n"
        "    for d in glob.glob(tempfile.gettempdir() + '/attnctl-*'): shutil.rmtree(d, ignore_errors=True)"
    ),
    "leaves garbage in what is temporary": (
        "import glob, tempfile\n"
        "    for d in glob.glob(tempfile.gettempdir() + '/attnctl-*'):\n"
        "        open(d + '/recorded.npz', 'w').write('x')"
    ),
    "ends": "sys.exit(0)",
    "ends at once": "os._exit(0)",
    "fails": "raise ValueError('no')",
    "is interrupted by itself": "raise KeyboardInterrupt",
    "aborts": "os.abort()",
    "dies of a signal": "os.kill(os.getpid(), 9)",
}

VERBS = {
    "check": ["check", "guest.py"],
    "exercise": ["exercise", "grade", "guest.py"],
    "conform": ["conform", "guest.py:f", "--quick", "--timeout", "3", "--feature", "attention"],
    "capture": ["capture", "-o", "c.npz", "--function", "guest:attend", "guest.py"],
}


@pytest.mark.sample(140)
@pytest.mark.thinned(2, "kind")  # under each verb either the right or the wrong one
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_guest_is_judged_truly_or_refused(tmp_path, act, kind, verb):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "guest.py").write_text(TEXT.format(scale=SCALES[kind], act=act))
    (folder / "precious.txt").write_text("precious")
    (tmp_path / "tmp").mkdir()

    def run(words):
        """What a program leaves running may hold a pipe for good, with attnctl or without."""
        with (tmp_path / "said").open("w+b") as said:
            done = subprocess.run(
                [sys.executable, "-m", "attnctl", *words],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                timeout=100,
                check=False,
            )
            said.seek(0)
            return done.returncode, said.read()

    code, said = run(VERBS[verb])
    if verb == "capture":
        captured = next((name for name in ("c.npz", "c.part.npz") if (folder / name).exists()), None)
        assert b"attnctl/" not in said, said  # no frame of ours
        if captured is None:
            return
        code, said = run(["check", captured])
    assert b"report it" not in said, said
    assert b"Traceback" not in said, said
    untrue = {"right": 1, "wrong": 0}[kind]
    is_end = verb == "conform" and any(word in said for word in (b"process", b"raise", b"Error"))
    assert code in {0, 1, 2}, said
    assert code != untrue or is_end, said
    assert (folder / "precious.txt").read_text() == "precious"
    mine = folder / "mine.txt"
    assert not mine.exists() or mine.read_text() in {"mine", ""}

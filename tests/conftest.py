"""What the tests share; its presence also makes this folder importable: `import oracle`."""

import os
import shutil
import signal
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED = ("configs", "samples")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts what runs in the background deaf to interrupts, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Workplace:
    """A folder with what is shipped in it, and the environment of a plain shell."""

    folder: Path
    environ: dict

    def run(self, *args, stdin=b"", **more):
        """Run the real executable; bytes in, bytes out."""
        return subprocess.run(
            ["attnctl", *args],
            cwd=self.folder,
            env={**self.environ, **more},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def shell(self, script, **more):
        """Run a bash script."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.environ, **more},
            capture_output=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def workplace(tmp_path):
    for name in SHIPPED:
        shutil.copytree(ROOT / name, tmp_path / name)
    keep = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    return Workplace(tmp_path, {**keep, "PATH": path, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"})

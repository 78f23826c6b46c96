"""Rewrite the output under every command of the documents: python tests/update_docs.py."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from test_readme import DOCUMENTS, ROOT, split


def fresh(folder):
    for name in ("configs", "samples"):
        shutil.copytree(ROOT / name, Path(folder) / name)


def rewritten(block, folder):
    """A block with the output that its commands give now."""
    out = []
    for step in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
        command, _ = split(step)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", command.replace("\n> ", "\n")],
            cwd=folder,
            env={
                "PATH": path,
                "LC_ALL": "C.UTF-8",
                "PYTHONUTF8": "1",
                "HOME": os.environ["HOME"],
                "XDG_DATA_HOME": f"{folder}/.data",
                "XDG_STATE_HOME": f"{folder}/.state",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        out.append(f"$ {command}\n{done.stdout.rstrip()}\n" if done.stdout.strip() else f"$ {command}\n")
    return "```console\n" + "".join(out) + "```"


def main():
    for document in DOCUMENTS:
        if not document.exists():
            continue

        def one(block):
            with tempfile.TemporaryDirectory() as folder:
                fresh(folder)
                return rewritten(block, folder)

        text = document.read_text()
        new = re.sub(r"^```console\n(.*?)^```$", one, text, flags=re.DOTALL | re.MULTILINE)
        document.write_text(new)


if __name__ == "__main__":
    main()

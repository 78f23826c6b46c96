"""attnctl capture: a program carried out, and each call of attention in it recorded."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input
from attnctl.base.values import CALLS, HEADS
from attnctl.cli.options import BYTES, argument, command, excludes, option, output_option
from attnctl.verbs.capture import RUNNER, read_range


@command(
    "attnctl capture -o c.npz train.py --epochs 1",
    "attnctl capture --module 'layers.2.*' generate.py && attnctl check capture.npz",
    "attnctl capture --function my_kernels:attend --call 0-3 test.py",
    of_program=True,
)
def capture(  # noqa: PLR0913  (what to keep of what)
    *,
    words: list[str] | None = argument("The program and its words.", "SCRIPT"),
    module: str | None = option(
        "Run a module, as python -m does; its words follow.", "-m", metavar="MODULE"
    ),
    call: tuple[int, ...] | None = option("Only these calls of attention, from 0, like 0-3,7.", CALLS),
    within: str | None = option(
        "Only calls in these torch modules, like 'layers.2.*'.", "--module", metavar="GLOB"
    ),
    function: list[str] | None = option(
        "A function of your own that is attention, too; may be repeated.", metavar="MODULE:NAME"
    ),
    head: tuple[int, ...] | None = option("Only these heads, like 0,2 or 0-3.", HEADS),
    query: str | None = option("Only these queries, like 0:64, or -64: for the last.", metavar="A:B"),
    backward: bool = option(
        "Where the program goes back, keep the gradients of each call, too.",
        terms=[excludes("head query", "gradients are of all heads and queries; leave it out")],
    ),
    max_memory: int | None = option("Leave out calls whose arrays need more than this, like 512M.", BYTES),
    output: str = output_option(
        "The file, which grows with each call (.npz). Default: capture.npz.", default="capture.npz"
    ),
) -> None:
    """Run a program, and record each call of attention in it: Q, K, V, mask, settings and output.

    The program is run by this Python as by itself: its words, streams and exit code are its own, and it
    is trusted. Attention that a module of torch writes out as a product, softmax and a product is recorded
    where its scores show its scale, mask and bias, else counted. What torch.jit and jax.jit compile and
    what its other processes do is not seen, and torch.compile is off. What the file holds is whole,
    wherever the program ends; check, show, explain, attend and diff read it, and c.npz[3] is its call 3.
    """
    path = os.path.abspath(output)  # noqa: PTH100  (the program may go elsewhere)
    folder, stem = os.path.dirname(path), output.rpartition(".")[0] or "c"  # noqa: PTH120  (of any length)
    program = [module] if module else (words or [])[:1]
    problems = {
        "no SCRIPT; give one, or -m MODULE": not program,
        f"-o {output}: a capture is an .npz; write -o {stem}.npz": not output.endswith(".npz"),
        f"-o {output}: it is a folder; name a file, like -o {output}/c.npz": os.path.isdir(path),  # noqa: PTH112
        f"-o {output}: it is a pipe or a socket; name a file": is_pipe(path),
        f"-o {output}: no folder {folder} that can be written to": not os.access(folder, os.W_OK),
        **{
            f"--function {name}: write MODULE:NAME, like my_kernels:attend": not all(name.partition(":"))
            for name in function or ()
        },
    }
    raise_all(problem for problem, is_there in problems.items() if is_there)
    if not module:
        if not os.path.isfile(program[0]):  # noqa: PTH113  (a text of any length)
            raise AttnError(f"{program[0]}: no such file; give a program")
        note_input(program[0])
    chosen = {
        "path": path,
        "calls": call,
        "module": within,
        "functions": function or (),
        "heads": head,
        "queries": None if query is None else read_range(query),
        "most": max_memory,
        "backward": backward,
    }
    how = ["-m", module] if module else [""]
    command_line = [sys.executable, RUNNER, json.dumps(chosen), *how, *(words or [])]
    if sys.stdout is sys.__stdout__:  # the program takes our place, and its signals and its end are its own
        os.execv(sys.executable, command_line)  # noqa: S606  (what the person named)
    given = sys.stdin.read()
    done = subprocess.run(command_line, input=given, capture_output=True, text=True, check=False)  # noqa: S603
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    raise SystemExit(done.returncode)


def is_pipe(path: str) -> bool:
    """True for what a program would wait for until someone reads it, or cannot open."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode)

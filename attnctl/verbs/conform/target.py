"""The targets, made and held: a Python function, in this process or in one of its own, or a command.

A command reads arrays from a file and writes one with its output, in any language.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as Posted
from urllib.request import urlopen

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.files import note_input
from attnctl.base.plugins import named_in
from attnctl.base.programs import Said, begin, kill
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, OUTPUT
from attnctl.store.files import temporary_folder
from attnctl.verbs.conform.blocks import find_in_files, find_in_function
from attnctl.verbs.conform.call import NAN, UNREADABLE, Answer, Target, TargetCall, repeat
from attnctl.verbs.conform.features import INPUTS_KEPT, LAYOUTS, MERGE
from attnctl.verbs.conform.invoke import Framework, in_type, invoke, order_gradients, sum_type, to_numpy
from attnctl.verbs.conform.merge import MergeSuite, hold_merge
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.process import Worker, as_function, quote_last_words, read_parameters
from attnctl.verbs.conform.profile import USUAL, Request
from attnctl.verbs.conform.report import Conformance
from attnctl.verbs.conform.results import read_saved
from attnctl.verbs.conform.run import Progress, Run, replay
from attnctl.verbs.conform.signature import HANDED, PARTS, THEIRS, parameter
from attnctl.verbs.conform.suite import Suite

SECONDS = 20.0
"""What one call may take."""


def make_target(target: str | Sequence[str] | Callable[..., Any], request: Request) -> Target:
    """Make the target of a function, of its name, `module:function` or `file.py:function`, or of a command.

    The file of a command holds the options that it is said to take, and what a backward pass takes.
    Raises AttnError for what is no target, and for several.
    """
    is_whole = request.framework == "jax" and request.quick
    framework = Framework(request.framework, request.device, is_whole)
    limit = request.timeout or SECONDS
    if callable(target):
        return InProcess(target, framework)
    if not isinstance(target, (str, Sequence)):
        raise AttnError(f"{target!r}: not a target; give a function, or the name of one, module:function")

    words = [target] if isinstance(target, str) else target
    if len(words) == 1:
        words = [named_in("targets").get(words[0], words[0])]
    if words[0].startswith(("http://", "https://")) or any("{in" in word for word in words):
        return make_program(words, request, limit)
    if len(words) > 1:
        raise AttnError(f"{words[1]}: one TARGET at a time; a command has {{in}} and {{out}} in it")

    place, _, function = words[0].rpartition(":")
    if not place or not function:
        raise AttnError(
            f"{words[0]}: not a target; write module:function, file.py:function, or -- CMD {{in}} {{out}}"
        )
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise AttnError(f"{words[0]}: {place}: no such file")
        note_input(place)
    return Worker(words[0], framework, limit)


def make_program(words: Sequence[str], request: Request, limit: float) -> Program:
    """Make the target that reads a file: a command, or a service. Raises AttnError for a framework."""
    is_command = any("{in" in word for word in words)
    what = "command" if is_command else "service"
    if request.framework != "numpy":
        raise AttnError(f"--framework {request.framework}: a {what} reads a file; leave it out")
    options = [name for name in request.profile.features if name in OPTIONS]
    if not is_command:
        return Service(words, options, limit, request.backward)
    return Program(words if len(words) > 1 else shlex.split(words[0]), options, limit, request.backward)


def hold_target(
    target: Target, request: Request, back: Target | None = None, progress: Progress | None = None
) -> Conformance:
    """Hold a target, its gradients by `back`, to what is asked. Raises AttnError if it cannot be called."""
    progress = progress or (lambda _done, _total: None)
    if request.merge:
        merges = MergeSuite(target, request)
        with merges.opened():
            return hold_merge(merges, progress)

    saved = read_saved(request.replay) if request.replay else None
    if saved is not None:  # it is called as it was in that case
        request = replace(request, profile=request.profile.lay_over(saved.called))
    suite = Suite(target, request)
    with suite.opened(back):
        if saved is not None:
            return replay(suite, saved)
        return Run(suite).carry_out(progress)


class InProcess(Target):
    def __init__(self, function: Callable[..., Any], framework: Framework) -> None:
        self.given = function
        self.function = as_function(function)
        self.framework = framework
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.goes_back = framework.goes_back

    def start(self) -> None:
        self.parameters = read_parameters(self.function)
        self.blocks = find_in_function(self.given)

    def call(self, call: TargetCall) -> Answer:
        return invoke(self.function, call, self.framework)


# --- commands ---

PLACE = re.compile(r"\{(in|out)(\.npz|\.safetensors)?\}")
"""{in} and {out}, or {in.safetensors} and {out.npz}; .npz where nothing is said."""


NPZ = "application/octet-stream"

MOST_ANSWERED, MOST_SAID = 1 << 30, 300
"""Bytes that are read of an answer, and of the words of one that refuses."""

HUGE = 0x7F
"""The byte in place of NaN's in programs, whose environment can ask for any byte but 0xFF."""


@dataclass
class Program(Target):
    """Runs a command for each call, in a session of its own."""

    command: Sequence[str]
    options: Sequence[str] = ()
    """The options that it is said to take: arrays of these names are in its file."""
    limit: float = 20.0
    backward: bool = False
    """It gives gradients: what it takes of the forward is in its file, too."""
    layout = USUAL
    unclaimed = "its --claims do not name it"
    refuses = frozenset({"exit"})
    cannot = MappingProxyType(
        dict.fromkeys((LAYOUTS, INPUTS_KEPT, "out"), "its arrays come in a file")
        | {MERGE: "a command cannot be called so; give module:function or file.py:function"}
    )

    def __post_init__(self) -> None:
        self.name = " ".join(self.command)
        self.words = ("--", *self.command)

    def start(self) -> None:
        files = {match[1] for word in self.command for match in PLACE.finditer(word)}
        if files != {"in", "out"}:
            raise AttnError(f"{self.name}: write {{in}} and {{out}} where the names of its files go")
        for word in filter(os.path.exists, self.command):
            note_input(word)
        self.blocks = find_in_files(filter(os.path.isfile, self.command))
        self.take_options()

    def take_options(self) -> None:
        """Its "parameters" are the names of arrays in its file."""
        optional = [THEIRS[ours][0] for ours in HANDED] if self.backward else []
        for name in self.options:
            optional += PARTS if name == "cache" else OPTIONS[name].theirs[:1]
        required = [parameter(name, required=True) for name in "QKV"]
        self.parameters = [*required, *(parameter(name) for name in dict.fromkeys(optional))]

    def call(self, call: TargetCall) -> Answer:
        first = self.call_once(call)
        if call.times == 1 or first.error:
            return first
        return repeat(lambda: self.call_once(call), first, call.times, call.seconds)

    def call_once(self, call: TargetCall) -> Answer:
        with temporary_folder() as folder:
            words, files = self.place_files(Path(folder))

            write_arrays(files["in"], arrays_of(call), call.dtype, call.wide)
            failure = self.run(words, call.fill)
            return failure or read_answer(files["out"], call.gives)

    def place_files(self, folder: Path) -> tuple[list[str], dict[str, Path]]:
        files: dict[str, Path] = {}

        def name_file(found: re.Match[str]) -> str:
            files[found[1]] = folder / f"{found[1]}{found[2] or '.npz'}"
            return str(files[found[1]])

        return [PLACE.sub(name_file, word) for word in self.command], files

    def run(self, words: Sequence[str], fill: int) -> Answer | None:
        """Run the command to its end; an answer only where it failed."""
        # glibc fills freed memory with this byte, and new memory with its complement.
        byte = HUGE if fill == NAN else fill
        environ = {"MALLOC_PERTURB_": str(byte ^ 0xFF), **os.environ}
        said = Said()
        try:
            process = begin(words, said, said, stdin=subprocess.DEVNULL, env=environ)
        except OSError as error:
            raise AttnError(f"{words[0]}: it cannot be run: {error.strerror}") from None

        try:
            code = process.wait(self.limit)
        except subprocess.TimeoutExpired:
            return Answer(error="hang", message=f"no end within {self.limit:g} s")
        finally:
            kill(process)
        if code:
            kind = "crash" if code < 0 else "exit"
            return Answer(error=kind, message=f"it ended with {code}{quote_last_words(said)}")
        return None


def arrays_of(call: TargetCall) -> dict[str, Array]:
    """What a call passes, by name, each in its type."""
    arrays = dict(zip("QKV", call.inputs, strict=True))
    arrays |= {key: np.asarray(value) for key, value in call.keywords.items() if value is not None}
    types = {name: sum_type(call.dtype) if name in call.wide else call.dtype for name in arrays}
    return {name: in_type(array, types[name]) for name, array in arrays.items()}


@dataclass
class Service(Program):
    """Posts the file of a call to an address, whose answer is a file, or JSON with the same names."""

    cannot = MappingProxyType(
        dict.fromkeys((LAYOUTS, INPUTS_KEPT, "out"), "its arrays come in a file")
        | {MERGE: "a service cannot be called so; give module:function or file.py:function"}
    )

    def __post_init__(self) -> None:
        (self.url,) = self.command
        self.name, self.words = self.url, ("--url", self.url)

    def start(self) -> None:
        self.take_options()

    def call_once(self, call: TargetCall) -> Answer:
        with temporary_folder() as folder:
            sent = Path(folder, "in.npz")
            write_arrays(sent, arrays_of(call), call.dtype, call.wide)
            told = self.post(sent.read_bytes())
            if isinstance(told, Answer):
                return told
            given = Path(folder, "out.json" if told.lstrip()[:1] == b"{" else "out.npz")
            given.write_bytes(told)
            return read_answer(given, call.gives)

    def post(self, body: bytes) -> bytes | Answer:
        """What comes back, or why nothing did. Raises AttnError where nobody is there."""
        headers = {"Content-Type": "application/octet-stream", "Accept": f"{NPZ}, application/json"}
        asked = Posted(self.url, data=body, headers=headers, method="POST")  # noqa: S310  (a person gave it)
        try:
            with urlopen(asked, timeout=self.limit) as answer:  # noqa: S310
                return bytes(answer.read(MOST_ANSWERED))
        except HTTPError as error:
            said = error.read(MOST_SAID).decode(errors="replace").strip()
            words = f": {said}" if said else ""
            return Answer(error="exit", message=f"it answers {error.code} {error.reason}{words}")
        except TimeoutError:
            return Answer(error="hang", message=f"no answer within {self.limit:g} s")
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            if isinstance(why, TimeoutError):
                return Answer(error="hang", message=f"no answer within {self.limit:g} s")
            if isinstance(why, (HTTPException, ConnectionResetError, BrokenPipeError)):
                return Answer(error="exit", message=f"it closed the connection: {why}")
            raise AttnError(f"--url {self.url}: it cannot be reached: {why}; start what answers") from None


def write_arrays(path: Path, arrays: Mapping[str, Array], dtype: str, wide: Sequence[str] = ()) -> None:
    """Write arrays as .npz or .safetensors, which has a bfloat16 for all but the `wide` ones."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]  # every name is an array's
        return
    from attnctl.store.safetensors import write_tensors

    written = dict(arrays)
    types = {}
    for name, array in arrays.items():
        if dtype == "bfloat16" and array.dtype.kind == "f" and name not in wide:
            # The bits of bfloat16 are the upper half of those of float32.
            bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
            written[name] = (bits >> 16).astype(np.uint16)
            types[name] = "BF16"
    with path.open("wb") as stream:
        write_tensors(written, stream, {}, types)


def read_answer(path: Path, gives: Sequence[str] = ()) -> Answer:
    """Read the output of a file: head_outputs, output, or the first array; or gradients of these names."""
    from attnctl.store.source import arrays

    if not path.is_file():
        return Answer(error=UNREADABLE, message="it wrote no file")
    try:
        written = arrays(path)
    except AttnError as error:
        return Answer(error=UNREADABLE, message=str(error).replace(str(path), "its output"))

    if gives:
        gradients = tuple(map(to_numpy, order_gradients(written, gives)))
        first = next(iter(written.values()), np.zeros(0))
        return Answer(gradients=gradients, dtype=first.dtype.name)

    candidates = [name for name in (HEAD_OUTPUTS, OUTPUT) if name in written] or list(written)
    if not candidates:
        return Answer(error=UNREADABLE, message="its output holds no array")
    output = np.array(written[candidates[0]])
    return Answer((to_numpy(output),), dtype=output.dtype.name)

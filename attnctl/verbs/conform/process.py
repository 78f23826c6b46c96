"""A target in a process of its own, where a crash, a hang and an exit count as failures.

One process is kept over many calls and begun anew only when it has died. It is in a session of its own, so
that an interrupt reaches it through us, and everything that it started goes with it. Requests and answers
go over pipes of which the target does not know, so what it prints goes nowhere near them; what it does
write there is skipped, and what it says is read as `attnctl.store.message` has it. When its parent is gone,
so is this process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import numpy as np

from attnctl.base.channel import Channel, ChannelError, Ended, Ends, Late, make_pipes
from attnctl.base.dataclass import dataclass
from attnctl.base.descriptors import OwnDescriptor
from attnctl.base.errors import AttnError
from attnctl.base.files import note_input
from attnctl.base.programs import Said, begin, end_with_parent, kill, signal_name
from attnctl.store.message import UnreadableError, decode, encode
from attnctl.verbs.conform.blocks import find_in_files
from attnctl.verbs.conform.call import SENT, Answer, Target, TargetCall, read_last_words
from attnctl.verbs.conform.invoke import Framework, invoke

LOADING = 300.0
"""Seconds that importing a target may take."""


LONGEST_END = 5.0
"""Seconds that a process takes to end when it has closed what it answers over."""

CLOSED = 113
"""The exit code of a process that has nothing to answer over any more."""

Made = TypeVar("Made")


def quote_last_words(said: Said) -> str:
    words = read_last_words(said.end())
    return f": {words}" if words else ""


PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of OpenMP that wait for work sleep: calls are small, and torch's waiting cost more than them."""


@dataclass
class Worker(Target):
    target: str
    framework: Framework = Framework()
    limit: float = 20.0
    process: subprocess.Popen[bytes] | None = None
    channel: Channel | None = None
    number: int = 0
    """Of the request that was sent last."""
    said: Said | None = None

    def __post_init__(self) -> None:
        self.name = self.target
        self.words = (self.target,)
        self.goes_back = self.framework.goes_back

    def start(self) -> None:
        """Begin the process and load the target. Raises AttnError where that fails."""
        self.said = said = Said()
        secret = os.urandom(16)
        ours, theirs = make_pipes()
        self.channel = Channel(ours, secret)

        numbers = [descriptor.number for descriptor in theirs]
        words = [sys.executable, "-m", "attnctl.verbs.conform.process", *map(str, numbers), secret.hex()]
        env = {**PATIENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        more: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": env, "pass_fds": numbers}
        try:
            self.process = begin(words, said, said, **more)
        finally:
            theirs.close()

        told = self.ask({"target": self.target, "framework": vars(self.framework)}, LOADING)
        if isinstance(told, Answer):
            raise AttnError(f"{self.target}: it could not be loaded ({told.error}: {told.message})")
        if isinstance(told, str):
            self.close()
            raise AttnError(f"{self.target}: it could not be loaded: {told}")

        loaded = self.read(Loaded.of, told)
        self.parameters = loaded.parameters
        for path in loaded.files:
            note_input(path)
        self.blocks = find_in_files(loaded.files[-1:])  # its own, behind those that it imports

    def call(self, call: TargetCall) -> Answer:
        """Make a call; where something else ended the process, which no function does, once more."""
        answer = self.call_once(call)
        if answer.kind not in SENT:
            return answer
        self.lost += 1
        return self.call_once(call)

    def call_once(self, call: TargetCall) -> Answer:
        if self.process is None:
            self.start()
        seconds = self.limit
        if call.times > 1:
            # One more call may begin just before the time of all is over.
            seconds += self.limit + call.seconds
        told = self.ask(vars(call), seconds)
        return told if isinstance(told, Answer) else self.read(answer_of, told)

    def ask(self, value: Any, seconds: float) -> Any:
        """Return what the process sends back, or how it ended; one that is silent for so long is ended.

        Raises AttnError where it sends what is no answer.
        """
        assert self.channel is not None
        self.number += 1
        until = monotonic() + seconds
        try:
            self.channel.send(encode(value), self.number, until)
            _, message = self.channel.receive(self.number, until)
            return decode(message)
        except Late:
            self.close()
            return Answer(error="hang", message=f"no answer within {seconds:g} s")
        except Ended as error:
            return self.read_end(str(error))
        except (ChannelError, UnreadableError) as error:
            self.close()
            raise self.refuse(str(error)) from None

    def read(self, make: Callable[[Any], Made], told: Any) -> Made:
        """Make what the process told of what it sent. Raises AttnError where that is something else."""
        try:
            return make(told)
        except (TypeError, ValueError, LookupError, AttributeError):
            self.close()
            raise self.refuse("it sent something else") from None

    def refuse(self, why: str) -> AttnError:
        instead = "a target writes to no descriptor that it did not open, and leaves the others open"
        return AttnError(f"{self.target}: its answer cannot be read: {why}; {instead}")

    def read_end(self, why: str) -> Answer:
        """How the process ended. Raises AttnError for one that goes on, and only closed its channel."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LONGEST_END)
        code = self.process.poll()
        words = quote_last_words(self.said) if self.said else ""
        self.close()
        if code is None:
            raise self.refuse(why)
        if code == CLOSED:
            raise self.refuse("it closed the descriptor that its answers go over")
        if code < 0:
            name = signal_name(-code)
            return Answer(error="crash", kind=name, message=f"its process died of {name}{words}")
        return Answer(error="exit", message=f"its process ended with exit code {code}{words}")

    def close(self) -> None:
        if self.process is not None:
            if self.channel is not None:
                self.channel.ends.close()
            kill(self.process)
            self.process = None


# --- what is sent ---


class Loaded(NamedTuple):
    """What a process says of the target that it loaded."""

    parameters: list[Parameter] | None
    """None where it does not say them."""
    files: list[str]

    def to_data(self) -> dict[str, Any]:
        rows = None
        if self.parameters is not None:
            rows = [row_of(parameter) for parameter in self.parameters]
        return {"parameters": rows, "files": self.files}

    @classmethod
    def of(cls, data: Any) -> Loaded:
        """Raises TypeError, ValueError or LookupError for data of another form."""
        rows = data["parameters"]
        parameters = None if rows is None else [parameter_of(*row) for row in rows]
        files = data["files"]
        if not all(type(file) is str and "\0" not in file for file in files):
            raise TypeError("the name of a file is a text")
        return cls(parameters, list(files))


def row_of(parameter: Parameter) -> list[Any]:
    """What is sent of a parameter: name, kind, its default if it has one, and whether it takes None."""
    has_default = parameter.default is not Parameter.empty
    default = parameter.default if has_default else None
    return [parameter.name, int(parameter.kind), has_default, default, parameter.annotation is None]


def parameter_of(name: Any, kind: Any, has_default: Any, default: Any, takes_none: Any) -> Parameter:
    given = default if has_default else Parameter.empty
    annotation = None if takes_none else Parameter.empty
    return Parameter(str(name), KINDS[kind], default=given, annotation=annotation)


KINDS = {
    int(kind): kind
    for kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
}


def answer_of(data: Any) -> Answer:
    """An answer as it was sent. Raises TypeError for one of another form."""
    answer = Answer(**data)
    for name in ("outputs", "gradients", "farthest"):
        arrays = getattr(answer, name)
        if type(arrays) is not tuple or not all(is_result(array) for array in arrays):
            raise TypeError(f"{name} are arrays")
    for name, kind in TYPES_OF_ANSWER.items():
        if type(getattr(answer, name)) is not kind:
            raise TypeError(f"{name} is of another type")
    if not all(type(name) is str for name in answer.changed) or answer.calls < 1 or answer.others < 0:
        raise TypeError("numbers that nothing counts")
    return answer


TYPES_OF_ANSWER = {
    **dict.fromkeys(("error", "kind", "message", "place", "dtype", "failed"), str),
    "changed": tuple,
    "calls": int,
    "others": int,
    "apart": float,
    "stale": bool,
}


def is_result(array: Any) -> bool:
    """True for what `to_numpy` makes: an array of real numbers, floats in float64; or None."""
    if array is None:
        return True
    return type(array) is np.ndarray and (array.dtype == np.float64 or array.dtype.kind in "biu")


# --- the other end: the process itself ---


def load_function(target: str) -> Any:
    """The function of `module:function` or `file.py:function`. Raises what importing it raises."""
    place, _, name = target.rpartition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (sys.path holds texts)
    if place.endswith(".py"):
        path = Path(place)
        sys.path.insert(0, str(path.parent.resolve()))
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        module = import_module(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is no function")
    return as_function(found)


def as_function(found: Any) -> Any:
    """Return what is called: of a torch.autograd.Function its apply. Raises AttnError for another class."""
    owner = getattr(found, "__self__", None) if getattr(found, "__name__", "") == "apply" else found
    if isinstance(owner, type) and hasattr(owner, "forward") and hasattr(owner, "backward"):
        return apply_by_place(owner)
    if isinstance(found, type):
        raise AttnError(f"{found.__name__} is a class; name one of it, like attention = {found.__name__}()")
    return found


def apply_by_place(owner: Any) -> Any:
    """Return the apply of a torch.autograd.Function, which takes no argument by name, as a function."""
    forward = signature(owner.forward)
    own = forward.replace(parameters=[param for name, param in forward.parameters.items() if name != "ctx"])

    def function(*given: Any, **named: Any) -> Any:
        bound = own.bind(*given, **named)
        bound.apply_defaults()
        return owner.apply(*bound.args)

    function.__signature__ = own  # type: ignore[attr-defined]
    return function


def read_parameters(function: Any) -> list[Parameter] | None:
    """Read the parameters of a function; None where it does not say them."""
    try:
        found = signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return None
    every = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [name_default(line) for line in found if line.kind not in every]


def name_default(parameter: Parameter) -> Parameter:
    """A parameter to send: a default of any other kind than numbers and texts is named.

    Its annotation is None where that is said to be taken.
    """
    default = parameter.default
    parts = default if type(default) is tuple else (default,)
    is_plain = {*map(type, parts)} <= {type(None), bool, int, float, str}
    if default is not Parameter.empty and not is_plain:
        default = f"<{type(default).__name__}>"

    words = re.findall(r"\w+", str(parameter.annotation))
    takes_none = bool({"None", "Optional"} & {*words})
    return parameter.replace(default=default, annotation=None if takes_none else Parameter.empty)


def list_own_files(function: Any) -> list[str]:
    """List the function's file, and those imported from its folder or from the one we are in."""
    folders = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in sys.path[:2])
    installed = f"{sys.prefix}{os.sep}"  # which a virtual environment in the folder is, too
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}

    beside = [file for file in files.values() if file and file.startswith(folders)]
    own = [file for file in beside if not file.startswith(installed)]
    home = files.get(getattr(function, "__module__", ""))
    return [*own, home] if home else own


def serve(channel: Channel) -> None:
    """Load the target, and answer each request with its number. A fork of this process answers none."""
    own = os.getpid()

    def answer(number: int, value: Any) -> None:
        if os.getpid() != own:
            os._exit(0)
        try:
            channel.send(encode(value), number)
        except ChannelError:
            os._exit(CLOSED)

    number, message = channel.receive(None)
    asked = decode(message)
    framework = Framework(**asked["framework"])
    try:
        function = load_function(asked["target"])
        loaded: Any = Loaded(read_parameters(function), list_own_files(function)).to_data()
    except Exception as error:  # noqa: BLE001  (whatever importing it raises)
        loaded = f"{'' if isinstance(error, AttnError) else f'{type(error).__name__}: '}{error}"
    answer(number, loaded)
    while not isinstance(loaded, str):
        try:
            number, message = channel.receive(None)
        except ChannelError:
            os._exit(CLOSED)
        answer(number, vars(invoke(function, TargetCall(**decode(message)), framework)))


def main(reads: str, writes: str, secret: str) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for descriptor in (reads, writes):
        os.set_inheritable(int(descriptor), False)
    serve(Channel(Ends(OwnDescriptor(int(reads)), OwnDescriptor(int(writes))), bytes.fromhex(secret)))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A target in a process of its own, where a crash, a hang and an exit count as failures.

One process is kept over many calls and begun anew only when it has died. It is in a session of its own, so
that an interrupt reaches it through us, and everything that it started goes with it. Requests and answers
go over a connection of which the target does not know, so what it prints goes nowhere near them.
When its parent is gone, so is this process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.files import note_input
from attnctl.base.programs import Said, begin, kill
from attnctl.verbs.conform.call import SENT, Answer, Target, TargetCall, read_last_words
from attnctl.verbs.conform.invoke import Framework, invoke

LOADING = 300.0
"""Seconds that importing a target may take."""


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
    line: Any = None
    """Our end of the connection to it."""
    said: Said | None = None

    def __post_init__(self) -> None:
        self.name, self.words, self.goes_back = self.target, (self.target,), self.framework.goes_back

    def start(self) -> None:
        """Begin the process and load the target. Raises AttnError where that fails."""
        self.said = said = Said()
        self.line, theirs = Pipe()
        words = [sys.executable, "-m", "attnctl.verbs.conform.process", str(theirs.fileno())]
        env = {**PATIENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        more: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": env, "pass_fds": [theirs.fileno()]}
        with theirs:
            self.process = begin(words, said, said, **more)
        told = self.ask((self.target, self.framework), LOADING)
        if isinstance(told, Answer):
            raise AttnError(f"{self.target}: it could not be loaded ({told.error}: {told.message})")
        if isinstance(told, str):
            self.close()
            raise AttnError(f"{self.target}: it could not be loaded: {told}")
        self.parameters, sources = told
        for path in sources:
            note_input(path)

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
        answer: Answer = self.ask(call, self.limit + (self.limit + call.seconds) * (call.times > 1))
        return answer

    def ask(self, value: Any, seconds: float) -> Any:
        """Return what the process sends back, or how it ended; one that is silent for so long is ended."""
        try:
            self.line.send(value)
            if self.line.poll(seconds):
                return self.line.recv()
        except (OSError, EOFError):
            return self.read_end()
        self.close()
        return Answer(error="hang", message=f"no answer within {seconds:g} s")

    def read_end(self) -> Answer:
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.poll()
        words = quote_last_words(self.said) if self.said else ""
        self.close()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return Answer(error="crash", kind=name, message=f"its process died of {name}{words}")
        return Answer(error="exit", message=f"its process ended with exit code {code}{words}")

    def close(self) -> None:
        if self.process is not None:
            self.line.close()
            kill(self.process)
            self.process = None


# --- the other end: the process itself ---

WATCH = 1.0
"""Seconds between two looks for the parent."""


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
    told = default is Parameter.empty or {*map(type, parts)} <= {type(None), bool, int, float, str}
    default = default if told else f"<{type(default).__name__}>"
    nothing = {"None", "Optional"} & {*re.findall(r"\w+", str(parameter.annotation))}
    return parameter.replace(default=default, annotation=None if nothing else Parameter.empty)


def list_own_files(function: Any) -> list[str]:
    """List the function's file, and those imported from its folder or from the one we are in."""
    folders = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in sys.path[:2])
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    home = files.get(getattr(function, "__module__", ""))
    installed = f"{sys.prefix}{os.sep}"
    own = [file for file in files.values() if file and file.startswith(folders)]
    return [name for name in own if not name.startswith(installed)] + ([home] if home else [])


def watch(parent: int) -> None:
    """End when the parent has ended, whatever the target is doing."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def serve(line: Any) -> None:
    target, framework = line.recv()
    try:
        function = load_function(target)
        said: Any = read_parameters(function), list_own_files(function)
    except Exception as error:  # noqa: BLE001  (whatever importing it raises)
        said = f"{'' if isinstance(error, AttnError) else f'{type(error).__name__}: '}{error}"
    line.send(said)
    while not isinstance(said, str):
        try:
            call = line.recv()
        except EOFError:
            return
        line.send(invoke(function, call, framework))


def main(descriptor: int) -> None:
    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.set_inheritable(descriptor, False)
    serve(Connection(descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]))

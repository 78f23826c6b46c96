"""The process a target runs in: it is told which function, then calls it as often as it is asked.

Requests and answers are pickles on file descriptors that the target does not know of. What the
target prints goes nowhere near them. When the parent is gone, so is this process.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter as Kind
from inspect import signature
from pathlib import Path
from typing import Any

from attnctl.verbs.conform.call import invoke
from attnctl.verbs.conform.signature import Parameter

LENGTH = 8
"""Bytes before an answer that say how long it is."""

WATCH = 1.0
"""Seconds between two looks whether the parent is still there."""

POSITIONAL = (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)


def load(target: str) -> Any:
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
    return found


def parameters_of(function: Any) -> list[Parameter] | None:
    """What it takes; None where it does not say."""
    try:
        found = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        Parameter(each.name, each.kind in POSITIONAL, each.default is Kind.empty)
        for each in found
        if each.kind not in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
    ]


def own_files(function: Any) -> list[str]:
    """Where the function is, and what was imported from its folder or from the one we are in."""
    folders = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in sys.path[:2])
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    home = files.get(getattr(function, "__module__", ""))
    installed = f"{sys.prefix}{os.sep}"
    own = [each for each in files.values() if each and each.startswith(folders)]
    return [each for each in own if not each.startswith(installed)] + ([home] if home else [])


def watch(parent: int) -> None:
    """End when the parent has ended, whatever the target is doing."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def serve(requests: Any, answers: Any) -> None:
    """Load the target, then answer calls until there are no more."""
    target, framework = pickle.load(requests)  # noqa: S301  (from our own parent)
    try:
        function = load(target)
        said: Any = parameters_of(function), own_files(function)
    except Exception as error:  # noqa: BLE001  (whatever importing it raises)
        said = f"{type(error).__name__}: {error}"
    send(answers, said)
    while not isinstance(said, str):
        try:
            call = pickle.load(requests)  # noqa: S301  (from our own parent)
        except EOFError:
            return
        send(answers, invoke(function, call, framework))


def send(stream: Any, value: Any) -> None:
    """Write how long a pickle is, and the pickle."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(LENGTH, "big") + data)
    stream.flush()


def main() -> None:
    """Keep the pipes of the parent apart from what the target may read and print."""
    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(requests, answers)


if __name__ == "__main__":
    main()

"""Recording calls of attention while a program runs: which are kept, and the file that grows with each."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial, wraps
from inspect import signature
from itertools import count
from operator import attrgetter
from os import getpid  # as it is now: a program may put another in its place
from threading import Lock, local
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from attnctl.base import __version__
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import plural
from attnctl.math.engine.cost import available
from attnctl.math.names import B_O, OUTPUT, POSITION_IDS, TABLE, W_O, gradient_of
from attnctl.record import CALL, SCHEMA
from attnctl.store.calls import refuse_unreadable
from attnctl.store.header import as_json_data
from attnctl.verbs.capture import functions
from attnctl.verbs.capture.file import CaptureFile
from attnctl.verbs.capture.functions import HEADS, Function, UnreadError
from attnctl.verbs.capture.placed import positions_around
from attnctl.verbs.capture.written import PRODUCTS, SOFTMAXES, WrittenOut

LONGEST_WAIT = 10.0
"""Seconds that the end of the program waits for a thread that is writing a call."""

LIBRARIES = {"attnctl", "torch", "jax", "flax", "flash_attn", "xformers", "einops"}
"""They call attention for someone: the place of a call is where that someone is."""


OF_ALL_HEADS = {W_O, B_O, OUTPUT}


LONGEST_TEXT = 1000
"""Characters of a text that a call was passed, as an option of it; a longer one is a document."""

LARGEST_WHOLE = 1 << 63
"""A whole number that was passed, as an option; a larger one is data."""


@dataclass(eq=False)
class CallRecorder:
    """Writes each call that is chosen to the file, as a trace, when it has returned.

    Calls are chosen by number and module; of each these heads and queries are kept, `most` bytes at most.
    All that is done beside the call itself stands in the guard `failing`: the program never notices.
    """

    path: str
    calls: Sequence[int] | None = None
    module: str | None = None
    functions: Sequence[str] = ()
    heads: Sequence[int] | None = None
    queries: tuple[int | None, int | None] | None = None
    most: int | None = None
    backward: bool = False

    def __post_init__(self) -> None:
        self.home = os.getcwd()  # noqa: PTH109  (the program may go elsewhere, or remove it)
        self.limit = self.most or available()
        self.wanted = None if self.calls is None else frozenset(self.calls)
        self.numbers = count()
        self.unread: Counter[str] = Counter()
        self.lacking = {*self.functions}  # those that were not found yet
        self.file = CaptureFile(self.path)
        self.local, self.lock, self.ended = local(), Lock(), False
        self.process = getpid()
        self.written = WrittenOut(self)
        self.paths: WeakKeyDictionary[Any, tuple[str, bool]] = WeakKeyDictionary()
        if hasattr(os, "register_at_fork"):  # two processes would write into each other's calls
            os.register_at_fork(after_in_child=self.stop)

    @property
    def kept(self) -> int:
        return self.file.calls

    def watch(self, function: Any, name: str, row: Function) -> Any:
        """The function, whose calls are recorded; a call inside a call is a part of that.

        Functions are replaced by name: a TorchFunctionMode, which would see copies of them, too, costs each
        torch function of the program some microseconds, 30 to 50 % of small layers, and this 1 % at most.
        """
        state = self.local

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if getattr(state, "inside", False) or not kwargs.get(row.inner_without, True):
                return function(*args, **kwargs)
            number = next(self.numbers)
            state.inside = True
            try:
                if self.backward and not row.inner_without:  # which computes what is recorded
                    with self.failing():
                        args, kwargs = with_aliases(args, kwargs)
                out = function(*args, **kwargs)
                if (self.wanted is None or number in self.wanted) and not self.ended:
                    with self.failing():
                        frame = sys._getframe(1)  # noqa: SLF001  (it has no public name)
                        call = {"number": number, "function": name}
                        self.record(frame, call, (function, row), args, kwargs, out)
            finally:
                state.inside = False
            return out

        watched.watches = self  # type: ignore[attr-defined]
        return watched

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Whatever goes wrong in recording, the program goes on; why a call is not there is counted.

        Whatever: objects of the program are asked here, and one may answer with SystemExit. Only an
        interrupt is the program's own.
        """
        try:
            yield
        except KeyboardInterrupt:
            raise
        except UnreadError as why:
            self.unread[str(why)] += 1
        except AttnError as why:
            # A library explains itself at length where its tensor has no numbers, in jit or vmap.
            self.unread[no_numbers(why.__cause__) if why.__cause__ else why.problems[0]] += 1
        except OSError as error:
            self.ended = True
            self.unread[f"{self.near(self.path)}: {error.strerror or error}; nor is any after it kept"] += 1
        except BaseException as error:  # noqa: BLE001  (of any library, as above)
            self.unread[no_numbers(error)] += 1

    def near(self, path: str) -> str:
        """A path as it is from where the program began, where it was there; of others the name alone."""
        if not os.path.isabs(path):  # noqa: PTH117
            return path
        inside = path.removeprefix(os.path.join(self.home, ""))  # noqa: PTH118
        if inside != path:
            return inside
        is_asked = os.path.dirname(path) == os.path.dirname(self.path)  # noqa: PTH120
        return os.path.relpath(path, self.home) if is_asked else os.path.basename(path)  # noqa: PTH119

    def record(
        self,
        frame: FrameType,
        call: dict[str, Any],
        watched: tuple[Any, Function],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> None:
        """Record a call that has returned. Raises what reading it raises."""
        function, row = watched
        module, is_kept = self.module_of(frame)
        if not is_kept:
            return
        call |= {"at": self.calling_line(frame), "module": module}
        parameters = row.parameters.split() or signature(function).parameters
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        tensors, turned, config = functions.read_call(row, given, out)
        if sum(getattr(array, "nbytes", 0) for array in tensors.values()) > self.limit:
            raise UnreadError("more memory than --max-memory allows")

        query, number = tensors["Q"], call["number"]
        plain = {name: value for name, value in given.items() if is_plain(value)}
        call |= {"options": plain, "dtype": str(query.dtype).rpartition(".")[2]}
        call |= {"device": str(getattr(query, "device", "cpu"))}
        arrays = {name: functions.laid_out(name, array, turned) for name, array in tensors.items()}
        if POSITION_IDS not in arrays:
            positions = positions_around(frame, arrays["Q"].shape)
            if positions is not None:
                arrays[POSITION_IDS] = positions
        arrays, config = self.keep_chosen(arrays, config)
        for name, array in arrays.items():
            refuse_unreadable(name, array)
        header = {"schema": SCHEMA, "attnctl": __version__, CALL: call, "config": config}
        self.write(number, arrays, as_json_data(header))

        for name in (*HEADS, OUTPUT) if self.backward else ():
            if getattr(tensors.get(name), "requires_grad", False):
                tensors[name].register_hook(partial(self.write_gradient, number, name, turned))

    def keep_chosen(
        self, arrays: dict[str, Any], config: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The heads and queries that are kept of a call, and its config; each head has its own K and V."""
        heads, queries = (1, *arrays["Q"].shape)[-3:-1]
        if self.heads and min(self.heads) >= heads:
            raise UnreadError(f"it has {plural(heads, 'head')}, from 0, and none of --head")
        some = range(queries)[slice(*self.queries or (None, None))]
        if self.heads:
            arrays = {name: array for name, array in arrays.items() if name not in OF_ALL_HEADS}
        if self.queries and "causal_offset" in config:
            offset = np.asarray(config["causal_offset"]) + some.start
            config = {**config, "causal_offset": offset.tolist()}

        def cut_one(array: Any, axes: tuple[str, ...]) -> Any:
            for at, axis in enumerate(axes, -len(axes)):
                size = array.shape[at]
                if axis == "head" and self.heads and size > 1:
                    array = array.take([head * size // heads for head in self.heads if head < heads], at)
                elif axis == "query" and self.queries and size > 1:
                    array = array.take(some, at)
            return array

        axes = {name: TABLE[name].axes[-array.ndim :] for name, array in arrays.items() if name in TABLE}
        if POSITION_IDS in arrays:  # the tokens are those of the queries
            axes[POSITION_IDS] = ("row", "batch", "query")[-arrays[POSITION_IDS].ndim :]
        return {name: cut_one(array, axes.get(name, ())) for name, array in arrays.items()}, config

    def write_gradient(self, number: int, name: str, turned: Sequence[str], gradient: Any) -> None:
        was_inside = getattr(self.local, "inside", False)
        self.local.inside = True  # a signal's handler may call attention while the lock is held
        try:
            with self.failing():
                array = functions.laid_out(name, gradient, turned)
                refuse_unreadable(name, array)
                self.write(number, {gradient_of(name): array})
        finally:
            self.local.inside = was_inside

    def write(self, number: int, arrays: dict[str, Any], header: dict[str, Any] | None = None) -> None:
        """Write what belongs to a call; its header at last: what has none was not written whole."""
        if self.ended or getpid() != self.process:  # of a fork that Python did not make, too
            return
        with self.lock:
            self.file.add(number, arrays, header)

    def stop(self) -> None:
        """Leave the file as it is: it is that of the process before a fork."""
        self.ended = True
        if self.file.own is not None:
            self.file.own.close()

    def close(self) -> None:
        with self.failing():
            if self.lock.acquire(timeout=LONGEST_WAIT):  # a thread that is killed may hold it for good
                try:
                    self.ended = True
                    self.file.close()
                finally:
                    self.lock.release()

    def module_of(self, frame: FrameType | None) -> tuple[str, bool]:
        """The path of the torch module that calls, from the outermost one; and whether it is chosen."""
        inner = outer = None
        while frame is not None:
            code = frame.f_code
            owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None  # its self
            # Its type is asked: an object may do anything when it is asked itself.
            if hasattr(type(owner), "named_modules"):
                if inner is None and (known := self.paths.get(owner)):
                    return known
                inner, outer = inner or owner, owner
            frame = frame.f_back
        for path, module in outer.named_modules() if outer is not None else ():
            name = path or type(module).__name__
            self.paths[module] = name, is_chosen(name, self.module)
        nowhere = "", is_chosen("", self.module)
        return nowhere if inner is None else self.paths.get(inner, nowhere)

    def calling_line(self, frame: FrameType) -> str:
        """The line that calls, in the program or in a library of models: file.py:41."""
        here: FrameType | None = frame
        while here is not None and str(here.f_globals.get("__name__")).partition(".")[0] in LIBRARIES:
            here = here.f_back
        here = here or frame
        return f"{self.near(here.f_code.co_filename)}:{here.f_lineno}"


def no_numbers(error: BaseException) -> str:
    return f"no numbers to read ({type(error).__name__})"


def with_aliases(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, each tensor as one of its own: what comes back to it comes of this argument alone."""

    def alias(value: Any) -> Any:
        return value.view_as(value) if getattr(value, "requires_grad", False) else value

    return tuple(map(alias, args)), {name: alias(value) for name, value in kwargs.items()}


def is_chosen(module: str, pattern: str | None) -> bool:
    """True where a path of modules, or the end of it, is as the pattern says."""
    return pattern is None or fnmatchcase(f".{module}", f"*.{pattern}")


def is_plain(value: Any) -> bool:
    """True for what is said of a call as an option that it was passed."""
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    if isinstance(value, int):
        return abs(value) < LARGEST_WHOLE
    return isinstance(value, float)


# --- finding the functions in the modules of a program, now and as it imports them ---

OF_MODELS = re.compile(r"transformers\.models\..*\.modeling_\w+")


class Finder:
    """Stands before the finders of modules, and replaces what is watched in a module that has been made."""

    def __init__(self, recorder: CallRecorder) -> None:
        self.recorder, self.functions, self.undo = recorder, dict(functions.LIBRARIES), ExitStack()
        self.made: dict[Any, Any] = {}
        self.finding = False
        for text in recorder.functions:
            module, _, name = text.partition(":")
            self.functions[module] = self.functions.get(module, {}) | {name: functions.OWN}

    def __enter__(self) -> None:
        """Begin with modules that have been imported, and with copies of functions under other names."""
        for name in [name for name in sys.modules if self.watched_in(name) is not None]:
            self.replace(sys.modules[name])
        made = {id(function): watched for function, watched in self.made.items()}
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in made:
                    self.put(module, name, made[id(value)])
        sys.meta_path.insert(0, self)

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        self.undo.close()
        self.recorder.close()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.watched_in(name) is None or self.finding:
            return None
        self.finding = True  # some of the others ask importlib, which asks all
        try:
            return self.find_watched(name, path, target)
        finally:
            self.finding = False

    def find_watched(self, name: str, path: Any, target: Any) -> Any:
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            make = spec.loader.exec_module

            def make_watched(module: ModuleType) -> None:
                make(module)
                with self.recorder.failing():
                    self.replace(module)

            spec.loader.exec_module = make_watched  # type: ignore[method-assign]
        return spec

    def watched_in(self, module: str) -> dict[str, Function] | None:
        eager = {"eager_attention_forward": functions.EAGER} if OF_MODELS.fullmatch(module) else None
        return self.functions.get(module, eager)

    def replace(self, module: Any) -> None:
        """Put what records in the place of functions; and again, where a program puts others there."""
        if module.__name__ == "torch":
            self.replace_written(module)
            return
        known = self.watched_in(module.__name__) or {}
        for name, row in known.items():
            path, _, last = name.rpartition(".")
            with suppress(AttributeError):  # another version of a library
                owner = attrgetter(path)(module) if path else module
                self.put(owner, last, self.watch(getattr(owner, last), last, row))
                self.recorder.lacking.discard(f"{module.__name__}:{name}")
        if module.__name__ == "torch.backends.mha":  # the fast path of encoder layers calls no function
            self.put(module, "_is_fastpath_enabled", False)
        elif module.__name__ == "torch.jit._builtins":  # by which torch.jit.script knows functions
            find = module._find_builtin  # noqa: SLF001
            self.put(module, "_find_builtin", lambda own: find(getattr(own, "__wrapped__", own)))
        elif module.__name__ == "transformers.modeling_utils":
            registry = module.AttentionInterface
            self.put(registry, "__getitem__", self.watch_given(registry.__getitem__))
        elif type(module) is ModuleType:

            def put(module: Any, name: str, value: Any) -> None:
                row = known.get(name) if callable(value) else None
                ModuleType.__setattr__(module, name, self.watch(value, name, row) if row else value)

            self.put(module, "__class__", type("Watching", (ModuleType,), {"__setattr__": put}))

    def replace_written(self, torch: Any) -> None:
        """Watch the products and softmax of torch, of which attention is written out."""
        written = self.recorder.written
        for names, watch in ((PRODUCTS, written.watch_product), (SOFTMAXES, written.watch_softmax)):
            for name in names:
                path, _, last = name.rpartition(".")
                with suppress(AttributeError):  # another version of torch
                    owner = attrgetter(path)(torch) if path else torch
                    function = getattr(owner, last)
                    if not path:  # others may have it under a name of their own
                        self.made[function] = watch(function)
                    self.put(owner, last, self.made.get(function) or watch(function))

    def put(self, owner: Any, name: str, value: Any) -> None:
        self.undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def watch(self, function: Any, name: str, row: Function) -> Any:
        if not hasattr(function, "watches"):
            self.made[function] = self.recorder.watch(function, name, row)
        return self.made.get(function, function)

    def watch_given(self, give: Any) -> Any:
        """What gives transformers' attention functions by name; some call one that is known by itself."""

        def give_watched(registry: Any, name: str) -> Any:
            function = give(registry, name)
            if re.search("flash|flex|paged", name):
                return function
            return self.watch(function, getattr(function, "__name__", name), functions.REGISTERED)

        return give_watched

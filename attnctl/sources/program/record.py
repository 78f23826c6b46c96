"""Records what an instrumented program computes: every array, and the arrays that it was made of.

It stands in the program's own process, so it must not be noticed there: nothing of the program is kept
alive or called, and what fails here fails silently, counted as lost. Arrays are told by identity: what a
function returns is what its caller holds. What is changed in place is a new event of the same object.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from math import prod
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.sources.program.instrument import Site

FIRST, LAST = 64, 64
"""Events that are kept of each site: of a training loop its first steps and its last ones."""

MOST_NUMBERS, MOST_BYTES = 2**24, 2**28
"""Numbers of an array that is kept, and bytes of all."""

MOST_ARRAYS = 100_000
"""Arrays that are kept, and that are read back."""

MOST_COMPARED = 2**14
"""Numbers of an array that is compared whenever it is read; larger ones only after a statement."""

MOST_ROWS_LINKED = 256
"""Rows of a matrix as lists that are looked up: what each was made of tells what the matrix is."""

CALLERS = 6
"""Lines that are kept of the calls that lead to an event."""

NAMES = 6
"""Names that are kept of what the program calls an array."""

DEEPEST_TRACE = 4
"""Derivatives of derivatives that are looked through."""

MOST_WEIGHTS = 8
"""Weights that are kept of a module: those of a block are those of its parts, which are called, too."""

OF_MODULE = "weight"
OF_LINEAR = "weight of a Linear"
"""What made a matrix that is (out, in), as the modules of torch have it."""

TRAINING = "training"
"""Whether a module was training when it was called: dropout is on then."""

PLAIN = {int, float, bool, str, bytes, type(None), complex, slice}
PLAIN |= {np.float64, np.float32, np.int64, np.bool_, np.intp}
"""Types of which nothing is recorded."""

NUMBERS = (int, float, bool, np.number)
FLOATS = (float, np.floating)
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, np.ufunc, type)

ARRAY_LIBRARIES = ("torch", "jax", "jaxlib", "tensorflow", "cupy", "mlx")

ARGUMENTS = {
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale enable_gqa",
    "dot_product_attention": "query key value bias mask scale is_causal",
    "MultiheadAttention": (
        "query key value key_padding_mask need_weights attn_mask average_attn_weights is_causal"
    ),
}
"""Functions of libraries that are attention by themselves, and the names of what they take, in order."""


class Caller(NamedTuple):
    """A line that was being carried out."""

    file: str
    line: int


@dataclass
class Event:
    """An array at one time, and where it came from."""

    site: int
    value: np.ndarray[Any, Any] | None
    """None where it was too large to keep."""
    parents: tuple[int, ...]
    callers: tuple[Caller, ...]
    """The innermost first."""
    function: str = ""
    """What the function that gave it calls itself; `in place` where a statement changed an array."""
    weights: dict[str, int] = field(default_factory=dict)
    """Of a module that was called: the events of its weights by their names."""
    names: list[str] = field(default_factory=list)
    """What the program calls it."""
    returned_at: list[int] = field(default_factory=list)
    """The sites of calls that handed it on: of what a helper computed, who asked for it."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of a call of ARGUMENTS: what it was given, arrays as {"event": number}; of a module, its mode."""


@dataclass
class KnownObject:
    """What is known of an object of the program."""

    event: int
    holder: Any
    """A weak reference to it; itself, where it is a list."""
    version: int | None = None
    """How often torch had changed it in place."""
    touched: list[tuple[int, list[int]]] = field(default_factory=list)
    """The sites that may have changed it since, each with the events of what it was changed by."""


class Call(NamedTuple):
    """A call that has begun: what was called, and what a known function was given."""

    function: str
    module: Any = None
    """The torch.nn.Module that was called."""
    arguments: tuple[tuple[str, Any], ...] = ()


class Recorder:
    """What the program calls; `files` are its own files and their texts."""

    def __init__(self, sites: list[Site], files: dict[str, str]) -> None:
        self.sites = sites
        self.files = files
        self.events: dict[int, Event] = {}
        self.known: dict[int, KnownObject] = {}
        self.last_at: dict[int, int] = {}
        """The last event of the numbers that begin at an address."""
        self.operands: dict[int, deque[Any]] = defaultdict(lambda: deque(maxlen=16))
        """Values that wait for the expression that they are a part of."""
        self.calls: dict[int, Call] = {}
        self.kept_of_site: dict[int, deque[int]] = defaultdict(deque)
        self.is_operand: set[int] = set()
        self.sites_seen = 0
        self.count = self.bytes = self.arrays = self.lost = 0
        self.state = threading.local()
        self.lock = threading.RLock()

    # --- what the program calls ---

    def __call__(self, site: int, value: Any, rest: Callable[[], list[Any]] | None = None) -> Any:
        """Record the value of an expression, and give it back."""
        if type(value) in PLAIN:
            # Nothing of the program is kept alive for what was no array in the end.
            self.calls.pop(site, None)
            for part in self.sites[site].parts:
                waiting = self.operands.get(part)
                if waiting:
                    waiting.pop()
            return value
        self.guarded(self.see, site, value, rest)
        return value

    def called(self, site: int, function: Any) -> Any:
        """Note what is called here. What comes back is the function, or does the same."""
        if type(function) in FUNCTIONS:
            name = function.__name__
            self.calls[site] = Call(name)
        elif is_module(function):
            name = type(function).__name__
            self.calls[site] = Call(name, function)
        else:
            return function

        if name not in ARGUMENTS:
            return function
        if type(function) is type:
            return function

        def with_arguments(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            module = None
            if is_module(function):
                module = function
            named = [*zip(ARGUMENTS[name].split(), args, strict=False), *kwargs.items()]
            own = {}
            if module is not None:
                own = vars(module)
            named += [(name, own[name]) for name in ("num_heads", "batch_first") if name in own]
            self.calls[site] = Call(name, module, tuple(named))
            return result

        return with_arguments

    def touch(self, site: int, value: Any) -> Any:
        """Note that a statement is about to change an array, and give it back."""
        self.guarded(self.note_change, site, value)
        return value

    def after(self, site: int, value: Any) -> None:
        """Record what `x += …` made."""
        self.touch(site, value)
        self(site, value)

    def link(self, value: Any, parts: Sequence[Any], function: str) -> Any:
        """Note what an array is stacked or cut of, which no expression of the program shows."""
        self.guarded(self.see_linked, value, parts, function)
        return value

    def see_linked(self, value: Any, parts: Sequence[Any], function: str) -> None:
        events = [self.known[id(part)].event for part in parts if id(part) in self.known]
        if not is_array(value) or len(events) < len(parts) or not {*events} <= self.events.keys():
            return
        site = self.sites[self.events[events[-1]].site]
        self.sites.append(site._replace(what=f"call {function}", parts=(), words=(), target=""))
        self.add(len(self.sites) - 1, value, events, function)

    def guarded(self, record: Callable[..., None], *arguments: Any) -> None:
        """Record, unless this thread is recording; the program goes on whatever happens here."""
        if getattr(self.state, "is_recording", False):
            return
        self.state.is_recording = True
        try:
            with self.lock:
                record(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # An object that is asked for an attribute may answer with anything, SystemExit too.
            if is_of_handler(error):
                raise
            self.lost += 1
            if os.environ.get("ATTNCTL_DEBUG_RECORDER"):
                raise
        finally:
            self.state.is_recording = False

    # --- events ---

    def see(self, site: int, value: Any, rest: Callable[[], list[Any]] | None) -> None:
        what = self.sites[site].what
        if self.waits(site) and is_kept_as_operand(value):
            self.operands[site].append(value)

        if what.startswith(("name", "part")):
            # Loops look into lists all the time: what is only looked into is not compared.
            if is_array(value) or (what.startswith("name") and is_nested(value)):
                self.add_name(self.event_of(value, site), what.split(" ")[1])
            return

        parts = self.take_operands(site)
        call = self.calls.pop(site, None)
        if rest is not None and is_nested(value):
            parts += rest()

        if is_array(value) or is_nested(value):
            self.see_result(site, value, parts, call)
        else:
            self.see_other(site, value, parts, call)

    def see_other(self, site: int, value: Any, parts: list[Any], call: Call | None) -> None:
        """What is no array, and may hold some."""
        if is_module(value):
            self.see_module(site, value)
        elif type(value) in {zip, map, enumerate, reversed}:
            # It stands for what it goes through.
            if self.waits(site):
                self.operands[site].append(list(arrays_in(parts)))
        elif type(value) in {list, tuple, dict} or is_named_tuple(value):
            for array in arrays_in(value):
                self.see_result(site, array, parts, call)

    def waits(self, site: int) -> bool:
        """True if the value of this expression is an operand of another one."""
        while self.sites_seen < len(self.sites):
            self.is_operand.update(self.sites[self.sites_seen].parts)
            self.sites_seen += 1
        return site in self.is_operand

    def take_operands(self, site: int) -> list[Any]:
        taken = []
        for part in self.sites[site].parts:
            waiting = self.operands.get(part)
            if waiting:
                taken.append(waiting.pop())
        return taken

    def events_of(self, operands: Sequence[Any], site: int, but: Any = None) -> list[int]:
        arrays = [array for operand in operands for array in arrays_in(operand)]
        return [self.event_of(array, site) for array in arrays if array is not but]

    def see_result(self, site: int, value: Any, parts: list[Any], call: Call | None) -> None:
        """A new event; or, of an array that is known, another name of it."""
        known = self.known.get(id(value))
        if known is not None and known.event in self.events:
            event = self.events[self.event_of(value, site, parts)]
            target = self.sites[site].target
            if target and "," not in target:
                self.add_name(self.known[id(value)].event, target)
            if (
                call is not None
                and len(event.returned_at) < CALLERS
                and self.sites[site].what.startswith("call")
            ):
                event.returned_at.append(site)
            if call is not None and call.module is not None:
                event.arguments[TRAINING] = vars(call.module).get(TRAINING) is True
            if isinstance(value, (list, tuple)) and call is not None:
                # Loops of Python made it: all that tells what of is what their function was given.
                given = self.events_of(parts, site, but=value)
                event.parents = tuple(dict.fromkeys((*event.parents, *given)))
            return

        parents = self.events_of(parts, site)
        weights: dict[str, int] = {}
        function = ""
        if call is not None:
            function = call.function
        if call is not None and call.module is not None:
            weights = self.weights_of(call.module, site)
            parents += weights.values()
        number = self.add(site, value, parents, function)
        self.events[number].weights = weights
        if call is not None and call.arguments:
            self.events[number].arguments = {
                name: self.argument(argument, site) for name, argument in call.arguments
            }
        if call is not None and call.module is not None:
            self.events[number].arguments[TRAINING] = vars(call.module).get(TRAINING) is True

    def argument(self, value: Any, site: int) -> Any:
        if is_array(value):
            return {"event": self.event_of(value, site)}
        if type(value) in {int, float, bool}:
            return value
        return None

    def weights_of(self, module: Any, site: int) -> dict[str, int]:
        """The weights of a module and of those in it, by their names."""
        return {
            name: self.event_of(weight, site)
            for name, weight in [*module.named_parameters()][:MOST_WEIGHTS]
        }

    def see_module(self, site: int, module: Any) -> None:
        """Record the matrix of a module that was just made: it may never be called."""
        weight = vars(module).get("_parameters", {}).get("weight")
        if is_array(weight) and weight.ndim == 2 and id(weight) not in self.known:
            number = self.add(site, weight, [], OF_LINEAR if is_linear(module) else OF_MODULE)
            self.add_name(number, self.sites[site].target.rpartition(".")[2])

    def event_of(self, value: Any, site: int, operands: Sequence[Any] = ()) -> int:
        """The last event of an object; a new one, where it is unknown or has changed since."""
        known = self.known.get(id(value))
        if known is None or known.event not in self.events:
            base = self.whole_of(value)
            return self.add(site, value, self.rows_of(value) if base is None else [base], "")

        if not self.has_changed(known, value):
            # A statement like s[i] /= s[i].sum() reads it again before it changes it.
            return known.event

        changed_at = site
        if known.touched:
            changed_at = known.touched[-1][0]
        parents = [known.event, *self.events_of(operands, changed_at, but=value), *self.rows_of(value)]
        for _, by in known.touched:
            parents += by
        known.touched.clear()
        return self.add(changed_at, value, parents, "in place")

    def rows_of(self, value: Any) -> list[int]:
        """The events of the lists that a list of lists holds, of those that are known."""
        if type(value) is not list or type(value[0]) is not list:
            return []
        rows = [self.known[id(row)] for row in value[:MOST_ROWS_LINKED] if id(row) in self.known]
        return [row.event for row in rows if row.event in self.events]

    def whole_of(self, value: Any) -> int | None:
        """The event of what an unknown array is a view of, as its address and its numbers show."""
        base = self.last_at.get(address(value) or 0)
        whole = None
        if base in self.events:
            whole = self.events[base].value
        part = numbers_of(value)
        if base is None:
            return None
        if whole is None:
            return None
        if part is None:
            return None
        if part.size > whole.size:
            return None
        # Another array may have come to lie where it was.
        is_there = part.size > MOST_COMPARED or bool(np.isin(part, whole).all())
        if is_there:
            return base
        return None

    def has_changed(self, known: KnownObject, value: Any) -> bool:
        if known.version is not None:
            return version_of(value) != known.version
        before = self.events[known.event].value
        if before is None:
            return False
        if is_array(value) and prod(value.shape) > MOST_COMPARED and not known.touched:
            return False
        now = numbers_of(value)
        if now is None:
            return False
        return not is_same(now, before)

    def note_change(self, site: int, value: Any) -> None:
        known = self.known.get(id(value))
        if known is not None:
            by = self.events_of(self.take_operands(site), site, but=value)
            if known.touched and known.touched[-1][0] != site:
                self.event_of(value, site)  # what the statement before it changed is that one's
                known = self.known[id(value)]
            known.touched = [*known.touched[-63:], (site, by)]

    def add(self, site: int, value: Any, parents: Sequence[int], function: str) -> int:
        self.count += 1
        number = self.count
        numbers = numbers_of(value)
        if self.arrays == MOST_ARRAYS:
            numbers = None
        if numbers is not None and self.bytes + numbers.nbytes > MOST_BYTES:
            numbers = None
        if numbers is None:
            self.lost += 1
        else:
            self.arrays += 1
            self.bytes += numbers.nbytes

        event = Event(site, numbers, tuple(dict.fromkeys(parents)), self.callers(), function)
        self.events[number] = event
        self.drop_middle(site, number)
        self.remember(value, number)

        # A view lies where the whole does: it must not stand for it.
        place = address(value)
        is_slice = (
            not function and parents and self.sites[site].what.split(" ")[0] in {"item", "name", "part"}
        )
        if place and not is_slice:
            self.last_at[place] = number
        return number

    def drop_middle(self, site: int, number: int) -> None:
        kept = self.kept_of_site[site]
        kept.append(number)
        if len(kept) > FIRST + LAST:
            dropped = self.events.pop(kept[FIRST])
            del kept[FIRST]
            if dropped.value is not None:
                self.arrays -= 1
                self.bytes -= dropped.value.nbytes

    def remember(self, value: Any, number: int) -> None:
        key = id(value)

        def forget(_: Any) -> None:
            known = self.known.get(key)
            if known is not None and known.event == number:
                del self.known[key]

        holder: Any = value
        if is_array(value):
            holder = weakref.ref(value, forget)
        self.known[key] = KnownObject(number, holder, version_of(value))

    def add_name(self, number: int, name: str) -> None:
        names = self.events[number].names
        if len(names) < NAMES and name not in names:
            names.append(name)

    def callers(self) -> tuple[Caller, ...]:
        lines: list[Caller] = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  (the lines that led here)
        while frame is not None and len(lines) < CALLERS:
            file = frame.f_code.co_filename
            if file in self.files:
                lines.append(Caller(file, frame.f_lineno))
            frame = frame.f_back
        return tuple(lines)

    def name_events(self, variables: dict[str, Any]) -> dict[str, int]:
        """The events of these variables, of those that are arrays."""
        named: dict[str, int] = {}

        def note(name: str, value: Any) -> None:
            if is_array(value) or is_nested(value):
                named[name] = self.event_of(value, 0)

        for name, value in variables.items():
            if self.sites:
                self.guarded(note, name, value)
        return named

    def write(self, into: str, **more: Any) -> None:
        """Write the events as .npz: their arrays by number, and a table of the rest and of `more`."""
        arrays: dict[str, Any] = {
            str(number): event.value for number, event in self.events.items() if event.value is not None
        }
        rows = []
        for number, event in self.events.items():
            told = (event.weights, event.names, event.arguments, event.returned_at)
            rows.append((number, event.site, event.parents, event.callers, event.function, *told))
        table = {
            "events": rows,
            "sites": list(self.sites),
            "files": self.files,
            "lost": self.lost,
            **more,
        }
        np.savez(into, table=np.array(json.dumps(table)), **arrays)


def is_of_handler(error: BaseException) -> bool:
    """True for what the program's handler of a signal raised: that may come at any time, and is its own."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [getattr(handler, "func", handler) for handler in handlers if callable(handler)]
    codes = {getattr(function, "__code__", None) for function in functions}
    codes |= {getattr(type(function).__call__, "__code__", None) for function in functions}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


# --- values of the program, which must not be asked anything that it could notice ---


def is_array(value: Any) -> bool:
    """True for an array, with at least one axis, of NumPy or of a library that is known."""
    if issubclass(type(value), np.ndarray):  # isinstance would ask the object for its class
        return bool(value.ndim > 0)
    if not is_tensor(value):
        return False
    return bool(getattr(value, "ndim", 0))


def is_tensor(value: Any) -> bool:
    kind = type(value)
    if kind.__module__.partition(".")[0] not in ARRAY_LIBRARIES:
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        # One that sees each function that is called with it would see ours.
        if tensor is None:
            return False
        if not issubclass(kind, tensor):
            return False
        return not is_overridden(kind, tensor)
    return hasattr(kind, "__array__")


def is_overridden(kind: Any, tensor: Any) -> bool:
    hook = "__torch_function__"
    return getattr(getattr(kind, hook), "__func__", None) is not getattr(
        getattr(tensor, hook), "__func__", None
    )


def is_module(value: Any) -> bool:
    """True for a torch.nn.Module."""
    modules = sys.modules.get("torch.nn")
    kind = getattr(modules, "Module", None)
    if kind is None:
        return False
    return issubclass(type(value), kind)


def is_linear(module: Any) -> bool:
    """True for a torch.nn.Linear, whose weight is (out, in)."""
    return issubclass(type(module), sys.modules["torch.nn"].Linear)


def is_nested(value: Any) -> bool:
    """True for a list or dict of floats, a matrix as a list of lists, or such matrices in a list."""
    if type(value) is dict:
        value = [*value.values()]
        return len(value) > 1 and all(isinstance(number, FLOATS) for number in value)
    if type(value) not in {list, tuple}:
        return False
    if not value:
        return False
    if isinstance(value[0], FLOATS):
        if type(value) is not list:
            return False
        return len(value) > 1 and all(isinstance(number, NUMBERS) for number in value)
    rows = value
    while type(rows[0]) in {list, tuple} and rows[0] and type(rows[0][0]) in {list, tuple}:
        if not all(type(row) in {list, tuple} and len(row) == len(rows[0]) for row in rows):
            return False
        rows = rows[0]
    if not all(type(row) in {list, tuple} and len(row) == len(rows[0]) for row in rows):
        return False
    if not rows[0]:
        return False
    return isinstance(rows[0][0], NUMBERS)


def is_named_tuple(value: Any) -> bool:
    if not issubclass(type(value), tuple):
        return False
    return hasattr(type(value), "_fields")


def is_kept_as_operand(value: Any) -> bool:
    if is_array(value):
        return True
    if type(value) in {list, tuple, dict}:
        return True
    if is_named_tuple(value):
        return True
    return is_module(value)


def arrays_in(value: Any, depth: int = 3) -> Iterator[Any]:
    """The arrays in lists, tuples and dicts."""
    if is_array(value) or is_nested(value):
        yield value
    elif depth and (type(value) in {list, tuple, dict} or is_named_tuple(value)) and len(value) <= 64:
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays_in(part, depth - 1)


def numbers_of(value: Any) -> np.ndarray[Any, Any] | None:
    """A copy, in NumPy; None of what is too large, or holds no numbers."""
    if prod(getattr(value, "shape", ())) > MOST_NUMBERS:
        return None
    value = without_tracing(value)
    if type(value) is dict:
        value = [*value.values()]
    if is_tensor(value) and hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        array = np.array(value.numpy())
    else:
        try:
            array = np.array(value, subok=False)
        except ValueError:  # lists of other lengths in a list
            return None
    if array.dtype.kind in "fiub" and array.size <= MOST_NUMBERS:
        return array
    return None


def without_tracing(value: Any) -> Any:
    """The numbers that jax differentiates by, where these are there."""
    for _ in range(DEEPEST_TRACE):
        if not type(value).__module__.startswith("jax") or not hasattr(type(value), "__slots__"):
            break
        inner = getattr(value, "primal", None)
        if inner is None:
            break
        value = inner
    return value


def version_of(value: Any) -> int | None:
    """How often torch changed it in place; None of others, and in inference mode, which does not count."""
    try:
        version: int = value._version  # noqa: SLF001  (torch's own counter, and the only one there is)
    except (AttributeError, RuntimeError):
        return None
    return version


def address(value: Any) -> int | None:
    """Where its numbers begin; of a view, those of the whole."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return int(value.__array_interface__["data"][0])
    if is_tensor(value) and hasattr(value, "untyped_storage"):
        return int(value.untyped_storage().data_ptr())
    return None


def is_same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """True if two arrays hold the same numbers, NaN in the same places."""
    if a.shape != b.shape:
        return False
    with_nan = a.dtype.kind == "f" and b.dtype.kind == "f"
    return bool(np.array_equal(a, b, equal_nan=with_nan))

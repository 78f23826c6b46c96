"""A trace without its numbers: the header that every kind of dump carries, written and read.

And the arrays beside it, which are loaded when they are asked for; those of others come without a header:
what their names and dimensions tell. Nothing is read that needs more memory than there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from math import isfinite, prod
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from attnctl.base import __version__
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, collect_problems, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.values import short
from attnctl.base.words import did_you_mean, number_text
from attnctl.math import Array, Shape, ops
from attnctl.math.derivation import Step
from attnctl.math.engine.cost import available, count_inflated, size_text
from attnctl.math.names import PAST_KEY, PAST_VALUE, TABLE
from attnctl.math.ops import Unstated
from attnctl.math.ops.base import OPS as IMPORTED_OPS
from attnctl.math.rules import RULES, Rule
from attnctl.record import CALL, NEXT_TOKENS, SCHEMA, Trace

# --- ops and rules as plain JSON data, and back ---
#
# Generic over the frozen dataclasses of `attnctl.math.ops` and the rules inside them: a new op needs no
# change here. ``Hide(rules=(Causal(),))`` is ``{"name": "Hide", "rules": [{"name": "causal"}]}``; fields
# that have their default are left out.

NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""How a number that JSON has no digits for is written: as one of these strings."""

MOST_NAMED = 24  # names of ops or rules that a message lists

GONE = {"dilated": "there is no dilated window any more; run it again with its mask"}
"""Names that older dumps have, and what to do."""

TYPE_WORDS: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    type(None): "null",
}
"""Types as messages call them; any other is a list."""

DEEPEST_RULES = 32  # how deep rules may stand within rules, as deep as a config can say


def kind_name(kind: type) -> str:
    """The name of a dataclass in a dump: its own `name` if it has one (rules do)."""
    return str(getattr(kind, "name", kind.__name__))


def as_json_data(value: Any) -> Any:
    """Anything a header or an op holds as strict JSON data: no tuples, NumPy scalars, NaN or infinity."""
    if isinstance(value, (str, int)) and not isinstance(value, np.generic):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": kind_name(type(value))} | as_json_data(not_default(value))
    if isinstance(value, dict):
        return {str(key): as_json_data(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json_data(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return as_json_data(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return number_text(value)
    return value


def not_default(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have not their default."""
    changed = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if part != default(field):
            changed[field.name] = part
    return changed


def default(field: Field[Any]) -> Any:
    """The default of a dataclass field; MISSING, which equals nothing else, where it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def op_of(data: Any, path: str) -> ops.Op:
    name = data.get("name") if isinstance(data, dict) else None
    # Only what is not among the ops of every sentence, or is none, has all of them imported.
    is_imported = isinstance(name, str) and name in IMPORTED_OPS
    return record(IMPORTED_OPS if is_imported else ops.OPS, data, path)


def decode(kind: Any, data: Any, path: str, depth: int = 0) -> Any:
    """JSON data as a value of this annotated type; AttnError with the path where it is none."""
    written = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    options = tuple(kind for option in written for kind in kinds_of(option))
    named = {kind_name(kind): kind for kind in options if isinstance(kind, type) and is_dataclass(kind)}
    if named and (isinstance(data, dict) or len(named) == len(options)):
        return record(named, data, path, depth)

    for option in options:
        if get_origin(option) is tuple and isinstance(data, list):
            inside = get_args(option)[0]
            return tuple(decode(inside, item, f"{path}[{i}]", depth) for i, item in enumerate(data))
        if option is float and type(data) is int:
            try:
                return float(data)
            except OverflowError:
                raise AttnError(f"{path}: {show_value(data)} is too large for a number") from None
        if option is float and isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if type(data) is option:  # not isinstance: a truth value is no whole number
            return data

    expected = " or ".join(TYPE_WORDS.get(option, "a list") for option in options)
    raise AttnError(f"{path}: expected {expected}, found {show_value(data)}")


def kinds_of(option: Any) -> list[Any]:
    """The rules that a kind of rule stands for; any other type stands for itself."""
    if isinstance(option, type) and issubclass(option, Rule):
        return [rule for rule in RULES.values() if issubclass(rule, option)]
    return [option]


def record(kinds: dict[str, type], data: Any, path: str, depth: int = 0) -> Any:
    """An object as the dataclass that it names. Raises AttnError for fields that this has not, or lacks."""
    if depth > DEEPEST_RULES:
        raise AttnError(f"{path[:60]}…: rules within rules, more than {DEEPEST_RULES} deep")
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise AttnError(f'{path}: expected an object with a "name", found {show_value(data)}')

    name = data["name"]
    if name not in kinds:
        listed = ", ".join(list(kinds)[:MOST_NAMED])
        if len(kinds) > MOST_NAMED:
            listed += ", …"
        instead = GONE.get(name) or did_you_mean(name, list(kinds), f"expected one of {listed}")
        raise AttnError(f"{path}.name: unknown name {name!r}; {instead}")

    kind = kinds[name]
    known = {field.name: field for field in fields(kind)}
    unknown = [key for key in data if key != "name" and key not in known]
    missing = [key for key, field_ in known.items() if default(field_) is MISSING and key not in data]
    if unknown or missing:
        problems = [f"{under(path, key)}: {name} has no such field" for key in unknown]
        problems += [f"{path}.{key}: {name} needs this field" for key in missing]
        raise AttnError(problems)

    hints = get_type_hints(kind)
    given = {key: decode(hints[key], data[key], f"{path}.{key}", depth + 1) for key in known if key in data}
    try:
        return kind(**given)
    except AttnError as error:  # the dataclass's own checks
        raise AttnError(f"{path}: {problem}" for problem in error.problems) from None


def under(path: str, key: str) -> str:
    """The path of a key in an object: $.steps.Q, or $.steps['a b'] where it is no plain word."""
    if key.isidentifier() and len(key) <= 40:
        return f"{path}.{key}"
    return f"{path}[{show_value(key)}]"


def show_value(data: Any) -> str:
    if isinstance(data, dict):
        return "an object"
    if isinstance(data, list):
        return "a list"
    if isinstance(data, int) and not isinstance(data, bool) and data.bit_length() > 128:
        return f"a whole number of {data.bit_length()} bits"
    words = {None: "null", True: "true", False: "false"}
    return short(words[data] if data is None or isinstance(data, bool) else repr(data))


# --- what a header says ---

WHOLE = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = {name: np.dtype(name) for name in ("bool", *WHOLE, "float16", "float32", "float64")}
"""What the arrays of a dump may hold, by name."""

MOST_AXES = 8
LARGEST, LARGEST_EMPTY = 1 << 60, 1 << 16
"""The most numbers of an array; the largest product of the other axes where one axis is 0."""

DEEPEST = 64  # levels of nesting that a header may have

FIELDS: dict[str, Any] = {
    "attnctl": str,
    "sentence": str | None,
    "tokens": tuple[str, ...] | None,
    "key_tokens": tuple[str, ...] | None,
    "ids": tuple[int, ...] | None,
    "key_ids": tuple[int, ...] | None,
    NEXT_TOKENS: tuple[str, ...] | None,
    "empty_rows": tuple[tuple[int, ...], ...] | None,
    "overflow": dict | None,
    "exp": str | None,
    "config": dict,
    CALL: dict,
}
"""What attnctl itself reads of a header; a dump may carry more."""

CALL_FIELDS = {"number": int, "at": str, "module": str}  # what it reads of a call


# --- limits ---

MOST_PROBLEMS = 20


def require_bytes(need: int, what: str, limit: int | None = None) -> None:
    """Raise AttnError if something needs more bytes than the limit (default: what is available)."""
    limit = available() if limit is None else limit
    if need > limit:
        raise AttnError(f"{what} needs {size_text(need)}, and {size_text(limit)} are left for it")


def room(need: int, what: str) -> Array:
    """Bytes for an array that is to be inflated. Raises AttnError if there are not so many."""
    require_bytes(need, what)
    data: Array = np.empty(need, dtype=np.uint8)
    count_inflated(data)
    return data


def raise_first(problems: Iterable[str]) -> None:
    """Raise one AttnError with the first problems and the number of the others, if there are any."""
    every = list(problems)
    listed = every[:MOST_PROBLEMS]
    more = len(every) - len(listed)
    if more:
        listed.append(f"… and {more} more like these")
    raise_all(listed)


# --- writing ---


def heading(trace: Trace) -> dict[str, Any]:
    return {"schema": SCHEMA, "attnctl": __version__, **as_json_data(trace.header)}


def entry(step: Step, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Any]:
    if dtype.name not in DTYPES:
        raise AttnError(f"step {step.name}: a dump cannot hold numbers of type {dtype}")

    out: dict[str, Any] = {"formula": step.formula, "symbol": step.symbol}
    if not isinstance(step.op, Unstated):
        out["op"] = as_json_data(step.op)
    return out | {
        "axes": list(step.axes),
        "inputs": list(step.inputs),
        "shape": list(shape),
        "dtype": dtype.name,
    }


def header_data(trace: Trace) -> dict[str, Any]:
    """Everything of a dump but its numbers, for the formats that keep those apart."""
    steps = {name: entry(trace.steps[name], array.shape, array.dtype) for name, array in trace.items()}
    return heading(trace) | {"steps": steps}


# --- the arrays of a file ---


@dataclass(frozen=True)
class Stored:
    """An array that is still in its file: its shape and type, and what reads its numbers.

    One of a checkpoint's is loaded in part, too: `load(index, room)`, with `room` to widen bfloat16 in. It
    says how its file calls the type, and its bytes there.
    """

    shape: Shape
    dtype: np.dtype[Any]
    load: Callable[..., Array]
    type_name: str = ""
    nbytes: int = 0
    adapted: bool = False
    """Whether an adapter changes it: `attnctl.models.adapter`."""


@dataclass(frozen=True)
class Arrays(Mapping[str, Array]):
    """Arrays by name; those that are still in a file are loaded each time they are asked for."""

    members: Mapping[str, Array | Stored]
    place: str

    def __getitem__(self, name: str) -> Array:
        found = self.members[name]
        if isinstance(found, np.ndarray):
            return found
        try:
            return found.load()
        except MemoryError:
            raise AttnError(f"{self.place}: {show_value(name)}: not enough memory to load it") from None
        except (OSError, ValueError) as error:  # the file has changed since, or mapping it was refused
            what = f"{show_value(name)}: cannot be read from its file any more"
            raise AttnError(f"{self.place}: {what}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


class Contents(NamedTuple):
    """A file's header and arrays, or one trace's of several; no header where someone else made them."""

    header: dict[str, Any] | None
    members: Mapping[str, Array | Stored]
    place: str


def assemble_trace(contents: Contents, rename: Mapping[str, str]) -> Trace:
    """The trace of what a reader found; `rename` says what arrays are called here."""
    header, members, place = contents
    if header is not None:
        check_schema(header, place)
        if rename and "steps" in header:
            raise AttnError(f"{place}: a dump of attnctl has names of its own; leave out --name")
    elif not members:
        raise AttnError(f"{place}: no arrays in it")

    found = rename_members(members, rename, place)
    raise_first(
        f"{place}: {name}: {show_shape(tuple(array.shape))}, no number in it"
        for name, array in found.items()
        if name in TABLE and is_empty(name, array.shape)
    )

    # Of arrays of others, and of a captured call, names and dimensions say what a header would.
    if header is None or (CALL in header and "steps" not in header):
        names = in_order_of_table(found)
        steps = {name: foreign_step(name, found[name]) for name in names}
        return Trace(steps, Arrays(found, place), read_rest(header or {}, place))
    return rebuild(header, found, place)


def rename_members(
    members: Mapping[str, Array | Stored], rename: Mapping[str, str], place: str
) -> dict[str, Array | Stored]:
    """The arrays under the names that they are to have. Raises AttnError where two would have the same."""
    unknown = [name for name in rename if name not in members]
    names = ", ".join(list(members)[:MOST_PROBLEMS])
    raise_first([f"{place}: no array {show_value(name)} to rename; it has {names}" for name in unknown])

    ours = {member: rename.get(member, member) for member in members}
    counts = Counter(ours.values())
    twice = [name for name, count in counts.items() if count > 1]
    raise_first([f"{place}: two arrays would be called {show_value(name)}" for name in twice])
    return {ours[name]: member for name, member in members.items()}


def in_order_of_table(names: Iterable[str]) -> list[str]:
    """Names in the order of the table of names, those that it has not behind them."""
    order = {name: number for number, name in enumerate(TABLE)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def is_empty(name: str, shape: Shape) -> bool:
    """True where an axis has no place; the tokens of a cache may be none yet."""
    if name in {PAST_KEY, PAST_VALUE}:
        shape = shape[:-2] + shape[-1:]
    return 0 in shape


# --- reading ---


def rebuild(header: dict[str, Any], found: Mapping[str, Array | Stored], place: str) -> Trace:
    """The trace that a dump's header and arrays make; AttnError with every problem otherwise."""
    steps = header.get("steps")
    if not isinstance(steps, dict) or not steps:
        raise AttnError(f"{place}: $.steps: expected an object with steps in it")

    problems: list[str] = []
    read: dict[str, Step] = {}
    for name, data in steps.items():
        with collect_problems(problems):
            read[name] = step_of(name, data, found.get(name), above=read)
    return Trace(read, Arrays(found, place), read_rest(header, place, problems))


def read_rest(header: dict[str, Any], place: str, problems: Sequence[str] = ()) -> dict[str, Any]:
    """What a header says beside its steps. Raises AttnError with every problem, after those before."""
    rest = {key: value for key, value in header.items() if key not in ("schema", "steps")}
    every = list(problems)
    for key, value in rest.items():
        with collect_problems(every):
            check_depth(value, under("$", key))
            if key in FIELDS:
                decode(FIELDS[key], value, under("$", key))

    call = rest.get(CALL)
    if isinstance(call, dict):
        for key, kind in CALL_FIELDS.items():
            with collect_problems(every):
                decode(kind, call.get(key), under(f"$.{CALL}", key))

    raise_first([f"{place}: {problem}" for problem in every])
    return rest


def check_schema(header: dict[str, Any], place: str) -> None:
    """Refuse what is not a dump, and a dump of a later schema by its name."""
    schema = header.get("schema")
    if not isinstance(schema, str):
        raise AttnError(f'{place}: not a dump: no "schema" that says {SCHEMA!r}')
    if schema != SCHEMA:
        raise AttnError(f"{place}: a dump of schema {show_value(schema)}; this attnctl reads {SCHEMA!r}")


def check_depth(value: Any, path: str, left: int = DEEPEST) -> None:
    """Refuse a header nested so deeply that walking it would be a danger, or with a step in it."""
    if not left:
        raise AttnError(f"{path}: nested more than {DEEPEST} deep")

    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        for part in parts:
            check_depth(part, path, left - 1)
    elif value is not None and not isinstance(value, (str, int, float)):
        raise AttnError(f"{path}: the numbers of a step where none belong")


def step_of(name: str, data: Any, array: Array | Stored | None, above: Container[str]) -> Step:
    """A step as a header says it, where its array is that. Raises AttnError where it is not."""
    path = under("$.steps", name)
    if not isinstance(data, dict):
        raise AttnError(f"{path}: expected an object, found {show_value(data)}")
    if array is None:
        raise AttnError(f"{path}: this step has no numbers")

    usual = foreign_step(name, array)
    op = op_of(data["op"], f"{path}.op") if "op" in data else Unstated()
    axes = decode(tuple[str, ...], data.get("axes", list(usual.axes)), f"{path}.axes")
    inputs = decode(tuple[str, ...], data.get("inputs", []), f"{path}.inputs")

    stated_shape = decode(tuple[int, ...], data.get("shape", list(array.shape)), f"{path}.shape")
    stated_dtype = decode(str, data.get("dtype", array.dtype.name), f"{path}.dtype")
    shape = tuple(array.shape)
    dtype = array.dtype.name
    raise_all(
        f"{path}.{key}: says {show_shape(stated)}, but the numbers are {show_shape(actual)}"
        for key, stated, actual in (("shape", stated_shape, shape), ("dtype", stated_dtype, dtype))
        if stated != actual
    )

    if len(axes) != len(shape):
        raise AttnError(f"{path}.axes: {len(axes)} names for numbers with {len(shape)} axes")
    for number, read in enumerate(inputs):
        # It stands above, or attnctl knows it and this dump leaves it out.
        if read == name or (read not in above and read not in TABLE):
            raise AttnError(f"{path}.inputs[{number}]: no step {show_value(read)} above this one")

    return Step(
        name=name,
        op=op,
        inputs=inputs,
        axes=axes,
        formula=decode(str, data.get("formula", ""), f"{path}.formula"),
        symbol=decode(str, data.get("symbol", usual.symbol), f"{path}.symbol"),
    )


def check_shape(shape: Shape, place: str) -> None:
    """Refuse a shape that no array here can have, before anything is made in it."""
    if len(shape) > MOST_AXES:
        raise AttnError(f"{place}: {len(shape)} axes; {MOST_AXES} are the most")

    largest = LARGEST_EMPTY if 0 in shape else LARGEST
    if prod(max(1, size) for size in shape) > largest:
        raise AttnError(f"{place}: the shape {show_shape(shape)} is too large")


def show_shape(value: Any) -> str:
    """(3, 4) -> '3 × 4'."""
    if not isinstance(value, tuple):
        return str(value) if str(value) in DTYPES else show_value(value)
    return " × ".join(map(show_value, value[: MOST_AXES + 1])) or "one number"


# --- arrays of others ---


def foreign_step(name: str, array: Array | Stored) -> Step:
    """A step of someone's array: name and dimensions tell its axes, not how it came about."""
    dims = len(array.shape)
    row = TABLE.get(name)
    axes = tuple(f"axis {number}" for number in range(dims))
    if row and dims == len(row.axes) + 1:
        axes = ("batch", *row.axes)
    elif row and dims <= len(row.axes):
        axes = row.axes[len(row.axes) - dims :]

    symbol = row.symbol if row else ""
    return Step(name, Unstated(), (), axes, formula="", symbol=symbol)

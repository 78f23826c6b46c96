"""Holds what `check` says to the numbers: each sentence is taken apart, and computed again here.

Nothing of the package's arithmetic is used. What a sentence says is found by a pattern, one for each kind
of sentence there is; a sentence that no pattern takes is one that nobody holds, and fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np

ALIKE = 3e-3
"""What is left of numbers that are said to be others, as a part of them."""

NAME = r"[A-Za-z_][\w·]*"
NUMBER = r"−?-?\d[\d.]*(?:e[+-]?\d+)?"


@dataclass(frozen=True)
class Numbers:
    """A wrong step, what it should be, and all that stands beside it."""

    step: str
    found: np.ndarray
    right: np.ndarray
    axes: tuple[str, ...]
    recorded: dict[str, np.ndarray]
    should: dict[str, np.ndarray]
    """What every step should be, recorded or not."""
    unit: float
    """How far off rounding may put a number of 1."""
    kind: object
    """What was meant."""
    remake: Callable[..., np.ndarray]
    """The step made anew, of all that is recorded; of another kind, with a mistake, or with edits."""
    is_written: bool = False
    """Whether it was only written down wrong, and what follows was computed from the right numbers."""

    @property
    def differs(self):
        """What is off by more than any rounding; not what softmax makes 0 of, as it should."""
        off = self.off_by_more_than(self.room)
        vanishes = np.isneginf(self.right) & (self.found < -1e3)
        return off & ~vanishes if self.step == "masked_scores" else off

    @property
    def may_differ(self):
        """What is off by more than the last digit, and may be told."""
        weight_on_hidden = (self.right == 0) & (self.found != 0)
        return self.off_by_more_than(self.room / 2**14) | weight_on_hidden

    def off_by_more_than(self, room):
        same = (self.found == self.right) | (np.isnan(self.found) & np.isnan(self.right))
        told = np.isfinite(self.right) & np.isfinite(self.found)
        found, right = (np.where(told, each, 0) for each in (self.found, self.right))
        return ~same & ~(told & (np.abs(found - right) <= room))

    @property
    def room(self):
        finite = self.right[np.isfinite(self.right)]
        return 1024 * self.unit * max(1.0, float(np.abs(finite).max(initial=0)))

    def along(self, axis, array=None):
        """A step's slices along an axis, each as a row."""
        array = self.found if array is None else array
        at = self.axes.index(axis)
        return np.moveaxis(array, at, 0).reshape(array.shape[at], -1)

    def array_of(self, name):
        return self.recorded[name] if name in self.recorded else self.should[name]


def is_near(one, other):
    """Whether numbers are others, within a small part of them."""
    one, other = np.asarray(one, float), np.asarray(other, float)
    if one.shape != other.shape:
        return False
    both = np.isfinite(one) & np.isfinite(other)
    if not (both | (one == other)).all():
        return False
    one, other = np.where(both, one, 0), np.where(both, other, 0)
    return np.square(one - other).sum() <= ALIKE**2 * np.square(other).sum()


def number(text):
    return float(text.replace("−", "-"))


def numbers_in(text):
    return [number(each) for each in re.findall(NUMBER, text)]


def singular(axis):
    words = {"members": "batch", "queries": "query", "keys": "key", "heads": "head", "kv heads": "kv_head"}
    return words.get(axis, axis)


# --- one number for all ---


def every_number_times(world, said):
    told = np.isfinite(world.found) & np.isfinite(world.right)
    factor = number(said["factor"])
    off = np.abs(world.found - factor * world.right)[told]
    digits = 10.0 ** -(len(re.sub(r"\D", "", said["factor"]).lstrip("0")) - 1)
    most = np.abs(world.right[told]) * abs(factor) * digits
    return bool((off <= most + world.room * (1 + abs(factor))).all())


def every_number_too(world, said):
    told = np.isfinite(world.found) & np.isfinite(world.right)
    by = number(said["by"]) * (1 if said["way"] == "large" else -1)
    off = np.abs(world.found - world.right - by)[told]
    return bool((off <= 1e-4 * abs(by) + 4 * world.room).all())


# --- where right numbers are ---


def all_hold_one(world, said):
    axis = singular(said["axis"])
    found, right = world.along(axis), world.along(axis, world.right)
    return axis == said["one"] and all(is_near(row, right[int(said["place"])]) for row in found)


def each_holds_another(world, said):
    axis = said["axis"].lower()
    step = int(said["by"]) * (1 if said["sign"] == "+" else -1)
    found, right = world.along(axis), world.along(axis, world.right)
    held = [
        here
        for here in range(len(found))
        if 0 <= here + step < len(right) and is_near(found[here], right[here + step])
    ]
    own = [here for here in held if is_near(found[here], right[here])]
    rest = [here for here in range(len(found)) if here not in held]
    alone = all(is_near(found[here], right[here]) or not found[here].any() for here in rest)
    return axis == said["same"] and len(held) - len(own) == int(said["times"]) and alone


def some_hold_others(world, said):
    """All that are named do, and unless more are meant every other is right or told to be 0."""
    pairs = re.findall(rf"({NAME}) (\d+) holds (\d+)", said["pairs"])
    axis = pairs[0][0]
    found, right = world.along(axis), world.along(axis, world.right)
    if not all(each == axis and is_near(found[int(a)], right[int(b)]) for each, a, b in pairs):
        return False
    named = {int(here) for _, here, _ in pairs}
    rest = [here for here in range(len(found)) if here not in named]
    if said["more"]:
        return any(not is_near(found[here], right[here]) for here in rest)
    return all(is_near(found[here], right[here]) or not found[here].any() for here in rest)


def rows_hold_others(world, said):
    """Every row that is named does, and so does each other one that is wrong: as many as are said."""
    lead = place_in(said["lead"] or "")
    named = set()
    for here, there in re.findall(rf"((?:{NAME} \d+ ?)+) holds ((?:{NAME} \d+ ?)+)", said["pairs"]):
        mine, other = (index_of_row(world, lead | place_in(text)) for text in (here, there))
        if not is_near(world.found[mine], world.right[other]):
            return False
        named.add(mine)

    rows = world.right.reshape(-1, world.right.shape[-1])
    wrong = {tuple(map(int, at)) for at in np.argwhere(world.differs.any(axis=-1))}
    rest = wrong - named
    hold_others = all(any(is_near(world.found[at], row) for row in rows) for at in rest)
    return named <= wrong and len(rest) == int(said["rest"] or 0) and hold_others


def place_in(text):
    return {axis: int(at) for axis, at in re.findall(rf"({NAME}) (\d+)", text)}


def index_of_row(world, place):
    """The place of a row among all, where an axis that it does not name has a single place."""
    assert all(axis in place or world.found.shape[at] == 1 for at, axis in enumerate(world.axes[:-1]))
    return tuple(place.get(axis, 0) for axis in world.axes[:-1])


def slices_are_zero(world, said):
    places = re.findall(rf"({NAME}) (\d+)", said["places"])
    zero = {(axis, int(at)) for axis, at in places}
    (axis,) = {axis for axis, _ in zero}
    rows = world.along(axis)
    return zero == {(axis, at) for at, row in enumerate(rows) if not row.any()}


def a_factor_by_axis(world, said):
    axis, told = said["axis"], numbers_in(said["factors"])
    found, right = world.along(axis), world.along(axis, world.right)
    factors = [(a @ b) / (b @ b) for a, b in zip(found, right, strict=True)]
    if not is_near(np.array(factors)[:, None] * right, found):
        return False
    if " to " in said["factors"]:
        factors = [min(factors), max(factors)]
    return np.allclose(factors, told, rtol=1e-3, atol=1e-6)


def axes_exchanged(world, said):
    read = world.array_of(said["name"])
    ways = (read.swapaxes(a, b) for a in range(read.ndim) for b in range(a))
    return any(is_near(way.reshape(world.found.shape), world.found) for way in ways)


def viewed_head_first(world, said):
    read = world.array_of(said["name"])
    members, heads, *rest = read.shape
    folded = read.reshape(heads, members, *rest)
    ways = (folded.transpose(order).reshape(world.found.shape) for order in permutations(range(4)))
    return any(is_near(way, world.found) for way in ways)


def heads_of_others(world, said):
    pairs = re.findall(rf"head (\d+) holds head (\d+) of ({NAME})", said["pairs"])
    at = next(at for at, axis in enumerate(world.axes) if axis in {"head", "kv_head"})
    found = np.moveaxis(world.found, at, 0)
    return all(
        is_near(found[int(here)], np.moveaxis(world.should[name], at, 0)[int(there)])
        or is_near(found[int(here)], np.moveaxis(world.array_of(name), at, 0)[int(there)])
        for here, there, name in pairs
    )


# --- other arrays ---


def spread_out(array, shape):
    """An array as a step of this shape: by broadcasting, or heads side by side."""
    if array.ndim == len(shape) + 1:
        array = array.swapaxes(-3, -2).reshape(*array.shape[:-3], array.shape[-2], -1)
    return np.broadcast_to(array, shape)


def is_array(world, said, numbers):
    name, sign = said["name"], -1 if said["sign"] else 1
    if name == "what it should be":
        array = world.right
    elif name.startswith("what "):
        array = world.should[name.split()[1]]
    else:
        array = world.array_of(name)
    if said["transposed"]:
        array = array.swapaxes(-1, -2)
    return is_near(numbers, sign * spread_out(array, numbers.shape))


def the_difference_equals(world, said):
    return is_array(world, said, world.found - world.right)


def the_numbers_are(world, said):
    return is_array(world, said, world.found)


def given_in_place(world, said):
    """What the step's own arithmetic makes of another array."""
    other = world.array_of(said["other"])
    return is_near(world.found, world.remake(edits={said["name"]: lambda *_: other}))


# --- where wrong numbers are ---


def places_in(text):
    """head 1, query 0, key 4; key 1 and 4; query 3 to 9."""
    out: dict[str, list[int]] = {}
    more = {}
    for part in re.finditer(rf"({NAME}) (\d[\d, toand]*?)(?: and (\d+) more)?(?=, {NAME}|$)", text):
        axis, listed, others = part.groups()
        if " to " in listed:
            first, last = map(int, listed.split(" to "))
            out[axis] = list(range(first, last + 1))
        else:
            out[axis] = [int(each) for each in re.findall(r"\d+", listed)]
        more[axis] = int(others or 0)
    return out, more


def all_at(world, said):
    places, _ = places_in(said["places"])
    wrong = np.argwhere(world.differs)
    return bool(places) and all(
        set(wrong[:, world.axes.index(axis)]) == set(at) for axis, at in places.items()
    )


def only_at(world, said):
    places, more = places_in(said["places"])
    wrong = np.argwhere(world.differs)
    for axis, listed in places.items():
        has = set(map(int, wrong[:, world.axes.index(axis)]))
        if not set(listed) <= has or len(has) != len(listed) + more[axis]:
            return False
    return bool(places)


def where_distance(world, said):
    """Nearly all that differ are there, and nearly all that are there differ."""
    wrong = world.differs.reshape(-1, *world.differs.shape[-2:]).any(axis=0)
    queries, keys = wrong.shape
    away = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    away = np.abs(away) if said["measure"].startswith("|") else away
    first, *last = numbers_in(re.sub(r"or (more|less)", "", said["range"]))
    least, most = first, last[0] if last else first
    if "more" in said["range"]:
        most = np.inf
    if "less" in said["range"]:
        least = -np.inf
    inside = (away >= least) & (away <= most)
    able = np.isfinite(world.right) & (world.right != 0)
    able = able.reshape(-1, queries, keys).any(axis=0) | wrong
    return not wrong[~inside].any() and wrong[inside & able].mean() >= 0.98


# --- who sees whom ---


SIGNS = {(True, True): "■", (False, False): "·", (True, False): "+", (False, True): "−"}


def sights(world):
    """Who is seen and who should be; a key that has a vanishing weight counts as it should be."""
    if world.step == "masked_scores":
        top = world.found.max(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            seen = np.isfinite(world.found) & (world.found - top > -100)
        should = np.isfinite(world.right)
    else:
        seen, should = world.found > 0, world.right > 0
    return tuple(each.reshape(-1, *each.shape[-2:]) for each in (seen, should))


def who_sees_whom(world, said):
    """What is told of the rows, and the picture of one sheet."""
    if world.step == "attention_weights" and (world.found < 0).any():
        return False
    seen, should = sights(world)
    told, *picture = said["told"].strip().split("\n")
    if picture:
        *rows, legend = picture
        of = re.search(r"for each query(?: of ([^:]*))?:", legend)
        places = sheets_named(of[1], world)
        shown = {tuple(drawn_sight(seen[at], should[at])) for at in places}
        if shown != {tuple(rows)}:
            return False
    more, fewer = seen & ~should, should & ~seen
    return told_of_rows(told, more, fewer, world)


def drawn_sight(seen, should):
    rows = zip(seen, should, strict=True)
    return ["".join(SIGNS[bool(a), bool(b)] for a, b in zip(*row, strict=True)) for row in rows]


def sheets_named(words, world):
    """The sheets that head 1, or member 0, head 1, says; all of them where nothing is said."""
    sizes = world.found.shape[:-2]
    sheets = np.arange(int(np.prod(sizes))).reshape((1, 1, *sizes)[-2:])
    if words:
        for at, axis in enumerate(("member", "head")):
            if named := re.search(rf"{axis} (\d+)", words):
                sheets = sheets.take([int(named[1])], axis=at)
    return sheets.ravel()


def told_of_rows(told, more, fewer, world):
    """Every row that differs is told, and differs as it is told."""
    rows = {(int(at), int(query)) for at, query in np.argwhere((more | fewer).any(axis=-1))}
    count = int(fold(more | fewer, world).any(axis=-1).sum())
    if counted := re.fullmatch(r"in (\d+) of (\d+) rows, (.*)\.", told):
        keys = [int(fold(each, world).sum()) for each in (more, fewer)]
        return int(counted[1]) == count and same_counts(counted[3], *keys)
    if counted := re.fullmatch(r"in (all|\d+) rows(?: of ([^.]*?))? (the .*)\.", told):
        sheets = set(sheets_named(counted[2], world))
        number = int(counted[1]) if counted[1] != "all" else fold(more, world)[..., 0].size
        if {at for at, _ in rows} - sheets or number != count:
            return False
        return all(change_is(counted[3], more[at, query], fewer[at, query], query) for at, query in rows)

    told_rows = set()
    for part in told.rstrip(".").split("; "):
        (query,) = map(int, re.findall(r"^query (\d+)", part))
        change, _, heads = part.partition(" in ")
        named = re.split(r", | and ", heads)
        sheets = {at for each in named for at in sheets_named(each, world)}
        for at in sheets:
            changed = (more[at, query], fewer[at, query])
            if row_text(change) != tuple(set(np.flatnonzero(marks)) for marks in changed):
                return False
            told_rows.add((int(at), query))
    return told_rows == rows


def fold(marks, world):
    """One sheet for all members, or all heads, that see the same and should."""
    shape = (1, 1, *world.found.shape[:-2])[-2:]
    both = [each.reshape(*shape, -1) for each in sights(world)]
    marks = marks.reshape(*shape, *marks.shape[-2:])
    for at in (0, 1):
        if all((each == each.take([0], axis=at)).all() for each in both):
            marks = marks.take([0], axis=at)
    return marks


def same_counts(text, more, fewer):
    seen = re.search(r"(\d+) keys? (?:is|are) seen that should not be", text)
    hidden = re.search(r"(\d+)(?: keys?)? should be seen and (?:is|are) not", text)
    return int(seen[1] if seen else 0) == more and int(hidden[1] if hidden else 0) == fewer


def change_is(text, more, fewer, query):
    """The key 1 after the query is seen that should not be."""
    for marks, verb in ((more, "seen that should not be"), (fewer, "should be seen and")):
        said = [part for part in re.split(r" and (?=the keys? )", text) if verb in part]
        keys = {int(key) - int(query) for key in np.flatnonzero(marks)}
        if keys != (distances_in(said[0]) if said else set()):
            return False
    return True


def distances_in(text):
    if "that the query is" in text:
        return {0}
    if at := re.search(r"at ([+\-\d, and]+) from the query", text):
        return {int(each) for each in re.findall(r"[+-]?\d+", at[1])}
    if both := re.search(r"from (\d+) before to (\d+) after", text):
        return set(range(-int(both[1]), int(both[2]) + 1))
    span = re.search(r"keys? (\d+)(?: to (\d+))? (after|before) the query", text)
    first, last = int(span[1]), int(span[2] or span[1])
    sign = 1 if span[3] == "after" else -1
    low, high = sorted((sign * first, sign * last))
    return set(range(low, high + 1))


def row_text(text):
    sees = re.search(r"\bsees (keys?) (.*?)(?= and not | and does not |$)", text)
    misses = re.search(r"(?:and not|does not see) (keys?) (.*)$", text)
    return tuple(keys_in(each[2]) if each else set() for each in (sees, misses))


def keys_in(text):
    if span := re.fullmatch(r"(\d+) to (\d+)", text):
        return set(range(int(span[1]), int(span[2]) + 1))
    return {int(each) for each in re.findall(r"\d+", text)}


# --- what says nothing of numbers ---


def nothing_claimed(world, said):
    del world, said
    return True


def follows_from_right(world, said):
    """What reads the step was computed from the right numbers of it."""
    del said
    return world.is_written


CLAIMS = {
    rf"Every number is (?P<factor>{NUMBER}) times what it should be\.": every_number_times,
    rf"Every number is (?P<by>{NUMBER}) too (?P<way>large|small)\.": every_number_too,
    r"All (?P<axis>[\w ]+?) hold the right numbers of (?P<one>\w+) (?P<place>\d+)\.": all_hold_one,
    r"(?P<axis>\w+) i holds the right numbers of (?P<same>\w+) i (?P<sign>[+−]) (?P<by>\d+), "
    r"(?P<times>\d+) times\.": each_holds_another,
    r"The right numbers stand in other places: (?P<pairs>.*?)(?P<more>, …)?\.": some_hold_others,
    r"The right rows stand in other places: (?:in (?P<lead>.*?\d) (?=[a-z_]+ \d+ holds))?(?P<pairs>.*?)"
    r"(?:; (?P<rest>\d+) other rows? likewise)?\.": rows_hold_others,
    r"All of (?P<places>.*?) is 0\.": slices_are_zero,
    r"The numbers are right but for a factor by (?P<axis>\S+): (?P<factors>.*?)\.(?= |$)": a_factor_by_axis,
    rf"It is (?P<name>{NAME}) with .* exchanged, laid out anew\.": axes_exchanged,
    rf"It is (?P<name>{NAME}) viewed as \(head, batch, …\) where .*?\)\.": viewed_head_first,
    r"The right numbers of others stand here: (?P<pairs>.*?)\.": heads_of_others,
    rf"The difference equals (?P<sign>−?)(?P<name>what it should be|what {NAME} should be|{NAME})"
    r"(?P<transposed> transposed)?\.": the_difference_equals,
    rf"The numbers are (?P<sign>−?)(?:those of )?(?P<name>what it should be|what {NAME} should be|{NAME})"
    r"(?P<transposed> transposed)?\.": the_numbers_are,
    rf"It is what (?P<other>{NAME}) gives in place of (?P<name>{NAME})\.": given_in_place,
    r"All of them are at (?P<places>.*?)\.": all_at,
    r"They are at (?P<places>.*?) only\.": only_at,
    r"They are where (?P<measure>key − query|\|query − key\|) is (?P<range>.*?)\.": where_distance,
    r"Who sees whom differs: (?P<told>.*?\.(?:\n[■·+−]+)*(?:\n\(a row[^\n]*\))?)(?= |$)": who_sees_whom,
    r"What follows was computed from the right numbers: only those written down here are wrong\.": (
        follows_from_right
    ),
    r"No relation that was tried leads from the wrong numbers to what they should be\.": nothing_claimed,
    r"Not every pair of mistakes was tried, nor every number that might explain it: there are too many\.": (
        nothing_claimed
    ),
}


def false_sentences(world, text):
    """The sentences of a hint that the numbers do not bear out; those that no pattern takes are, too."""
    out = []
    while text := text.strip():
        for pattern, holds in CLAIMS.items():
            if said := re.match(pattern, text, re.DOTALL):
                if not holds(world, said):
                    out.append(said[0])
                text = text[said.end() :]
                break
        else:
            return [*out, f"nobody holds: {text}"]
    return out

"""A trace as a program: its givens, a line for each step that leads to what is shown, and what it prints.

Few numbers stand in the program, many in an .npz beside it. Steps that were edited are givens, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from io import TextIOBase
from math import isinf, isnan
from pathlib import Path
from typing import IO, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing import show
from attnctl.drawing.screen.text import token_text, visible
from attnctl.drawing.show import View
from attnctl.drawing.show.headline import facts
from attnctl.drawing.show.program.libraries import LIBRARIES, Library
from attnctl.drawing.show.program.ops import WRITERS, NotWrittenError, Writing
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import gradient_of, is_gradient, result_in
from attnctl.math.ops import Given, Unstated
from attnctl.record import Trace
from attnctl.store.files import open_output
from attnctl.store.npz import write_arrays

FEW = 400
"""Numbers that are written into a program which has a file beside it."""

MANY = 4000
"""Numbers of a program that stands alone."""

WIDEST = 100
"""Characters of a line: a comment that goes beyond has a line of its own."""


def write_numpy(trace: Trace, where: IO[Any] | str | Path, view: View | None = None) -> None:
    write_program(trace, where, LIBRARIES["numpy"], view or View())


def write_torch(trace: Trace, where: IO[Any] | str | Path, view: View | None = None) -> None:
    write_program(trace, where, LIBRARIES["torch"], view or View())


def write_jax(trace: Trace, where: IO[Any] | str | Path, view: View | None = None) -> None:
    write_program(trace, where, LIBRARIES["jax"], view or View())


def write_einsum(trace: Trace, where: IO[Any] | str | Path, view: View | None = None) -> None:
    write_program(trace, where, LIBRARIES["einsum"], view or View())


def write_program(trace: Trace, where: IO[Any] | str | Path, library: Library, view: View) -> None:
    """Write a trace to a stream, or to a file that may have an .npz beside it."""
    if isinstance(where, TextIOBase) or not isinstance(where, str | Path):
        where.write(LectureProgram(trace, library, view).text())
        return

    program = LectureProgram(trace, library, view, beside=Path(where).with_suffix(".npz").name)
    text = program.text()
    if program.in_file:
        with open_output(Path(where).with_suffix(".npz")) as stream:
            write_arrays(program.in_file, stream)
    with open_output(where) as stream:
        stream.write(text.encode("utf-8"))


@dataclass(eq=False, repr=False)
class LectureProgram:
    """What makes the program of a trace; `beside` is the name of the file that many numbers go to."""

    trace: Trace
    library: Library
    view: View
    beside: str = ""

    def __post_init__(self) -> None:
        self.wanted = self.list_wanted()
        self.steps = leading_to(self.wanted, self.trace)
        self.lines: list[str] = []
        self.made: dict[str, str] = {}
        """What lines before a step's own say, by their names."""
        self.helpers: dict[str, str] = {}
        self.in_file: dict[str, Array] = {}
        count = sum(self.trace[step.name].size for step in self.steps if self.is_given(step))
        self.is_large = bool(self.beside) and count > FEW
        if not self.beside and count > MANY:
            what = f"a program that stands alone holds {MANY:,}"
            raise AttnError(f"{count:,} given numbers: {what}; with -o run.py they are written to run.npz")

    def list_wanted(self) -> list[str]:
        """What is printed: the steps that are asked for; else the output, and gradients by givens."""
        if self.view.steps is not None or self.view.brief:
            return [step.name for step in show.steps_of(self.trace, self.view)]

        wanted = result_in(self.trace) or list(self.trace)[-1:]
        for name, step in self.trace.steps.items():
            gradient = gradient_of(name)
            if self.is_given(step) and gradient in self.trace and is_computed(self.trace, gradient):
                wanted.append(gradient)
        return wanted

    def is_given(self, step: Step) -> bool:
        return is_given(self.trace, step)

    # --- the text ---

    def text(self) -> str:
        """The whole program. Raises AttnError naming the steps that no line can be written for."""
        for step in self.steps:
            if self.is_given(step):
                self.write_given(step)
        self.lines.append("")

        problems: list[str] = []
        for step in self.steps:
            if not self.is_given(step):
                problems += self.write_step(step)
        if problems:
            raise AttnError(problems)

        # The opening comes last: it has the functions and the file that lines turned out to need.
        body = [*self.lines, "", *self.printing()]
        return "\n".join([*self.opening(), *body, ""])

    def opening(self) -> Iterator[str]:
        yield f"# {visible(self.trace.sentence or 'attention')}"
        if words := facts(self.trace):
            yield f"# {visible(', '.join(words))}"
        dtype = self.trace.config.get("dtype", "float64")
        if dtype != "float64":
            yield f"# The run rounds each step to {dtype}; here all is float64."
        yield ""
        imports = list(self.library.imports)
        if self.in_file:
            yield "from pathlib import Path"
            yield ""
            imports = [*dict.fromkeys(["import numpy as np", *imports])]  # NumPy reads the file
        yield from imports

        if self.library.opening:
            yield ""
            yield from self.library.opening

        for source in self.helpers.values():
            yield from ("", "", source.rstrip())
        if self.helpers:
            yield ""
        yield ""
        if self.in_file:
            yield f'given = np.load(Path(__file__).with_name("{self.beside}"))'

    def printing(self) -> Iterator[str]:
        if len(self.wanted) == 1:
            yield f"print({self.wanted[0]}.tolist())"
            return
        for name in self.wanted:
            yield f'print("{name}", {name}.tolist())'

    # --- givens ---

    def write_given(self, step: Step) -> None:
        array = self.trace[step.name]
        source = "edited" if step.name in self.trace.edited else step.formula
        axes = axes_words(step)
        about = f"{visible(source)}: {axes}" if source else axes
        if self.is_large and array.size > step_size_inline(array):
            self.write_line(step.name, self.put_beside(step.name, array), about)
            return

        labels = self.trace.tokens_along(step.name, 0) if array.ndim == 2 else None
        self.write_line(step.name, self.array_text(array, labels), about)

    def put_beside(self, name: str, array: Array) -> str:
        self.in_file[name] = array if is_exact(array) else array.astype(float)
        return self.library.loaded.format(name=name)

    def array_text(self, array: Array, labels: Sequence[str] | None = None) -> str:
        """The numbers as a nested list in the library's array; a row of tokens each has its token."""
        inf = f"{self.library.np}.inf"
        one_line = nested(array, inf)
        if len(one_line) <= WIDEST - 20 and labels is None:
            return self.library.array(one_line)
        rows = "\n".join(f"    {row}" for row in rows_of(array, inf, labels))
        return self.library.array(f"[\n{rows}\n]")

    # --- steps ---

    def write_step(self, step: Step) -> Iterator[str]:
        """Write the line of a step; yields what is wrong with it."""
        writer = WRITERS.get(type(step.op))
        if writer is None:
            kind = type(step.op).__name__
            yield f"{step.name}: a program has no line for {kind} yet; write .xlsx or .json instead"
            return
        lacking = [name for name in step.inputs if name not in self.trace]
        if lacking:
            yield f"{step.name}: no {', '.join(lacking)} in this dump, which it is made of"
            return
        try:
            text = writer(self.writing(step))
        except NotWrittenError as error:
            yield f"{step.name}: a program has no line for {error}"
            return
        self.write_line(step.name, text, f"{visible(step.formula)}: {axes_words(step)}")

    def writing(self, step: Step) -> Writing:
        arrays = tuple(self.trace[name] for name in step.inputs)
        return Writing(
            library=self.library,
            name=step.name,
            op=step.op,
            names=step.inputs,
            shapes=tuple(array.shape for array in arrays),
            axes=tuple(self.trace.steps[name].axes for name in step.inputs),
            shape=self.trace[step.name].shape,
            arrays=arrays,
            let=self.let,
            numbers=self.numbers,
            helper=partial(self.helper, library=self.library),
        )

    def write_line(self, name: str, text: str, about: str) -> None:
        line = f"{name} = {text}"
        first, *others = line.split("\n")
        if len(first) + len(about) + 4 <= WIDEST:
            self.lines += [f"{first}  # {about}", *others]
        else:
            self.lines += [f"# {about}", *line.split("\n")]

    def let(self, name: str, text: str) -> str:
        """A line before, under a name that no other line has."""
        name = self.free_name(name, text)
        if name not in self.made:
            self.made[name] = text
            self.lines.append(f"{name} = {text}")
        return name

    def numbers(self, name: str, array: Array) -> str:
        own = np.asarray(array)
        if not self.beside or own.size <= FEW:
            return self.let(name, self.array_text(own))

        text = str(own.tolist())
        name = self.free_name(name, text)
        if name not in self.made:
            self.made[name] = text
            self.lines.append(f"{name} = {self.put_beside(name, own)}")
        return name

    def free_name(self, name: str, text: str) -> str:
        number = 1
        free = name
        while free in self.trace or self.made.get(free, text) != text:
            number += 1
            free = f"{name}_{number}"
        return free

    def helper(self, name: str, source: str, library: Library) -> str:
        """A function, defined once; two of one name get different ones."""
        for sign, spelled in (("{np}", library.np), ("{axis}", library.axis), ("{keep}", library.keep)):
            source = source.replace(sign, spelled)

        text = source
        number = 1
        free = name
        while free in self.trace or self.helpers.get(free, text) != text:
            number += 1
            free = f"{name}_{number}"
            text = source.replace(f"def {name}(", f"def {free}(")
        self.helpers[free] = text
        return free


def leading_to(wanted: Sequence[str], trace: Trace) -> list[Step]:
    """The steps that these are made of, in order; what is given or edited is made of nothing."""
    needed = set(wanted)
    for step in reversed(list(trace.steps.values())):
        if step.name in needed and not is_given(trace, step):
            needed |= set(step.inputs)
    return [step for step in trace.steps.values() if step.name in needed]


def is_given(trace: Trace, step: Step) -> bool:
    """True where the numbers are written down: inputs, edits, what a dump does not say how to compute."""
    return isinstance(step.op, Given | Unstated) or step.name in trace.edited


def is_computed(trace: Trace, name: str) -> bool:
    return is_gradient(name) and not is_given(trace, trace.steps[name])


def step_size_inline(array: Array) -> int:
    """So many numbers of a step stay in a large program: a vector, but no matrix."""
    return 16 if array.ndim < 2 else 0


def axes_words(step: Step) -> str:
    return f"({', '.join(step.axes)})"


def is_exact(array: Array) -> bool:
    """True of truth values and whole numbers."""
    return array.dtype == bool or array.dtype.kind in "iu"


def rows_of(array: Array, inf: str, labels: Sequence[str] | None) -> Iterator[str]:
    """The rows of a nested list, a line each: matrices of many one below the other."""
    if array.ndim <= 2:
        for number, row in enumerate(array):
            numbers = nested(row, inf)
            if labels is None:
                yield f"{numbers},"
            else:
                label = token_text(labels[number])
                yield f"{numbers},  # {visible(label)}"
        return
    for part in array:
        yield "["
        yield from (f"    {row}" for row in rows_of(part, inf, None))
        yield "],"


def nested(array: Any, inf: str) -> str:
    """Numbers in every digit that they have, as nested lists."""
    if np.ndim(array):
        parts = ", ".join(nested(part, inf) for part in array)
        return f"[{parts}]"
    if is_exact(array):
        return str(array.item())
    value = float(array)
    if isinf(value):
        return inf if value > 0 else f"-{inf}"
    return "float('nan')" if isnan(value) else repr(value)

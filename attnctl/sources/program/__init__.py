"""A program of a person's own, carried out in a process of its own, and every attention in it.

What it computes is read, not what its variables are called: its expressions are recorded with their
operands (`instrument`, `record`) and linked (`graph`). Wherever two products have a softmax between them
there is an attention (`attention`, `join`), whose steps are told by structure and numbers (`steps`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_input, refuse_os_errors
from attnctl.base.words import plural
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math import Array
from attnctl.record import ATTENTION, Trace
from attnctl.sources.dump import Dump
from attnctl.sources.program.attention import Attention, AttentionFinder, without_backward
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import join
from attnctl.sources.program.layers import LayerReader
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.module import read_module
from attnctl.sources.program.named import Steps
from attnctl.sources.program.one_list import of_all_queries
from attnctl.sources.program.origin import Origins
from attnctl.sources.program.place import place_of
from attnctl.sources.program.run import (
    AS_IT_IS,
    WITHOUT_JIT,
    Recording,
    Surroundings,
    ending_of,
    record_program,
)
from attnctl.sources.program.steps import StepReader
from attnctl.sources.program.text import MAGIC, NOTEBOOK, code_of
from attnctl.sources.program.tiles import join_tiles
from attnctl.store.source import choose_trace, split_selection

MOST_OF_ONE_LINE = 24
"""Attentions of one expression that are judged: the first and the last ones."""


MOST_COMPARED = 8
"""Attentions of one expression that are compared to tell whether each reads other keys."""


class Left(NamedTuple):
    """An attention that was found and cannot be judged."""

    place: str
    reason: str


class RecordedProgram:
    """What was recorded of a program, and the attentions in it."""

    def __init__(
        self,
        recording: Recording,
        asked: dict[str, object],
        surroundings: Surroundings = AS_IT_IS,
    ) -> None:
        self.asked = asked
        self.surroundings = surroundings
        self.recording = recording
        self.graph = Graph(recording)
        self.origins = Origins(self.graph)
        self.meaning = Meaning(self.graph, self.origins)
        self.reader = StepReader(self.graph, self.origins, self.meaning, asked)
        self.left: list[Left] = []
        """Those that cannot be judged."""
        self.unread: list[tuple[int, str]] = []

    @cached_property
    def found(self) -> list[Attention]:
        """The attentions in order, those of a loop joined."""
        finder = AttentionFinder(self.graph, self.origins)
        with np.errstate(all="ignore"):
            forward = without_backward(finder.attentions())
            joined = join(self.graph, join_tiles(self.graph, forward))
            found = [of_all_queries(self.graph, attention) for attention in joined]
        self.unread = finder.unread
        for n, reason in finder.unread:
            self.left.append(Left(str(place_of(self.graph, n)), reason))
        return sorted(found, key=lambda attention: attention.output)

    @cached_property
    def steps(self) -> list[Steps]:
        """The attentions that are judged, as steps under our names."""
        out: list[Steps] = []
        with np.errstate(all="ignore"):
            judged = self.judged()
            self.reader.masks.look_around(judged)
            for attention in judged:
                try:
                    is_module = "num_heads" in attention.arguments
                    out.append(
                        read_module(self.reader, attention) if is_module else self.reader.read(attention)
                    )
                except (ValueError, KeyError, IndexError) as error:
                    place = str(place_of(self.graph, attention.output))
                    self.left.append(Left(place, f"its arrays do not fit together ({error})"))
            LayerReader(self.graph, self.meaning).settle(out)
        return out

    def run_again(self, texts: Mapping[str, str], seconds: float) -> RecordedProgram:
        """Carry it out once more, with files of it reading otherwise. Raises AttnError where that fails."""
        surroundings = self.surroundings._replace(texts=texts)
        recording = record_program(self.recording.path, seconds, surroundings)
        return RecordedProgram(recording, self.asked, surroundings)

    @property
    def variables(self) -> dict[str, Array]:
        """The arrays by the names that the program has for them, the latest of each name."""
        return {
            name: event.value
            for event in self.graph.events.values()
            for name in event.names
            if event.value is not None
        }

    def judged(self) -> list[Attention]:
        """The first and the last ones of each expression."""
        by_place: dict[tuple[int, int], list[Attention]] = defaultdict(list)
        for attention in self.found:
            sites = self.graph.events[attention.product].site, self.graph.events[attention.output].site
            by_place[sites].append(attention)
        half = MOST_OF_ONE_LINE // 2
        out: list[Attention] = []
        for attentions in by_place.values():
            out += attentions
            if len(attentions) > MOST_OF_ONE_LINE:
                out[-len(attentions) :] = [*attentions[:half], *attentions[-half:]]
        return sorted(out, key=lambda attention: attention.output)


JITTED = re.compile(r"\b(jit|vmap|pmap|scan|fori_loop|while_loop|cond|remat|checkpoint)\b")


def read_program(path: str, asked: dict[str, object], answers: bytes = b"") -> RecordedProgram:
    """Carry a program out and read its attentions; `answers` are what it reads as its input.

    What jax compiles or maps is not seen. Where nothing else is there, the program runs once more with
    jax carrying out what it would compile, and member after member: the same numbers, but for rounding.
    """
    as_it_is = AS_IT_IS._replace(answers=answers)
    program = RecordedProgram(record_program(path, surroundings=as_it_is), asked, as_it_is)
    if program.found or not any(map(JITTED.search, program.recording.files.values())):
        return program
    without_jit = as_it_is._replace(environment=WITHOUT_JIT)
    eager = RecordedProgram(record_program(path, surroundings=without_jit), asked, without_jit)
    return eager if eager.found else program


class Script(Dump):
    """The attentions of a file of Python, or of a notebook."""

    is_file = False
    is_program = True

    @cached_property
    def program(self) -> RecordedProgram:
        return read_program(self.path_alone, dict(self.beside.flags), self.answers)

    @cached_property
    def answers(self) -> bytes:
        """What the program reads as its input."""
        path = self.beside.stdin
        if not path:
            return b""
        with refuse_os_errors(f"--stdin {path}: cannot be read"), open_input(path) as stream:
            return stream.read()

    @cached_property
    def path_alone(self) -> str:
        """The file, without which of its attentions is meant."""
        return split_selection(self.path)[0]

    def traces(self) -> Sequence[Trace]:
        """A trace of each attention, or of the one that is meant, homework.py[1].

        Raises AttnError where there is none.
        """
        program = self.program
        traces = [self.trace_of(number, steps) for number, steps in enumerate(program.steps)]
        which = split_selection(self.path)[1]
        if traces and which is not None:
            traces = [choose_trace(traces, which, self.path_alone)]
        if not traces:
            raise AttnError(self.why_nothing())
        self.notes = tuple(self.remarks())
        return traces

    def trace_of(self, number: int, steps: Steps) -> Trace:
        place = place_of(self.program.graph, steps.attention.output)
        trace = trace_of_arrays(steps.arrays)
        header = {ATTENTION: {"number": number, "at": str(place)}}
        return Trace(trace.steps, trace.arrays, {**trace.header, **header})

    @property
    def is_judged_whole(self) -> bool:
        return not self.program.left

    @property
    def summary(self) -> str:
        """How many attentions were found, and how many judged."""
        program = self.program
        judged = len(program.steps)
        found = max(len(program.found) + len(program.unread), judged + len(program.left))
        return f"{plural(found, 'attention')} found, {judged} judged"

    def why_nothing(self) -> str:
        program = self.program
        recording = self.program.recording
        if recording.ending:
            return ending_of(recording)
        if program.left:
            left = program.left[0]
            found = plural(len(program.left), "attention")
            return f"{self.path_alone}: {found} found, none judged; {left.place}: {left.reason}"
        more = ""
        if recording.processes:
            more = f"; {plural(recording.processes, 'process')} that it began were not seen"
        looked_for = "a product of Q and K, a softmax, and a product with V"
        return f"{self.path_alone}: no attention found, which is {looked_for}{more}"

    def remarks(self) -> list[str]:
        """What a person should know of how the program was read."""
        program = self.program
        recording = self.program.recording

        remarks = []
        if recording.ending:
            remarks.append(
                f"The program ended early ({ending_of(recording)}); what came before that was judged."
            )
        if recording.processes:
            remarks.append(f"Not seen: {plural(recording.processes, 'process')} that the program began.")
        if recording.questions:
            why = "check gives a program nothing to read; write the values there, or give --stdin FILE"
            if self.beside.stdin:
                why = f"{self.beside.stdin} has no more lines"
            times = plural(recording.questions, "time")
            remarks.append(f"input() was answered with an empty line {times}: {why}.")

        magics = [line for line in lines_of(self.path_alone) if line.lstrip().startswith(MAGIC)]
        if magics:
            words = ", ".join(line.partition(MAGIC)[2] for line in magics)
            remarks.append(f"Left out, as only a kernel knows them: {words}.")
        remarks += [
            f"Not judged: the attention at {left.place}, as {left.reason}." for left in program.left
        ]
        return remarks


def lines_of(path: str) -> list[str]:
    if not path.endswith(NOTEBOOK):
        return []
    return [line for cell in code_of(path) for line in cell]

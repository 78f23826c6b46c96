"""Wrong kernels as files, and someone's own test run on each: which it kills, which it lets pass."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, NamedTuple

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_own, refuse_os_errors
from attnctl.base.programs import Said, begin, kill
from attnctl.base.words import all_of, did_you_mean
from attnctl.mistakes import CATALOGUE
from attnctl.store.files import is_special, json_text, open_output, write_text
from attnctl.verbs.mutants.kernel import OPTIONS, Kernel, default_of, kernel_options, make_mutants
from attnctl.verbs.mutants.serving import make_serving
from attnctl.verbs.mutants.survey import Inputs, KernelOutcome, Progress, ask, tell

FOLDER = "attnctl-mutants"
KERNEL = "{kernel}"
RESULTS = "results.json"
RIGHT_ONE = "right"

OF_TORCH = '''

import torch


def array(x):
    """The numbers of a tensor; of bfloat16, which NumPy has not, as float32."""
    if not torch.is_tensor(x):
        return x
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()
'''


@dataclass(frozen=True)
class OwnTest:
    """A test command with {kernel} in it, and the kernels that it is run on."""

    words: tuple[str, ...]
    options: frozenset[str] = frozenset()
    """What the function that is tested takes beside Q, K and V."""
    names: Mapping[str, str] | None = None
    """Its names of parameters, by ours."""
    library: str = "numpy"
    backward: bool = False
    folder: Path = Path(FOLDER)
    jobs: int = 1
    timeout: float = 300.0

    def problems(self) -> Iterator[str]:
        if not any(KERNEL in word for word in self.words):
            yield f"write {KERNEL} where the file of a kernel goes: -- env KERNEL={KERNEL} pytest -q"
        for name in sorted(self.options - {*OPTIONS}):
            near = did_you_mean(name, [*OPTIONS], f"there are {all_of([*OPTIONS])}")
            yield f"--with {name}: no option of a kernel; {near}"

    def takes(self, meant: str) -> bool:
        """Whether the function that is tested takes what is of this kind of attention."""
        options = kernel_options(meant)
        return options is not None and options <= self.options

    def path(self, name: str) -> Path:
        return self.folder / name

    def file(self, kernel: Kernel) -> str:
        """The text of a kernel's file, called as the function that is tested is."""
        kernel = replace(kernel, options=self.options | kernel.options)
        right = Kernel(self.options, backward=self.backward)
        is_torch = self.library == "torch"
        if not is_torch and not self.names:
            return kernel.text(right)

        as_array = "array({})" if is_torch else "{}"
        parameters = [*kernel.arrays]
        passed = [as_array.format(name) for name in kernel.arrays]
        for parameter in kernel.parameters:
            theirs = (self.names or {}).get(parameter, parameter)
            parameters.append(f"{theirs}={default_of(parameter)}")
            passed.append(f"{parameter}={as_array.format(theirs)}")

        result = f"kernel({', '.join(passed)})"
        if is_torch and self.backward:
            result = f"tuple(torch.tensor(x).to(q) for x in {result})"
        elif is_torch:
            result = f"torch.tensor({result}).to(q)"
        return (
            f"{kernel.text(right, 'kernel')}{OF_TORCH if is_torch else ''}\n\n"
            f"def {kernel.called}({', '.join(parameters)}):\n    return {result}\n"
        )


class Survivor(NamedTuple):
    """A wrong kernel that a test lets pass."""

    mutant: Kernel
    inputs: Inputs
    """Inputs that show what is wrong."""
    outcome: KernelOutcome
    """What it gives on these."""


@dataclass(frozen=True)
class Score:
    test: OwnTest
    mutants: tuple[Kernel, ...]
    survivors: tuple[Survivor, ...]
    equivalent: Mapping[str, str]
    """What no test could kill, and why; it is not counted."""

    @property
    def agrees(self) -> bool:
        return not self.survivors

    def to_dict(self) -> dict[str, Any]:
        survivors = []
        for mutant, inputs, outcome in self.survivors:
            survivors.append(
                {
                    "name": mutant.name,
                    **mutant.said,
                    "relative": outcome.to_dict()["relative"],
                    "input": inputs.words(),
                    "file": str(self.test.path(f"{mutant.name}.npz")),
                    "kernel": str(self.test.path(f"{mutant.name}.py")),
                }
            )

        return {
            "schema": "attnctl.mutants-of-a-test/1",
            "command": list(self.test.words),
            "mutants": len(self.mutants),
            "killed": len(self.mutants) - len(self.survivors),
            "survivors": survivors,
            "equivalent": dict(self.equivalent),
        }

    __str__ = Displayed.__str__
    _repr_mimebundle_ = Displayed._repr_mimebundle_


def mutants_for(test: OwnTest) -> list[Kernel]:
    """The wrong kernels that ask for no more than the function takes."""
    made, _ = make_mutants(backward=test.backward)
    if not test.backward:
        made += make_serving()
    return [mutant for mutant in made if mutant.options <= test.options]


def score_test(test: OwnTest, progress: Progress | None = None) -> Score:
    """Run a test on every wrong kernel. Raises AttnError where the right one fails it."""
    raise_all(test.problems())
    mutants = mutants_for(test)
    files = {RIGHT_ONE: test.file(Kernel(test.options, backward=test.backward))}
    files |= {mutant.name: test.file(mutant) for mutant in mutants}
    with refuse_os_errors(test.folder):
        test.folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_text(text, test.path(f"{name}.py"))
    passing = run_all(test, files, progress)

    # What passes is a survivor only where some inputs show that it is wrong.
    survivors = []
    indistinct = []
    for mutant in mutants:
        if not passing[mutant.name]:
            continue
        shown = tell(mutant)
        if shown:
            survivors.append(Survivor(mutant, *shown))
        else:
            indistinct.append(mutant)
    survivors.sort(key=lambda survivor: -survivor.outcome.relative)
    for survivor in survivors:
        save(test.path(f"{survivor.mutant.name}.npz"), survivor.mutant, survivor.inputs)

    not_counted = {}
    for mistake in CATALOGUE:
        if mistake.equivalent and test.takes(mistake.meant):
            not_counted[mistake.name] = mistake.equivalent
    for mutant in indistinct:
        not_counted[mutant.name] = "nothing tried tells it from the right one"
    counted = tuple(mutant for mutant in mutants if mutant not in indistinct)
    return Score(test, counted, tuple(survivors), not_counted)


# --- the runs ---


def run_all(test: OwnTest, files: Mapping[str, str], progress: Progress | None) -> dict[str, bool]:
    """Whether each kernel passes; an interrupted run goes on, unless a file of the test has changed."""
    path = test.path(RESULTS)
    if is_special(path):
        raise AttnError(f"{path}: it is a pipe or a device; remove it")
    keys = keys_of(test, files)
    results = kept(path)

    if not results.get(keys[RIGHT_ONE]):
        passes, said = run_one(test, RIGHT_ONE, [])
        if not passes:
            raise AttnError(f"{test.folder / RIGHT_ONE}.py: the right kernel fails your test: {said}")
        results[keys[RIGHT_ONE]] = True

    left = [name for name in files if keys[name] not in results]
    running: list[Popen[bytes]] = []
    with ThreadPoolExecutor(test.jobs) as pool:
        begun = {pool.submit(run_one, test, name, running): name for name in left}
        first = len(files) - len(left) + 1
        try:
            for done, future in enumerate(as_completed(begun), first):
                results[keys[begun[future]]] = future.result()[0]
                write_text(json_text(results, indent=1), path)
                if progress:
                    progress(done, len(files))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*running]:
                kill(process)

    path.unlink(missing_ok=True)
    return {name: results[key] for name, key in keys.items()}


def keys_of(test: OwnTest, files: Mapping[str, str]) -> dict[str, str]:
    """A key for each kernel, of its file, the command, and when the files of that were changed."""
    own_files = [Path(word) for word in test.words]
    times = [str(file.stat().st_mtime_ns) for file in own_files if file.is_file()]
    words = "\x1f".join([*test.words, *times])
    return {name: sha256(f"{words}\x1f{text}".encode()).hexdigest() for name, text in files.items()}


def kept(path: Path) -> dict[str, bool]:
    """What is known of kernels by their files; nothing where there is no such file, or another."""
    try:
        with open_own(path) as stream:
            known = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def run_one(test: OwnTest, name: str, running: list[Popen[bytes]]) -> tuple[bool, str]:
    """Run the test on a kernel: whether it passes, and the last that it said. What hangs is killed."""
    file = str(test.folder / f"{name}.py")
    said = Said()
    with refuse_os_errors(test.words[0]):
        process = begin([word.replace(KERNEL, file) for word in test.words], said, said)

    running.append(process)
    try:
        process.wait(test.timeout)
    except TimeoutExpired:
        passes = False
    else:
        passes = process.returncode == 0
    finally:
        kill(process)  # and what it left running
        running.remove(process)

    lines = [line for line in said.end().decode("utf-8", "replace").split("\n") if line.strip()]
    return passes, lines[-1] if lines else "it said nothing"


def save(path: Path, mutant: Kernel, inputs: Inputs) -> None:
    """Write the arguments of a kernel that show what is wrong with it, and what is right."""
    arguments, right = ask(inputs, mutant.options)
    names = ("d_q", "d_k", "d_v") if mutant.backward else ("output",)
    with open_output(path) as stream:
        arrays: dict[str, Any] = arguments | dict(zip(names, right, strict=True))
        np.savez(stream, **arrays)

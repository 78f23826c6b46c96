"""Imports point one way, the math imports NumPy alone, and the start is light."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "attnctl"

LAYERS = [
    {"base"},
    {"math"},
    {"record"},
    {"inputs.config", "inputs.arrays"},
    {"store", "drawing", "inputs", "models"},
    {"drawing.show"},
    {"sources"},
    {"evidence"},
    {"mistakes"},
    {"verbs"},
    {"pages"},
    {"api", "formats", "options", "traces"},
    {"testing"},
    {"cli"},
    {"pytest_plugin"},
]
"""Each layer may import itself and those above it in this list."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(module):
    """The layer of a dotted name: that of its longest prefix that has one."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(i for prefix in prefixes for i, layer in enumerate(LAYERS) if prefix in layer)


@cache
def nodes(path):
    """The imports, classes and constants of a file, anywhere in it."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Constant)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def imports(path):
    """Every module that a file imports, anywhere in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                [f"{node.module}.{a.name}" for a in node.names]
                if node.module == "attnctl"
                else [node.module]
            )


def dotted(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def test_imports_point_one_way():
    wrong = [
        f"{dotted(path)} imports {name}"
        for path in modules()
        if path.parent != PACKAGE or path.stem not in {"__init__", "__main__"}
        for name in imports(path)
        if name.startswith("attnctl.")
        if layer_of(name.removeprefix("attnctl.")) > layer_of(dotted(path))
    ]
    assert wrong == []


BELOW_THE_API = ("attnctl.inputs.plan", "attnctl.store", "attnctl.evidence")


def test_commands_read_flags_and_call_the_api():
    """What is to be computed, files and evidence are the library's: no command assembles them again."""
    wrong = [
        f"{path.name} imports {name}"
        for path in (PACKAGE / "cli").glob("*.py")
        for name in imports(path)
        if f"{name}.".startswith(tuple(f"{each}." for each in BELOW_THE_API))
    ]
    assert wrong == []


def named(path):
    """Every module that a file imports, lazily and for types too, or names as text to import later."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield str(node.module)


def circles(graph):
    """Modules that lead back to themselves, each with the others on its way (Tarjan 1972)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            ring = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.extend([sorted(ring)] if len(ring) > 1 else [])

    for module in graph:
        if module not in number:
            visit(module)
    return found


def test_there_are_no_circles():
    files = {f"attnctl.{dotted(path)}".removesuffix(".__init__"): path for path in modules()}
    packages = {name for name, path in files.items() if path.stem == "__init__"}
    graph = {}
    for module, path in files.items():
        others = {name for name in named(path) if name in files and name != module}
        # `from package import module` names both: what is meant is the module
        inner = {name.rpartition(".")[0] for name in others}
        graph[module] = {name for name in others if name not in packages & inner and name != "attnctl"}
    assert circles(graph) == []


def test_a_circle_is_found():
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [["a", "b", "c"]]


def test_the_math_imports_numpy_alone():
    files = [path for path in modules() if dotted(path).startswith("math.") and "engine" not in path.parts]
    assert files
    outside = {name.split(".")[0] for path in files for name in imports(path)}
    assert outside - set(sys.stdlib_module_names) <= {"numpy", "attnctl"}


def imported_by(*args):
    """The modules a command line leaves imported in its process."""
    code = (
        "import sys; from attnctl.cli.program import program; assert program(sys.argv[1:]) in (0, 2);"
        "sys.stderr.write('\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stderr.splitlines()} | set(done.stderr.splitlines())


HEAVY = {"numpy", "rich", "pydantic", "yaml", "pygments", "importlib.metadata"}
ROOMS = ("inputs.arrays.reader", "inputs.arrays.layout", "store.source", "models", "evidence", "mistakes")
ROOMS += ("math.engine.tiles", "math.ops.models", "drawing.screen.heat")
BROUGHT = subprocess.check_output(
    [sys.executable, "-c", "import numpy, sys; print(*sys.modules)"], text=True
).split()
"""Older versions of NumPy import more themselves."""
OTHERS = {"attnctl.verbs", "attnctl.pages", *(f"attnctl.{room}" for room in ROOMS)}
OTHERS |= {"numpy.random", "hashlib", "random", "shlex", "typer"} - set(BROUGHT)
"""A sentence with drawn weights needs none of these: together they take as long as attention itself."""

CAUSAL = str(PACKAGE.parent / "samples" / "variants" / "causal.json")
OF_OTHER_DUMPS = {
    "zipfile",
    "orjson",
    "attnctl.store.folder",
    "attnctl.math.ops.lookups",
    "attnctl.math.ops.delta",
}
"""What reads archives and folders, or trained models; a dump of ours in JSON needs none of it."""


@pytest.mark.parametrize(
    ("args", "without"),
    [
        (["--version"], HEAVY | {"typer"}),
        (["--help"], HEAVY),
        (["run", "--help"], HEAVY),
        (["run", "--no-such-option"], HEAVY),
        (["run", "I love AI"], OTHERS | HEAVY - {"numpy", "rich"}),
        (["run", "I love AI", "--json"], OTHERS | HEAVY - {"numpy"}),
        (["check", CAUSAL], {"attnctl.mistakes", *OF_OTHER_DUMPS}),
        (["diff", CAUSAL, CAUSAL], {"attnctl.inputs.plan", *OF_OTHER_DUMPS}),
        (["explain", CAUSAL, "output[0,0]"], OF_OTHER_DUMPS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs_and_no_more(args, without):
    assert not imported_by(*args) & without


def test_a_run_imports_few_modules():
    """Beside NumPy, a start is as long as the list of what it imports."""
    ours = {name for name in imported_by("run", "I love AI") if name.split(".")[0] == "attnctl"}
    assert len(ours) <= 65, sorted(ours)


def test_importing_attnctl_imports_no_numpy():
    code = "import attnctl, sys; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_no_two_classes_have_one_name():
    """But the trace of the API, which is the one that has been read or run, with its views."""
    names = {}
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, []).append(dotted(path))
    assert {name: places for name, places in names.items() if len(places) > 1} == {
        "Trace": ["record.__init__", "traces"]
    }

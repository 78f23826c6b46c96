"""Which call handed an operand to the function that used it: where another one should have been given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from attnctl.sources.program.graph import Graph
from attnctl.sources.program.record import Caller

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Chooser = Callable[[ast.expr], ast.expr | None]

MOVED = frozenset({"T", "mT", "H"})
MOVING = frozenset({"t", "transpose", "swapaxes", "permute", "numpy", "detach", "float", "double", "to"})
CALLED_BY_OBJECT = frozenset({"forward", "__call__"})
"""Methods that run where an object is called as a function is."""

FARTHEST = 8
"""Functions through which one thing is handed on."""


class Passed(NamedTuple):
    """An expression that a call passed, and the site of that call."""

    call: int
    expression: ast.expr
    name: str
    """Of the parameter that it was passed for."""
    depth: int
    """How many functions out of the expression that used it."""


class Handing:
    """Follows parameters out of functions, to the calls that gave them, by the text of the program."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def sites(self) -> dict[tuple[object, ...], int]:
        """The number of each site by where it stands; asked for only where something is wrong."""
        return {(site.file, *spot_of_site(site)): n for n, site in enumerate(self.graph.sites)}

    # --- out of functions ---

    def passed(self, n: int, choose: Chooser, farthest: int = FARTHEST) -> Passed | None:
        """The outermost call that passed on an operand of an event; None for what no call passed.

        `choose` tells which part of the event's expression is meant; no more functions are left than
        `farthest` says.
        """
        node = self.expression_at(self.graph.events[n].site)
        operand = None if node is None else choose(node)
        return None if operand is None else self.follow(n, operand, farthest)

    def follow(self, n: int, operand: ast.expr, farthest: int) -> Passed | None:
        """From an operand of an event outwards, as long as it is a parameter."""
        callers = self.graph.events[n].callers
        depth = 0
        out: Passed | None = None
        while depth < farthest and depth + 1 < len(callers):
            name = variable_in(operand)
            function = self.function_at(callers[depth])
            if name is None or function is None or name not in parameters(function):
                break
            call = self.call_at(callers[depth + 1], function)
            if call is None:
                break
            depth += 1
            site = self.sites.get((callers[depth].file, *spot(call)))
            if site is None:
                break
            argument = argument_for(call, function, name)
            out = Passed(site, call if argument is None else argument, name, depth)
            if argument is None:
                break
            operand = argument
        return out

    def made_in_function(self, passed: Passed, n: int) -> int | None:
        """The site where what was passed was made, in the function that passed it: pos = arange(n)."""
        caller = self.graph.events[n].callers[passed.depth]
        function = self.function_at(caller)
        if function is None or not isinstance(passed.expression, ast.Name):
            return None
        made = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and node.lineno < caller.line
            and any(isinstance(each, ast.Name) and each.id == passed.expression.id for each in node.targets)
        ]
        return self.sites.get((caller.file, *spot(made[-1].value))) if made else None

    def made_for_call(self, n: int, call: int) -> int | None:
        """Where the function that makes a call made the last variable that it passes: pos of rope(q, pos).

        None where that is no variable of its own.
        """
        node = self.expression_at(call)
        if not isinstance(node, ast.Call) or len(node.args) < 2 or len(self.graph.events[n].callers) < 2:
            return None
        return self.made_in_function(Passed(call, node.args[-1], "", 1), n)

    def returned_as_it_is(self, n: int) -> int | None:
        """The variable in the return statement by which a function gives what it put together."""
        site = self.graph.site(n)
        function = self.function_at(Caller(site.file, site.line))
        target = site.target.partition("[")[0].strip()  # out[:, columns] is written into out
        if function is None or isinstance(function, ast.Lambda):
            return None
        returned = [node.value for node in function.body if isinstance(node, ast.Return)]
        for value in returned:
            if isinstance(value, ast.Name) and value.id == target:
                return self.sites.get((site.file, *spot(value)))
        return None

    def module_made(self, n: int, kind: str) -> int | None:
        """The call that made the module which gave an array: self.softmax = nn.Softmax(dim=1)."""
        site = self.graph.site(n)
        for node in ast.walk(self.graph.tree(site.file)):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            target = node.targets[0]
            name = getattr(target, "attr", getattr(target, "id", ""))
            if name in site.words and called_name(node.value) == kind:
                return self.sites.get((site.file, *spot(node.value)))
        return None

    # --- the text ---

    def expression_at(self, site: int) -> ast.expr | None:
        """The expression of a site."""
        where = self.graph.sites[site]
        for node in ast.walk(self.graph.tree(where.file)):
            if isinstance(node, ast.expr) and spot(node) == spot_of_site(where):
                return node
        return None

    def function_at(self, caller: Caller) -> Function | None:
        """The innermost function that a line stands in."""
        inside = [
            node
            for node in ast.walk(self.graph.tree(caller.file))
            if isinstance(node, Function) and node.lineno <= caller.line <= (node.end_lineno or 0)
        ]
        return min(inside, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)

    def call_at(self, caller: Caller, function: Function) -> ast.Call | None:
        """The call on a line that carried out a function: by its name, or the only one that there is."""
        calls = [
            node
            for node in ast.walk(self.graph.tree(caller.file))
            if isinstance(node, ast.Call) and node.lineno <= caller.line <= (node.end_lineno or 0)
        ]
        name = getattr(function, "name", "")
        named = [call for call in calls if called_name(call) == name]
        if named:
            return named[0]
        if name in CALLED_BY_OBJECT:
            return next((call for call in calls if may_call(call, function)), None)
        return calls[0] if len(calls) == 1 else None


def spot_of_site(site: object) -> tuple[int, int, int, int]:
    return tuple(getattr(site, part) for part in ("line", "column", "end_line", "end_column"))


def spot(node: ast.expr) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def may_call(call: ast.Call, function: Function) -> bool:
    """True if a call passes as many arguments as a method takes, its defaults left out or not."""
    passed = len(call.args) + len(call.keywords)
    most = len(parameters(function)) - 1  # self
    defaults = len(function.args.defaults) + sum(each is not None for each in function.args.kw_defaults)
    return most - defaults <= passed <= most


def parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def defaults_of(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """The parameters that have a default, each with it."""
    positional = [*arguments.posonlyargs, *arguments.args]
    behind = positional[len(positional) - len(arguments.defaults) :]
    for parameter, default in zip(behind, arguments.defaults, strict=True):
        yield parameter.arg, default
    for parameter, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword is not None:
            yield parameter.arg, keyword


def argument_for(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for a parameter; None where * or ** hide it, or its default is taken."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positions = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if name not in positions or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    is_method = positions[:1] == ["self"]
    number = positions.index(name) - is_method
    return call.args[number] if 0 <= number < len(call.args) else None


def variable_in(operand: ast.expr) -> str | None:
    """The variable that an operand is, moved perhaps: w of w.T, of w[h]; None of p["w"], which chose."""
    while True:
        match operand:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=value, attr=attr) if attr in MOVED:
                operand = value
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVING:
                operand = value
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Constant):
                operand = value
            case _:
                return None

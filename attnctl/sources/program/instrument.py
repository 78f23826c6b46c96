"""Rewrites a program so that every expression that may give an array also hands its value to a recorder.

    softmax(x @ w.T)   becomes   _flow(5, _flow.called(5, softmax)(
                                     _flow(4, _flow(0, x) @ _flow(2, _flow(1, w).T))))
    s[m] = -inf        becomes   _flow.touch(6, s)[m] = -inf
    s /= t             becomes   s /= _flow(7, t); _flow.after(8, s)

A value goes through `_flow` and comes out as it went in, and nothing is called in another way than before:
super(), locals(), decorators, generators and tracebacks stay as they are. The number is that of the
expression's `Site`, which says where it stands.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

NAME = "_flow"
"""What the recorder is called in the program; it stands among the builtins."""


class Site(NamedTuple):
    """An expression of the program, or a statement that changes an array in place."""

    file: str
    line: int
    column: int
    """In bytes, from 0, as Python counts them; so is `end_column`."""
    end_line: int
    end_column: int
    what: str
    """`@`, `/`, `call softmax`, `attr T`, `item`, `name x`, `part x`, `list`, `in place`."""
    parts: tuple[int, ...]
    """The sites of its operands, in order."""
    words: tuple[str, ...]
    """The names and texts in it: of np.einsum("bid,bjd->bij", q, k) np, einsum, "bid,bjd->bij", q, k."""
    target: str
    """The variables that it is assigned to, as they are written; "" where there are none."""


WRAPPED = (
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.Name,
    ast.ListComp,
    ast.DictComp,
    ast.List,
    ast.IfExp,
)

AS_THEY_ARE = frozenset(
    [
        "super",
        "locals",
        "globals",
        "vars",
        "dir",
        "eval",
        "exec",
        "print",
        "len",
        "range",
        "isinstance",
        "issubclass",
        "type",
        "id",
        "hash",
        "repr",
    ]
)
"""Calls that look at the frame they are in, or whose value is no array."""

COUNTS_REFERENCES = "getrefcount"

COMPILED = ("jit", "njit", "script", "compile", "vectorize", "guvectorize", "kernel", "stencil")
"""Decorators that read or compile the function below them: its lines have to stay as they are."""

OPERATORS = {"MatMult": "@", "Mult": "*", "Div": "/", "Add": "+", "Sub": "-", "USub": "neg", "Pow": "**"}


class Rewriter(ast.NodeTransformer):
    """Rewrites one file; its sites are appended to those of the program."""

    def __init__(self, file: str, sites: list[Site]) -> None:
        self.file = file
        self.sites = sites
        self.target = ""
        self.is_part = False
        """True inside `x[…]` and `x.…`, where x is only looked into."""

    def visit(self, node: ast.AST) -> ast.AST:
        is_read = isinstance(getattr(node, "ctx", None), (ast.Load, type(None)))
        if isinstance(node, WRAPPED) and is_read:
            return self.wrap(node)
        result: ast.AST = super().visit(node)
        return result

    def wrap(self, node: ast.expr) -> ast.expr:
        """The expression with its parts wrapped, and itself."""
        outside, self.is_part = self.is_part, isinstance(node, (ast.Subscript, ast.Attribute))
        number = self.add_site(node, describe(node, is_part=outside))
        extra = []
        if isinstance(node, ast.ListComp | ast.DictComp):
            extra = [names_read(node)]

        if isinstance(node, ast.Call):
            is_plain = is_left_alone(node.func)
            self.visit_call(node)
            parts = outermost(node)
            if is_plain:
                self.is_part = outside
                return node
            node.func = self.call("called", number, node.func)
        else:
            self.generic_visit(node)
            parts = outermost(node)

        self.is_part = outside
        self.sites[number] = self.sites[number]._replace(parts=tuple(parts))
        return ast.copy_location(self.call("", number, node, *extra), node)

    def visit_call(self, node: ast.Call) -> None:
        """Wrap what a call is given, and the object of a method, but not the method."""
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit_expression(node.func.value)
        self.is_part = False
        node.args = [self.visit_expression(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit_expression(keyword.value)

    def visit_expression(self, node: ast.expr) -> ast.expr:
        result = self.visit(node)
        assert isinstance(result, ast.expr)
        return result

    # --- statements ---

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.target = ", ".join(map(ast.unparse, node.targets))
        node.value = self.visit_expression(node.value)
        node.targets = [self.mark_changed(target, node) for target in node.targets]
        self.target = ""
        return node

    def mark_changed(self, target: ast.expr, node: ast.Assign) -> ast.expr:
        """Of `s[m] = …` the array s, which the statement changes."""
        if isinstance(target, ast.Subscript):
            number = self.add_site(node, "in place", outermost(node.value))
            target.value = self.call("touch", number, target.value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            target.elts = [self.mark_changed(element, node) for element in target.elts]
        return target

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        is_whole = isinstance(node.target, ast.Name)
        what = "in place"
        if is_whole:
            what = f"in place {operator_of(node.op)}"
        self.target = ast.unparse(node.target)
        number = self.add_site(node, what)
        node.value = self.visit_expression(node.value)
        self.target = ""
        self.sites[number] = self.sites[number]._replace(parts=tuple(outermost(node.value)))

        if isinstance(node.target, ast.Subscript):
            node.target.value = self.call("touch", number, node.target.value)
            return node
        if isinstance(node.target, ast.Attribute):
            # Looked up again it could be a property, asked twice; its numbers will show the change.
            return node
        again = ast.Name(node.target.id, ast.Load())
        return [node, ast.copy_location(ast.Expr(self.call("after", number, again)), node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            self.target = ast.unparse(node.target)
            node.value = self.visit_expression(node.value)
            self.target = ""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Its body; decorators, defaults and annotations stay as they are."""
        if not is_compiled(node.decorator_list):
            node.body = self.visit_body(node.body)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = self.visit_body(node.body)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Its guard and body; a pattern is no expression, whatever stands in it."""
        if node.guard is not None:
            node.guard = self.visit_expression(node.guard)
        node.body = self.visit_body(node.body)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # before Python 3.12 its columns are those of another text

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        return node

    def visit_body(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in body:
            made: Any = self.visit(statement)
            out += made if isinstance(made, list) else [made]
        return out

    # --- sites ---

    def add_site(self, node: ast.expr | ast.stmt, what: str, parts: Iterable[int] = ()) -> int:
        site = Site(
            file=self.file,
            line=node.lineno,
            column=node.col_offset,
            end_line=node.end_lineno or node.lineno,
            end_column=node.end_col_offset or 0,
            what=what,
            parts=tuple(parts),
            words=tuple(dict.fromkeys(words_in(node))),
            target=self.target,
        )
        self.sites.append(site)
        return len(self.sites) - 1

    def call(self, method: str, number: int, *arguments: ast.expr) -> ast.Call:
        recorder: ast.expr = ast.Name(NAME, ast.Load())
        if method:
            recorder = ast.Attribute(recorder, method, ast.Load())
        return ast.Call(recorder, [ast.Constant(number), *arguments], [])


def instrument(text: str, file: str, sites: list[Site]) -> ast.Module:
    """The tree of a program that hands on what it computes. Raises SyntaxError for what is no Python."""
    tree = ast.parse(text, file)

    head = 0  # what has to stay first: the docstring, and what is taken from the future
    for statement in tree.body:
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring(statement) or is_future):
            break
        head += 1

    tree.body[head:] = Rewriter(file, sites).visit_body(tree.body[head:])
    return ast.fix_missing_locations(tree)


# --- what a node is ---


def describe(node: ast.expr, *, is_part: bool) -> str:
    match node:
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            return operator_of(op)
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return f"call {name}"
        case ast.Attribute(attr=name):
            return f"attr {name}"
        case ast.Name(id=name):
            return f"{'part' if is_part else 'name'} {name}"
        case ast.ListComp() | ast.DictComp():
            return "list"
        case ast.Subscript():
            return "item"
    return type(node).__name__.lower()


def operator_of(operator: ast.operator | ast.unaryop) -> str:
    name = type(operator).__name__
    return OPERATORS.get(name, name)


def is_left_alone(function: ast.expr) -> bool:
    """True for a callee that would notice the recorder, or whose value is no array."""
    match function:
        case ast.Name(id=name):
            if name in AS_THEY_ARE:
                return True
            return name == COUNTS_REFERENCES
        case ast.Attribute(attr=name):
            return name == COUNTS_REFERENCES
    return False


def is_compiled(decorators: Iterable[ast.expr]) -> bool:
    """True below a decorator like numba.njit, torch.jit.script or triton.jit."""
    for decorator in decorators:
        words = ast.unparse(decorator).partition("(")[0].split(".")
        if words[-1] not in COMPILED or words[0] == "re":
            continue
        if words[-1] == "jit" and words[0] in {"jax", "jit"} and os.environ.get("JAX_DISABLE_JIT") == "1":
            continue  # jax is asked to carry it out as it stands
        return True
    return False


def is_docstring(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def words_in(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                yield word
            case ast.keyword(arg=str(word)):
                yield word


def outermost(node: ast.AST) -> list[int]:
    """The sites of an expression that stand in no other of its sites."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=int(number)), *_]) if name == NAME:
            return [number]
        case ast.Lambda():
            return []

    out: list[int] = []
    for child in ast.iter_child_nodes(node):
        out += outermost(child)
    return out


def names_read(node: ast.ListComp | ast.DictComp) -> ast.expr:
    """Of a comprehension, which is a function of its own: what it reads of the names around it."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    free = dict.fromkeys(name.id for name in names if name.id not in bound and name.id != NAME)
    no_arguments = ast.arguments(
        posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
    )
    return ast.Lambda(no_arguments, ast.List([ast.Name(name, ast.Load()) for name in free], ast.Load()))

"""How each rule of who sees whom is written, from the positions of queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnctl.math.rules import AllOf, AnyOf, BlockLocal, Causal, Documents, Padding, Rule, Window
from attnctl.math.rules.visibility import document_of


def seen_by(w: Any, rule: Rule) -> str:
    """The expression of who sees whom by a rule; one that has none here is written as the mask it makes."""
    if isinstance(rule, Documents):
        query, key = w.op.positions(w.shape)
        of_query = w.numbers("document_of_query", document_of(query, rule.borders))
        of_key = w.numbers("document_of_key", document_of(key, rule.starts))
        return f"{of_query} == {of_key}"
    if isinstance(rule, Padding) and not rule.also:
        length = rule.known
        if isinstance(length, int):
            return f"{w.keys()} < {length}"
        lengths = w.numbers("lengths", np.reshape(length, (-1, 1, 1, 1)))
        return f"{w.keys()} < {lengths}"
    if expressible(rule):
        return by_positions(rule, w.queries(), w.keys())
    query, key = w.op.positions(w.shape)
    return str(w.numbers(f"seen_by_{rule.name}", rule.allows(query, key)))  # type: ignore[attr-defined]


def expressible(rule: Rule) -> bool:
    if isinstance(rule, AnyOf | AllOf):
        return all(map(expressible, rule.rules))
    if isinstance(rule, Window):
        return rule.left is not None or rule.right is not None
    return isinstance(rule, Causal | BlockLocal)


def by_positions(rule: Any, query: str, key: str) -> str:
    match rule:
        case Window(left=left, right=right):
            ends = []
            if left is not None:
                ends.append(f"({key} >= {query} - {left})")
            if right is not None:
                ends.append(f"({key} <= {query} + {right})")
            return " & ".join(ends)
        case BlockLocal(size=size):
            return f"{query} // {size} == {key} // {size}"
        case AnyOf(rules=rules) | AllOf(rules=rules):
            sign = " | " if isinstance(rule, AnyOf) else " & "
            return sign.join(f"({by_positions(each, query, key)})" for each in rules)
    return f"{key} <= {query}"  # of what is causal

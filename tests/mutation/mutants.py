"""The mutants of a module: its source with one comparison, condition, constant, branch or element of a table changed.

Pure functions of source text.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Mutant(NamedTuple):
    """A changed *source*; *change* describes the change at *line*."""

    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.line}: {self.change}"


def mutants(source: str, names: frozenset[str] | None = None) -> Iterator[Mutant]:
    """Yield the mutants of *source*, in the functions, classes and constants with these *names* (None: everywhere)."""
    tree = ast.parse(source)
    for number, statement in enumerate(tree.body):
        if names is None or _names_of(statement) & names:
            for place, node in enumerate(_nodes(statement)):
                for change, changed in _changes(node):
                    copied = copy.deepcopy(tree)
                    target = next(each for at, each in enumerate(_nodes(copied.body[number])) if at == place)
                    changed(target)
                    ast.fix_missing_locations(copied)
                    yield Mutant(getattr(node, "lineno", 0), change, ast.unparse(copied))


def _names_of(statement: ast.stmt) -> set[str]:
    targets = [statement] if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) else []
    named = {each.name for each in targets}
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        named.add(statement.target.id)
    return named


def _nodes(statement: ast.stmt) -> list[ast.AST]:
    """Return all nodes except docstrings, annotations and defaults, in a fixed order."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
                continue
            for each in value if isinstance(value, list) else [value]:
                is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                if isinstance(each, ast.AST) and not is_text and not isinstance(each, ast.Raise):
                    visit(each)

    visit(statement)
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)]
            yield f"{type(operator).__name__} -> {other.__name__}", _set_operator(at, other)
    elif isinstance(node, ast.BoolOp):
        for at, value in enumerate(node.values):
            yield f"without {ast.unparse(value)}", _without("values", at)
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        for at, element in enumerate(node.elts):
            yield f"without the element {ast.unparse(element)[:60]}", _without("elts", at)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield f"{ast.unparse(node.test)} -> never", _set("test", ast.Constant(value=False))
        if not isinstance(node, ast.While):
            yield f"{ast.unparse(node.test)} -> always", _set("test", ast.Constant(value=True))
    else:
        yield from _changes_of_values(node)


def _changes_of_values(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not not", lambda target: setattr(target, "operand", ast.UnaryOp(ast.Not(), target.operand))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        kind = _OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} -> {kind.__name__}", _set("op", kind())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", _set("value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield f"{node.value} -> {node.value + 1}", _set("value", node.value + 1)


def _set(field: str, value: Any) -> Any:
    return lambda target: setattr(target, field, value)


def _set_operator(at: int, kind: type[ast.cmpop]) -> Any:
    return lambda target: target.ops.__setitem__(at, kind())


def _without(field: str, at: int) -> Any:
    def change(target: Any) -> None:
        values = getattr(target, field)
        values.pop(at)
        if field == "values" and len(values) == 1:
            values.append(values[0])

    return change

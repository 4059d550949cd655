"""The text of an answer as a program that can be changed: of functions, and of classes wherever they were written."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any


def scope_of(reference: Callable[..., Any]) -> dict[str, Any]:
    """The names that a right answer's own file knows."""
    module = sys.modules.get(reference.__module__)
    return vars(module) if module else {}


def source_of(thing: Any) -> str:
    """The text of a function or a class; of a class in a notebook's cell, whose module has no file, by its methods.

    Raises:
        OSError: if the text cannot be found.
    """
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        methods = [x for x in vars(thing).values() if isinstance(x, FunctionType)] if isinstance(thing, type) else []
        if not methods:
            raise
    text = "".join(inspect.findsource(methods[0].__code__)[0])
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef) or node.name != thing.__name__:
            continue
        if node.lineno <= methods[0].__code__.co_firstlineno <= (node.end_lineno or 0):
            return ast.get_source_segment(text, node) or ""
    raise OSError("the class does not stand where its methods do")


def program_of(reference: Callable[..., Any]) -> ast.Module:
    """The right answer and the functions of its own file that it uses, without annotations and docstrings."""
    scope = scope_of(reference)
    trees: dict[str, ast.stmt] = {}

    def add(thing: Any) -> None:
        tree = ast.parse(textwrap.dedent(source_of(thing))).body[0]
        trees[thing.__name__] = tree
        for node in ast.walk(tree):
            other = scope.get(node.id) if isinstance(node, ast.Name) else None
            if not isinstance(other, FunctionType) or other.__name__ in trees:
                continue
            if other.__module__ == reference.__module__:
                add(other)

    add(reference)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.annotation = None
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                if ast.get_docstring(node) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
                if isinstance(node, ast.FunctionDef):
                    node.returns = None
    return ast.Module([*reversed(trees.values())], [])


#: A part of a program: what it stands in, the field, the index there, and what is to stand in its place.
Replaced = tuple[ast.AST, str, int | None, ast.AST]


def text_with(program: ast.Module, parts: Sequence[Replaced]) -> str:
    """The text of a program with other parts in it, which stays as it is.

    Raises:
        ValueError, TypeError: where that has no text.
    """
    before = [(parent, name, getattr(parent, name)) for parent, name, _, _ in parts]
    try:
        for parent, name, index, part in parts:
            slot = getattr(parent, name)
            setattr(parent, name, part if index is None else [*slot[:index], part, *slot[index + 1 :]])
        return ast.unparse(ast.fix_missing_locations(program))
    finally:
        for parent, name, slot in before[::-1]:
            setattr(parent, name, slot)


def made(program: str, name: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """What a changed program gives a name to, among the names of a scope, which stays as it is.

    Raises:
        ValueError: where it puts a list into itself; ``torch.tensor`` follows such a list until the process ends.
        Exception: whatever its definitions raise, or that it is no program.
    """
    tree = ast.parse(program)
    if _puts_a_list_into_itself(tree):
        raise ValueError("a list must not be put into itself")
    own = dict(scope)
    exec(compile(tree, f"<mutant of {name}>", "exec"), own)
    answer: Callable[..., Any] = own[name]
    return answer


def _puts_a_list_into_itself(program: ast.Module) -> bool:
    for node in ast.walk(program):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "insert"), args=[*_, part]):
                pass
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))], value=part):
                pass
            case _:
                continue
        if any(isinstance(x, ast.Name) and x.id == name for x in _as_they_are(part)):
            return True
    return False


def _as_they_are(part: ast.expr) -> Iterator[ast.expr]:
    """An expression, and what stands in it in brackets alone."""
    yield part
    if isinstance(part, ast.Tuple | ast.List):
        for element in part.elts:
            yield from _as_they_are(element)

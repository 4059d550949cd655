"""A slider outlives the cells below it: no later cell assigns what its picture is drawn from."""

import ast
from pathlib import Path

import jupytext
import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "notebooks_py").glob("[0-9]*.py"))


def assigned(tree):
    """The names that a cell assigns when it runs; not those within its functions."""
    inner = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    names, nodes = set(), list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, inner):
            nodes += ast.iter_child_nodes(node)
    return names


def reads(name, functions):
    """The names of the notebook that a function uses, and those that the functions it calls use."""
    names, todo = set(), [name]
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.add(name)
        if name not in functions:
            continue
        used = [node for node in ast.walk(functions[name]) if isinstance(node, ast.Name)]
        arguments = {node.arg for node in ast.walk(functions[name]) if isinstance(node, ast.arg)}
        own = arguments | {node.id for node in used if isinstance(node.ctx, ast.Store)}
        todo += {node.id for node in used} - own
    return names


def overwritten(cells):
    """(cell of a slider, names that its function reads and a later cell assigns)."""
    trees = [ast.parse(cell) for cell in cells]
    functions = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = []
    for number, tree in enumerate(trees):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "explore":
                names = reads(ast.unparse(node.args[0]), functions)
                later = set().union(*map(assigned, trees[number + 1 :]))
                found += [(number, sorted(names & later))] if names & later else []
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_slider_draws_from_is_not_assigned_again(script):
    cells = [cell.source for cell in jupytext.read(script).cells if cell.cell_type == "code"]
    assert overwritten(cells) == []


def test_a_name_that_is_assigned_again_is_noticed():
    drawing = "def scaled(x):\n    return x * w\ndef draw(a):\n    b = a\n    return scaled(b)\nexplore(draw, a=1)"
    assert overwritten(["w = 1", drawing, "b = [w for w in (1, 2)]"]) == []
    assert overwritten(["w = 1", drawing, "for w in (1, 2):\n    pass"]) == [(1, ["w"])]
    assert overwritten(["w = 1", drawing, "def scaled(x):\n    return 0"]) == [(1, ["scaled"])]

"""The annotations say true shapes and types: the tests hold every call to them, and a program pays nothing for them."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jaxtyping import TypeCheckError
from test_structure import modules
from torch import zeros

import sciformer
from sciformer import data, functional, plotting
from sciformer.attention import MultiHeadAttention
from sciformer.blocks import FeedForward
from sciformer.fast import running_mean
from sciformer.lab.metrics import attention_distance
from sciformer.models import Classifier
from sciformer.positions import NoPositions
from sciformer.scores import DotProductScore
from sciformer.training import next_token_loss

#: For each room whose annotations have shapes a call whose tensors do not have them.
WRONG_SHAPES = {
    "functional": lambda: functional.dot_product_scores(zeros(2, 3, 5, 7), zeros(2, 3, 11, 13)),
    "scores": lambda: DotProductScore(3, 7)(zeros(3, 5, 7), zeros(3, 5, 7)),
    "attention": lambda: MultiHeadAttention(6, 3)(zeros(5, 6)),
    "positions": lambda: NoPositions(6, 5)(zeros(5, 6)),
    "blocks": lambda: FeedForward(6, 12)(zeros(5, 6)),
    "models": lambda: Classifier(6, 10)(zeros(2, 3, 5, 6)),
    "fast": lambda: running_mean(zeros(2, 5), zeros(2, 7, 3)),
    "data": lambda: data.windows(zeros(2, 31), 5, 3),
    "training": lambda: next_token_loss(zeros(2, 5, 11), zeros(2, 7).long()),
    "lab": lambda: attention_distance(zeros(5, 5)),
    "teach": lambda: plotting.convex_hull(zeros(7, 3)),
}


def functions():
    """Every function and method that stands in a module of the package, with its name."""
    for module in modules():
        for thing in vars(module).values():
            for each in vars(thing).values() if inspect.isclass(thing) else [thing]:
                original = inspect.unwrap(each) if inspect.isfunction(each) else None
                if inspect.isfunction(original) and original.__code__.co_filename == module.__file__:
                    yield f"{module.__name__}.{each.__qualname__}", each


def is_checked(function):
    """Whether a type checker stands before a function, under other decorators perhaps."""
    while function is not None:
        if "jaxtyping" in function.__code__.co_filename:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


@pytest.fixture
def refused_by_the_package_itself():
    """Not here: in this file the type checker has the first word."""


@pytest.mark.parametrize("room", WRONG_SHAPES)
def test_a_wrong_shape_is_refused(room):
    with pytest.raises(TypeCheckError, match=rf"parameters of sciformer\.{room}\b"):
        WRONG_SHAPES[room]()


def test_every_room_with_shapes_has_a_call_that_is_refused():
    package = Path(sciformer.__file__).parent
    with_shapes = {
        path.relative_to(package).parts[0].removesuffix(".py")
        for path in package.rglob("*.py")
        if re.search(r"\b(Bool|Float|Int)\[Tensor", path.read_text())
    }
    assert with_shapes == WRONG_SHAPES.keys()


def test_a_wrong_return_value_is_refused(monkeypatch):
    monkeypatch.setattr(functional, "safe_root", lambda squared: squared[..., :2])
    with pytest.raises(TypeCheckError, match=r"return value of sciformer\.functional\.pairwise_distances"):
        functional.pairwise_distances(zeros(5, 3), zeros(7, 3))


def test_every_function_of_a_room_with_shapes_is_checked():
    in_rooms = [(name, function) for name, function in functions() if name.split(".")[1] in WRONG_SHAPES]
    assert [name for name, function in in_rooms if not is_checked(function)] == []


def test_without_the_tests_nothing_is_checked():
    """In a process of its own, which imports every module as a program would."""
    code = """
import sys, test_shapes
print(len(list(test_shapes.functions())), sum(test_shapes.is_checked(each) for _, each in test_shapes.functions()))
print("beartype" in sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    found = len(list(functions()))
    assert result.stdout == f"{found} 0\nFalse\n"

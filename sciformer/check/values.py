"""What an answer returns, as plain values: made, compared and written down."""

import re
from typing import Any

import torch
from torch import Tensor


def plain(value: Any) -> Any:
    """A result as tensors, numbers, texts and lists of them; anything else becomes ``{"type": its name}``.

    A truth value of torch's, as `any()` gives, is as good as Python's.
    """
    if isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_complex() or value.is_meta):
        tensor = value.detach().as_subclass(Tensor).cpu().clone()
        return bool(tensor) if tensor.dtype == torch.bool and tensor.dim() == 0 else tensor
    if value is None or isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {"type": f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")}


def same(one: Any, two: Any) -> bool:
    """Whether two plain values are equal up to float32's rounding."""
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        if one.shape != two.shape or family(one) != family(two):
            return False
        return torch.allclose(one.double(), two.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if {type(one), type(two)} <= {int, float}:
        return same(torch.tensor(float(one)), torch.tensor(float(two)))
    return type(one) is type(two) and bool(one == two)


def family(x: Tensor) -> str:
    """What kind of values a tensor holds; 0 and 1 are not a mask, since ~ turns 1 into -2."""
    if x.dtype == torch.bool:
        return "truth values"
    return "real numbers" if x.is_floating_point() else "whole numbers"


def kind_of(value: Any) -> str:
    """What a plain value is, in words."""
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if isinstance(value, dict):
        return f"a value of type {value['type']}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


#: So long may a matrix be that is written on one line.
_ONE_LINE = 64
#: So long may a line of a message be, as JupyterLab shows about 100 characters.
_LONGEST_LINE = 96
#: So many numbers of a row are shown, and so many of a tensor.
_SHORT_ROW, _IN_FULL = 8, 32
_SHAPE = "shape "


def table(rows: dict[str, Any], most: int = 12) -> str:
    """Plain values below one another, each with its name, indented as a checker's message is.

    Where the expected result and the student's would read the same, or are too large to be shown in full, only the row
    or the entry that differs most is shown.

    Args:
        most: how many lines there may be; large inputs are then told by their shape, and the last are left out.
    """
    if _alike(rows):
        expected = list(rows.values())[-2]
        rows = _difference_alone(rows, in_a_row=isinstance(expected, Tensor) and expected.numel() > _IN_FULL)
    if left_out := len(rows) - max(3, most):
        rows = _without_some(rows, left_out + 1) if left_out > 0 else rows
    texts = _texts(rows, most)
    if any(text.startswith(_SHAPE) for text in list(texts.values())[-2:]):
        rows = _difference_alone(rows, in_a_row=True)
        texts = _texts(rows, most)
    width = _width(rows)
    return "".join(f"\n    {name:{width - 4}}{text}" for name, text in texts.items())


def _texts(rows: dict[str, Any], most: int) -> dict[str, str]:
    """Each value as it is written down, the largest in short where all together would take too many lines."""
    width = _width(rows)
    decimals = dict.fromkeys(rows, 3) | dict.fromkeys(list(rows)[-2:], 7 if _alike(rows) else 3)
    texts = {name: _text(x, width, decimals[name]) for name, x in rows.items()}
    largest = sorted(texts, key=lambda name: -texts[name].count("\n"))
    for name in largest:
        is_long = isinstance(rows[name], Tensor) and "\n" in texts[name]
        if is_long and sum(text.count("\n") + 1 for text in texts.values()) > most:
            texts[name] = _in_short(rows[name], width, decimals[name])
    return texts


def _width(rows: dict[str, Any]) -> int:
    return max(map(len, rows)) + 6


def _without_some(rows: dict[str, Any], left_out: int) -> dict[str, Any]:
    """The rows without the last inputs, and a row that counts them."""
    *inputs, expected, got = rows.items()
    return dict([*inputs[:-left_out], ("...", {"type": f"and {left_out} more inputs"}), expected, got])


def _alike(rows: dict[str, Any]) -> bool:
    """Whether the last two rows, expected and got, would read the same."""
    expected, got = list(rows.values())[-2:] if len(rows) > 1 else (0, 1)
    return _text(expected, 0, 3) == _text(got, 0, 3)


def _difference_alone(rows: dict[str, Any], *, in_a_row: bool) -> dict[str, Any]:
    """The rows, with the entry that differs most in place of two tensors, or with its row if that is short."""
    expected, got = rows.get("expected"), rows.get("got")
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor) or expected.shape != got.shape:
        return rows
    differs = (expected != got).nonzero()
    if expected.numel() < 2 or not len(differs):
        return rows
    size = (expected.double() - got.double()).abs().nan_to_num(torch.inf)
    index = tuple(max(differs.tolist(), key=lambda place: size[tuple(place)].item()))
    if in_a_row and expected.dim() > 1 and expected.shape[-1] <= _SHORT_ROW:
        index = index[:-1]
    where = str(list(index))
    inputs = {name: x for name, x in rows.items() if name not in ("expected", "got")}
    return inputs | {f"expected{where}": expected[index], f"got{where}": got[index]}


def _text(value: Any, indent: int, decimals: int) -> str:
    """A value as a person would write it down; of a large tensor, its shape and its first numbers."""
    if isinstance(value, list):
        return (",\n" + " " * indent).join(_text(item, indent, decimals) for item in value)
    if not isinstance(value, Tensor):
        return value["type"] if isinstance(value, dict) else repr(value)
    if value.numel() > _IN_FULL:
        return _in_short(value, indent, decimals)
    numbers = [number(x, decimals) for x in value.flatten().tolist()]
    width = max(map(len, numbers), default=0)
    words = iter(numbers)

    def nested(x: Tensor, depth: int) -> str:
        if x.dim() == 0:
            return f"{next(words):>{width}}"
        separator = ", " if x.dim() == 1 else ",\n" + " " * (indent + depth + 1)
        return "[" + separator.join(nested(part, depth + 1) for part in x) + "]"

    text = nested(value, 0)
    one_line = re.sub(r"\n +", " ", text)
    if len(one_line) <= _ONE_LINE:
        return one_line
    return text if max(map(len, text.splitlines())) <= _LONGEST_LINE - indent else _in_short(value, indent, decimals)


def _in_short(value: Tensor, indent: int, decimals: int) -> str:
    return f"{_SHAPE}{tuple(value.shape)}, beginning {_text(value.flatten()[:4], indent, decimals)}"


def number(x: float | int | bool, decimals: int = 3) -> str:
    """A number with so many decimals at most."""
    return f"{round(x, decimals) + 0.0:.10g}" if isinstance(x, float) else str(x)

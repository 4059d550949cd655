"""What a worker says, in lines of JSON: plain values, and what an answer did.

Nothing is unpickled. A tensor comes with all its bytes, so a short line cannot stand for a large tensor.
"""

import base64
import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from sciformer.check.exercise import Call, Observation, Problem

#: How long one line may be. What the exercises return takes a hundredth of it.
LINE = 2**22

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
    )
}
#: What may have stopped an answer, as far as the worker can know. That it is right is for the judge to say.
_PROBLEMS = {"missing", "not attempted", "too slow", "wrong type", "raises", "no gradient"}
_LONGEST_SENTENCE = 2000


def encode(value: Any) -> Any:
    """A plain value as JSON can hold it."""
    if isinstance(value, list):
        return [encode(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    name = str(value.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        return {"type": f"tensor of {name}"}
    content = value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return {"dtype": name, "shape": list(value.shape), "content": base64.b64encode(content).decode()}


def decode(value: Any) -> Any:
    """A plain value from JSON that anybody may have made up.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        return {"type": str(value["type"])[:200]} if value.keys() == {"type"} else _tensor(value)
    if value is None or isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    raise ValueError(f"{type(value).__name__} is no plain value")


def _tensor(entry: dict[str, Any]) -> Tensor:
    try:
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        if not all(isinstance(size, int) and size >= 0 for size in shape):
            raise ValueError("no shape")
        content = bytearray(base64.b64decode(entry["content"], validate=True))
        if math.prod(shape) * dtype.itemsize != len(content):
            raise ValueError(f"not as many bytes as a tensor of shape {shape} has")
        if dtype == torch.bool:
            return torch.frombuffer(content, dtype=torch.uint8).view(shape) != 0 if content else torch.empty(shape) != 0
        return torch.frombuffer(content, dtype=dtype).view(shape) if content else torch.empty(shape, dtype=dtype)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"this is no tensor: {error}") from error


def encode_observation(seen: Observation) -> dict[str, Any]:
    """What an answer did, as JSON can hold it."""
    calls = [
        {
            "output": encode(call.output),
            "again": encode(call.again),
            "inputs": {name: encode(x) for name, x in call.inputs.items()},
        }
        for call in seen.calls
    ]
    gradients = {name: encode(x) for name, x in seen.gradients.items()}
    return {"calls": calls, "gradients": gradients, "problem": seen.problem and asdict(seen.problem)}


def decode_observation(entry: dict[str, Any]) -> Observation:
    """What an answer did, or that what it did cannot be read."""
    try:
        calls = [
            Call(
                decode(call["output"]),
                decode(call["again"]),
                {str(name): decode(x) for name, x in call["inputs"].items()},
            )
            for call in entry["calls"]
        ]
        gradients = {str(name): decode(x) for name, x in entry["gradients"].items()}
        return Observation(calls, gradients, entry["problem"] and _problem(entry["problem"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):  # made up by hand, not by our worker
        return Observation(problem=Problem("incomplete", "What the answer returned cannot be read."))


def _problem(entry: dict[str, Any]) -> Problem:
    if entry["kind"] not in _PROBLEMS:
        raise ValueError(f"{entry['kind']} is no problem")
    return Problem(entry["kind"], entry["says"][:_LONGEST_SENTENCE])

"""Weights as the page carries them: one string of bytes, and where in it each tensor stands."""

import base64
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sciformer.functional import InputError

#: How a page can hold weights: 4, 2 or 1 bytes each. int8 has a scale for each row.
DType = Literal["float32", "float16", "int8"]
#: Tensors of so few numbers (biases, norms, slopes) stay float32: they cost nothing, and rounding them would show.
SMALL = 1024


class Packed:
    """Collects tensors one by one; a tensor that stands in a model twice, as tied weights do, is packed once.

    Raises:
        InputError: if the number type is none of :data:`DType`.
    """

    def __init__(self, dtype: DType):
        if dtype not in get_args(DType):
            raise InputError(f"dtype must be one of {', '.join(get_args(DType))}, got {dtype!r}")
        self.dtype = dtype
        self.bytes = bytearray()
        self.described: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []  # what was packed, in the same order
        self._known: dict[tuple[int, torch.Size], int] = {}

    def add(self, tensor: Tensor, path: str) -> dict[str, int]:
        """Pack a tensor, unless it is there already.

        Args:
            path: its name in the model, for the message.

        Returns:
            What stands for it in the description of the model.

        Raises:
            InputError: if it has an entry that is not finite, or too large for float16.
        """
        place = (tensor.data_ptr(), tensor.shape)
        if place not in self._known:
            numbers = tensor.detach().to("cpu", torch.float32).contiguous()
            if not numbers.isfinite().all():
                raise InputError(f"{path} has entries that are not finite numbers: the training has diverged")
            self._known[place] = len(self.described)
            self.described.append(self._append(numbers, path))
            self.tensors.append(tensor)
        return {"tensor": self._known[place]}

    def content(self) -> dict[str, Any]:
        """The tensors' descriptions, and all bytes in base64."""
        return {"tensors": self.described, "bytes": base64.b64encode(self.bytes).decode()}

    def _append(self, numbers: Tensor, path: str) -> dict[str, Any]:
        dtype = "float32" if numbers.dim() < 2 or numbers.numel() <= SMALL else self.dtype
        described: dict[str, Any] = {"dtype": dtype, "shape": list(numbers.shape)}
        if dtype == "float16":
            if numbers.abs().max() > torch.finfo(torch.float16).max:
                raise InputError(f"{path} has entries too large for float16; export it with dtype 'float32'")
            numbers = numbers.half()
        if dtype == "int8":
            scales = numbers.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / 127  # (..., 1), one for each row
            numbers = (numbers / scales).round().to(torch.int8)
            described["scales"] = self._write(scales)
        return described | {"start": self._write(numbers)}

    def _write(self, numbers: Tensor) -> int:
        self.bytes.extend(bytes(-len(self.bytes) % 4))  # arrays of 4-byte numbers begin at multiples of 4
        start = len(self.bytes)
        self.bytes.extend(numbers.numpy().tobytes())
        return start

"""A CUDA GPU that the CPU plays, to find on a machine without one what a GPU would break.

A tensor made on "cuda" or moved there becomes a `PretendTensor`. It says that it is on cuda:0, and what is done with it
is computed on the CPU, so every number is real. What CUDA refuses is refused: tensors of both devices in one
operation, numpy of a tensor on the device, a generator of the other device. Autocast for CUDA becomes autocast for the
CPU, whose list of operations is a little shorter.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing

CUDA = torch.device("cuda:0")
aten = torch.ops.aten
#: Operations whose indices may be on the CPU although the tensor is on the device.
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class PretendTensor(Tensor):
    """A tensor that says it is on cuda:0. Its numbers are in ``inner``, on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "PretendTensor":
        # The device that torch's C++ is told is the CPU: CUDA's own code would ask its driver.
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return Tensor._make_wrapper_subclass(cls, inner.shape, **layout, device="cpu")

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_cuda(self) -> bool:
        return True

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r}".removesuffix(")") + ", device='cuda:0')"

    def __format__(self, spec: str) -> str:
        return self.inner.__format__(spec)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is not aten.copy_.default:
            refuse_two_devices(function, args, kwargs)
        result = function(*each(unwrap, args), **{name: each(unwrap, x) for name, x in kwargs.items()})
        if function is aten.copy_.default and not isinstance(args[0], PretendTensor):
            return args[0]
        return return_and_correct_aliasing(function, args, kwargs, each(wrap, result))


def each(change: Callable, x: Any) -> Any:
    """What an operation takes or returns, changed within lists and tuples: torch's trees take most of the time."""
    return type(x)([each(change, part) for part in x]) if isinstance(x, list | tuple) else change(x)


def wrap(x: Any) -> Any:
    """A tensor on the device for one on the CPU; anything else as it is."""
    return PretendTensor(x) if isinstance(x, Tensor) and not isinstance(x, PretendTensor) else x


def unwrap(x: Any) -> Any:
    """The CPU's tensor of one that pretends; anything else as it is."""
    return x.inner if isinstance(x, PretendTensor) else x


def refuse_two_devices(function: Any, args: tuple, kwargs: dict) -> None:
    """Raise as CUDA does. A CPU tensor without dimensions may take part, and so may indices of a tensor on the GPU."""
    if function in INDEXING and isinstance(args[0], PretendTensor):
        args = (args[0], *args[2:])

    def refuse(x: Any) -> None:
        if isinstance(x, Tensor) and not isinstance(x, PretendTensor) and x.dim():
            raise RuntimeError(f"{function}: expected all tensors on cuda:0, found {tuple(x.shape)} on cpu")

    each(refuse, (*args, *kwargs.values()))


class Move(torch.autograd.Function):
    """To the device or back; the gradient goes the other way."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return unwrap(x) if isinstance(x, PretendTensor) else wrap(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return unwrap(gradient) if isinstance(gradient, PretendTensor) else wrap(gradient)


class Pretence(TorchFunctionMode):
    """Calls that name a device are made on the CPU, and their results moved."""

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return moved(function, args, kwargs)
        if function in MAKERS:
            return made_of_numbers(function, args, kwargs)
        if function is scaled_dot_product_attention and kwargs.get("is_causal"):
            kwargs |= {"is_causal": False, "attn_mask": causal_mask(*args[:2])}
        if kwargs.get("device") is None or torch.device(kwargs["device"]).type == "meta":
            return function(*args, **kwargs)
        refuse_generator(kwargs)
        made = function(*args, **kwargs | {"device": "cpu"})
        if isinstance(made, PretendTensor) == is_cuda(kwargs["device"]):
            return made
        return Move.apply(made.detach()).requires_grad_(made.requires_grad)


def moved(function: Callable, args: tuple, kwargs: dict) -> Tensor:
    """``to``, ``cuda`` and ``cpu``: to the dtype that is given, and to the device."""
    x, given = args[0], [*args[1:], *kwargs.values()]
    devices = [x if isinstance(x, torch.device | str) else x.device for x in given if isinstance(x, DEVICED)]
    dtypes = [x if isinstance(x, torch.dtype) else x.dtype for x in given if isinstance(x, torch.dtype | Tensor)]
    device = {Tensor.cuda: "cuda", Tensor.cpu: "cpu"}.get(function, devices[0] if devices else x.device)
    x = x.type(dtypes[0]) if dtypes and dtypes[0] != x.dtype else x
    return x if isinstance(x, PretendTensor) == is_cuda(device) else Move.apply(x)


#: What makes a tensor of numbers or labels in C++, where a tensor that pretends is one on the CPU.
MAKERS = {torch.tensor, Tensor.new_tensor, one_hot}


def made_of_numbers(function: Callable, args: tuple, kwargs: dict) -> Tensor:
    """The tensor, on the device that is given, or else on that of the tensor it is made from or like."""
    like = args[0] if isinstance(args[0], Tensor) and function is not torch.tensor else torch.empty(0)
    made = function(*each(unwrap, args), **{name: value for name, value in kwargs.items() if name != "device"})
    return moved(Tensor.to, (made, kwargs.get("device") or like.device), {})


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """What ``is_causal`` means: torch would make it in C++, where a tensor that pretends is one on the CPU."""
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return wrap(mask) if isinstance(query, PretendTensor) else mask


DEVICED = (str, torch.device, Tensor)


def is_cuda(device: torch.device | str) -> bool:
    return torch.device(device).type == "cuda"


class PretendGenerator(torch.Generator):
    """A generator that says which device it is for."""

    def __new__(cls, device: torch.device | str = "cpu") -> "PretendGenerator":
        generator = super().__new__(cls, "cpu")
        generator.pretended = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:
        return self.pretended


def refuse_generator(kwargs: dict) -> None:
    """Raise as CUDA does where a generator is not of the device that is asked for."""
    generator = kwargs.get("generator")
    if generator is not None and is_cuda(generator.device) != is_cuda(kwargs["device"]):
        raise RuntimeError(f"expected a {kwargs['device']} device type for generator but found {generator.device}")


class PretendAutocast(torch.autocast):
    """Autocast for CUDA is autocast for the CPU."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def move_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """``module.to``, which would ask C++ for the device of a tensor that it is to be like."""
    like = (args[0].device, args[0].dtype) if args and isinstance(args[0], Tensor) else args
    return MODULE_TO(module, *like, **kwargs)


MODULE_TO = torch.nn.Module.to


def play() -> None:
    """From now on this process has a CUDA GPU."""
    facts = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "a CPU that plays a GPU",
        "is_bf16_supported": True, "is_current_stream_capturing": False, "synchronize": None,
        "reset_peak_memory_stats": None, "memory_allocated": 0, "max_memory_allocated": 1,
    }  # fmt: skip
    for name, answer in facts.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)
    torch.Generator, torch.autocast = PretendGenerator, PretendAutocast  # type: ignore[misc]
    torch.nn.Module.to = move_module  # type: ignore[method-assign, assignment]
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        asked = getattr(torch, name)
        setattr(torch, name, lambda device="cuda", asked=asked: asked("cpu" if device == "cuda" else device))
    # one name in newer torch, the other in older
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        setattr(torch.optim.Optimizer, name, lambda self: None)
    torch.__future__.set_swap_module_params_on_conversion(True)  # data of the two kinds cannot be exchanged
    Pretence().__enter__()

"""What exercises share whose answer is a class: it is built, given weights, and run.

The weights are inputs of the call, so that gradients show whether the output depends on each of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sciformer.check.exercise import WrongType
from sciformer.check.observing import check_memory
from sciformer.check.values import plain, same

#: What is said if the same inputs give another output at the second call, in training and in evaluation.
_CALLED_AGAIN = (
    (True, "A second call with the same inputs gives another output. Does the module keep something of the first one?"),
    (
        False,
        "After `.eval()` the output is another one than in training. Nothing here may depend on that: is there a "
        "dropout, or something that asks for `self.training`?",
    ),
)


_CONTEXT_KEPT = (
    "After a call with a context, a call without one gives another output than before. Is the context kept in `self`? "
    "Without one, the tokens look at themselves."
)


def run_module(
    answer: Callable[..., Any],
    arguments: Sequence[Any],
    weights: Mapping[str, Tensor],
    *inputs: Any,
    tied: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """The output of ``answer(*arguments)`` for the inputs, once it holds the weights.

    Args:
        weights: by the names of the module's state dict, and of its shapes.
        tied: parameters that are to be one of these under a second name, and the first name of each.
        options: further arguments of the module's ``forward``.

    Raises:
        WrongType: for the student, if the answer makes no module, or one with parameters of other names or shapes, or
            one whose output is another at the second call, in evaluation, or after a call with a context.
    """
    module = answer(*arguments)
    if not isinstance(module, nn.Module):
        called = f"{getattr(answer, '__name__', 'the answer')}({', '.join(map(str, arguments))})"
        raise WrongType(f"{called} gives {type(module).__name__}. Write a class that inherits from nn.Module.")
    own = dict(module.named_parameters(remove_duplicate=False))
    known = {id(own[name]) for name in weights.keys() & own.keys()}  # one parameter may have two names: tied weights
    missing = sorted(weights.keys() - own.keys())
    unknown = sorted(name for name in own.keys() - weights.keys() if id(own[name]) not in known)
    if missing or unknown:
        says = []
        if missing:
            says.append(f"These parameters are missing: {', '.join(missing)}.")
        for name in (untied := sorted(tied.keys() & unknown)):
            says.append(
                f"{name} is a parameter of its own. It has to be {tied[name]} itself, since a copy goes its own way in "
                f"training: self.{name} = self.{tied[name]}."
            )
        if others := [name for name in unknown if name not in untied]:
            says.append(f"These are not asked for: {', '.join(others)}.")
        if tensors := [name for name in missing if isinstance(_attribute(module, name), Tensor)]:
            says.append(
                f"{' and '.join(tensors)} can be found, but as a plain tensor: an optimiser sees nn.Parameter only."
            )
        elif missing and not own:
            says.append(
                "It has no parameters at all: a layer is found if it is an attribute, set after super().__init__()."
            )
        raise WrongType(" ".join(says))
    if shared := _shared(own, weights):
        raise WrongType(shared)
    for name, weight in weights.items():
        if own[name].shape != weight.shape:
            given, wanted = tuple(own[name].shape), tuple(weight.shape)
            ignored = "".join(_ignored(answer, arguments, name, given, wanted))
            raise WrongType(f"The parameter {name} has the shape {given}; {wanted} is wanted.{ignored}")
        check_memory(name, own[name])
    module = module.to(next(iter(weights.values())))
    chance = torch.get_rng_state()
    output = functional_call(module, dict(weights), inputs, options)
    first = plain(output)
    for is_training, differs in _CALLED_AGAIN:
        torch.set_rng_state(chance)
        with torch.no_grad():
            again = functional_call(module.train(is_training), dict(weights), inputs, options)
        if not same(first, plain(again)):
            raise WrongType(differs)
    if len(inputs) == 1 and "context" in signature(module.forward).parameters:
        with torch.no_grad():
            functional_call(module, dict(weights), (inputs[0], inputs[0].flip(1)), options)
            again = functional_call(module, dict(weights), inputs, options)
        if not same(first, plain(again)):
            raise WrongType(_CONTEXT_KEPT)
    return output


def scores_of(module: nn.Module, query: Tensor, key: Tensor, **options: int) -> Tensor:
    """The scores of a module; one that takes a mask gets a causal one, which it has to leave alone.

    Args:
        options: ``query_offset``, the position of the first query, where the module has to know it.
    """
    masks = {}
    if "attn_mask" in signature(module.forward).parameters:
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        masks["attn_mask"] = seen.tril(options.get("query_offset", 0))
    return module(query, key, **options, **masks)


def _ignored(
    answer: Callable[..., Any],
    arguments: Sequence[Any],
    parameter: str,
    given: tuple[int, ...],
    wanted: tuple[int, ...],
) -> Iterator[str]:
    """What is said of a whole number that should be a size of a parameter, and has no effect on its shape."""
    names = list(signature(answer).parameters)
    for n, (name, value) in enumerate(zip(names, arguments, strict=False)):
        sizes = [right for mine, right in zip(given, wanted, strict=False) if mine != right]
        if type(value) is not int or sizes != [value] or len(given) != len(wanted):
            continue
        with suppress(Exception):  # not every number may be one larger
            other = answer(*arguments[:n], value + 1, *arguments[n + 1 :]).get_parameter(parameter)
            if other.shape == given:
                yield f" `{name}` is {value} here, and has no effect on this shape."


def _shared(own: Mapping[str, nn.Parameter], wanted: Iterable[str]) -> str:
    """What is said of parameters that should be several and are one, a pair for each list or two modules; else ""."""
    names: dict[int, str] = {}
    pairs: dict[str, str] = {}
    one_parameter = True
    for name in wanted:
        if (other := names.setdefault(own[name].untyped_storage().data_ptr(), name)) != name:
            modules = " ".join(_where_they_part(other, name))
            pairs.setdefault(re.sub(r"\d+", "*", modules), f"{other} and {name}")
            one_parameter = one_parameter and own[other] is own[name]
    if not pairs:
        return ""
    first, *others = pairs.values()
    says = f"{first} are one and the same parameter; two are wanted."
    if not one_parameter:
        says = (
            f"{first} share their memory, so a step of training that changes one changes the other. Copy: `.clone()`."
        )
    if others:
        says += f" The same goes for {'; '.join(others)}."
    if any(modules.endswith("*") for modules in pairs):
        says += " Does a list hold one module several times, as after `[module] * 2`?"
    return says


def _where_they_part(one: str, two: str) -> tuple[str, str]:
    """Two names up to the first part in which they differ."""
    (first, _, one), (second, _, two) = one.partition("."), two.partition(".")
    if first != second:
        return first, second
    below = _where_they_part(one, two)
    return f"{first}.{below[0]}", f"{second}.{below[1]}"


def _attribute(module: nn.Module, name: str) -> Any:
    """What stands in a module under the name of a parameter, "blocks.0.weight", or None."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found

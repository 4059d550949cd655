"""What the notebooks need around the mechanisms: the profile, verdicts, and the proof that two modules are one."""

import copy

import torch
from torch import Tensor, nn

from sciformer.lab.settings import Profile, profile

__all__ = ["assert_same_module", "profile", "verdict"]


def verdict(
    name: str,
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    measured: Profile | None = None,
) -> None:
    """Assert a measurement and print it beside its bound. The validation of a notebook compares the line without it.

    Args:
        measured: the profile whose runs the bounds come from. In another one the value is stated and not judged, since
            nothing that was measured says what to expect. By default the bounds hold in every profile.

    Raises:
        AssertionError: if the value is not strictly inside the bounds (NaN never is); names the value.
        ValueError: if there is no bound, since such a verdict could not fail.
    """
    bounds = [f"{word} {bound:g}" for word, bound in (("above", above), ("below", below)) if bound is not None]
    if not bounds:
        raise ValueError("a verdict needs above=, below= or both")
    if measured not in (None, profile()):
        print(f"stated, not judged: {name} is {value:.4g}; no record of the {profile()} profile says what to expect")
        return
    inside = (above is None or value > above) and (below is None or value < below)
    wanted = " and ".join(bounds)
    if not inside:
        raise AssertionError(f"{name} is {value:.4g}, expected {wanted}")
    print(f"ok: {name} is {wanted}: measured {value:.4g}")


def assert_same_module(mine: nn.Module, package: nn.Module, *inputs: Tensor, **kwargs: object) -> None:
    """Prove that two modules compute the same: outputs, input gradients and parameter gradients, in float64.

    ``mine`` is given a copy of the weights of ``package``, so both need the same names and shapes of parameters.
    Neither module is changed. Prints one line.

    Args:
        inputs: floating-point inputs for both.
        kwargs: further arguments for both, such as a mask.

    Raises:
        AssertionError: naming what differs and by how much.
    """
    package = copy.deepcopy(package).double()
    mine = copy.deepcopy(mine).double()
    theirs, ours = dict(package.named_parameters()), dict(mine.named_parameters())
    if theirs.keys() != ours.keys():
        raise AssertionError(f"the parameters differ in name: {sorted(theirs.keys() ^ ours.keys())}")
    mine.load_state_dict(package.state_dict())
    results = []
    for module in (mine, package):
        leaves = [x.detach().double().requires_grad_() for x in inputs]
        output = module(*leaves, **kwargs)
        output = output[0] if isinstance(output, tuple) else output
        # A plain sum would hide what cancels, for instance in a row that sums to 1.
        probe = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        parameters = dict(module.named_parameters())  # by name: the two may have been built in different orders
        wanted = [*leaves, *(parameters[name] for name in ours)]
        gradients = torch.autograd.grad((output * probe).sum(), wanted, allow_unused=True)
        results.append((output, gradients))
    (mine_output, mine_gradients), (package_output, package_gradients) = results
    names = [f"gradient of input {i}" for i in range(len(inputs))] + [f"gradient of {name}" for name in ours]
    pairs = zip([mine_output, *mine_gradients], [package_output, *package_gradients], strict=True)
    for name, (a, b) in zip(["output", *names], pairs, strict=True):
        try:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
        except AssertionError as error:
            raise AssertionError(f"{name} differs. {error}") from None
    print(f"same: output, {len(inputs)} input gradients and {len(ours)} parameter gradients agree")

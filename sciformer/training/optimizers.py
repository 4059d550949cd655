"""AdamW and Muon: which parameters each of them steps, and a Muon that steps equally shaped matrices together.

``torch.optim.Muon`` orthogonalizes one matrix at a time in bfloat16. On a CPU without bfloat16 arithmetic that takes
many times longer than the model's own forward and backward pass; batched and in float32 it is a small part of a step.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.functional import InputError
from sciformer.training.config import TrainConfig
from sciformer.training.precision import tensor_float_32


def orthogonalize(matrices: Float[Tensor, "N rows columns"], steps: int = 5) -> Float[Tensor, "N rows columns"]:
    r"""Push all singular values of each matrix towards 1 and leave the singular vectors alone.

    .. math:: X \leftarrow a X + (b A + c A^2) X, \qquad A = X X^T

    The Newton–Schulz iteration, tuned for few steps rather than for convergence: singular values end between about 0.7
    and 1.2. Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Uncompiled(torch.optim.Optimizer):
    """An optimizer without the wrappers by which torch keeps its compiler from looking into these methods.

    The first wrapper that is called imports the whole compiler, some 900 modules, which takes longer than the rest of a
    small model's first step. We compile models, never an optimizer, so the methods inside the wrappers do as well.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """``torch.optim.AdamW``, :class:`Uncompiled`."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class Muon(Uncompiled):
    """Momentum whose direction is orthogonalized, for the weight matrices inside a network.

    The rule and the names are those of ``torch.optim.Muon`` with ``adjust_lr_fn="match_rms_adamw"``: the update is
    scaled by 0.2·√max(rows, columns), so that learning rates and weight decays that suit AdamW suit it too
    (Liu et al. 2025, arXiv:2502.16982, section 2.2).

    Args:
        even_rows: also divide each row of the direction by its own running root mean square, so that no unit of a layer
            outruns the others, and bring the whole back to the size that it has without (NorMuon; Li et al. 2025,
            arXiv:2510.05491; size and β₂ = 0.95 as in the authors' code).

    Raises:
        ValueError: if a parameter is not a matrix.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        even_rows: bool = False,
    ):
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "even_rows": even_rows}
        super().__init__(params, options)
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.dim() != 2:
                raise InputError(f"Muon steps matrices, got a parameter of shape {tuple(p.shape)}")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape, p.device, p.dtype].append(p)
            for (shape, _, _), params in by_shape.items():
                gradients = [p.grad for p in params]
                for p in params:
                    if not self.state[p]:
                        self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                buffers = [self.state[p]["momentum_buffer"] for p in params]
                torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
                nesterov = torch._foreach_lerp(gradients, buffers, group["momentum"])
                with tensor_float_32(params[0].device):  # the result is rough anyway, between 0.7 and 1.2
                    updates = orthogonalize(torch.stack(nesterov).float()).to(params[0].dtype)
                if group["even_rows"]:
                    updates = self._even_rows(params, updates)
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(params, updates.unbind(), alpha=-0.2 * max(shape) ** 0.5 * group["lr"])

    def _even_rows(
        self, params: list[nn.Parameter], updates: Float[Tensor, "N rows columns"]
    ) -> Float[Tensor, "N rows columns"]:
        for p in params:
            if "row_squares" not in self.state[p]:
                self.state[p]["row_squares"] = torch.zeros_like(p[:, :1])
        squares = [self.state[p]["row_squares"] for p in params]
        torch._foreach_lerp_(squares, updates.square().mean(dim=-1, keepdim=True).unbind(), 0.05)
        size = updates.norm(dim=(-2, -1), keepdim=True)
        updates = updates / torch.stack(squares).sqrt().clamp(min=1e-7)  # a row whose gradient is 0 stays 0
        return updates * (size / updates.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7))


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the hidden matrices beside it.

    Muon is for the linear maps inside the stacked blocks (the model's ``nn.ModuleList``); embeddings and the read-out,
    whose rows belong to single tokens or classes, stay with AdamW, as Muon's authors advise.

    Raises:
        ValueError: if Muon is asked for and the model has no stacked blocks.
    """
    by_muon: list[nn.Parameter] = []
    if config.optimizer != "adamw":
        stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        linears = {layer for stack in stacks for layer in stack.modules() if isinstance(layer, nn.Linear)}
        by_muon = [layer.weight for layer in model.modules() if layer in linears]  # type: ignore[misc]
        if not by_muon:
            raise InputError("Muon needs a model whose blocks stand in an nn.ModuleList, and this one has none")
    muon_ids = {id(p) for p in by_muon}
    rest = [p for p in model.parameters() if id(p) not in muon_ids]
    groups = [
        {"params": [p for p in rest if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
    if not by_muon:
        return [adamw]
    even_rows = config.optimizer == "normuon"
    return [Muon(by_muon, lr=config.lr, weight_decay=config.weight_decay, even_rows=even_rows), adamw]


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], lr: float) -> None:
    """Give every parameter of every optimizer this learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr

"""What only a GPU would tell, told without one: shapes, dtypes and devices of fake CUDA tensors, under autocast."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from sciformer.lab.fake_cuda import _backward, can_fake_cuda, fake_cuda

pytestmark = pytest.mark.skipif(not can_fake_cuda(), reason="torch is built without CUDA")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Tangled(nn.Module):
    """A graph with everything that ours have: shared parameters, several outputs, a checkpoint, two dtypes, no path."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.scale, self.unused = nn.Parameter(torch.rand(())), nn.Parameter(torch.rand(2))

    def forward(self, x):
        first, _, third = checkpoint(self.linear, x, use_reentrant=False).chunk(3)
        return self.scale * Doubled.apply(first.double() @ third.double().mT) + self.linear(x[:1]).sum() * self.scale


def test_the_backward_pass_of_fake_tensors_is_that_of_torch():
    torch.manual_seed(0)
    model, x = Tangled(), torch.randn(3, 3)
    model(x).square().sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    _backward(model(x).square().sum())
    assert {name for name, gradient in expected.items() if gradient is None} == {"unused"}
    for name, p in model.named_parameters():
        assert_close(p.grad, expected[name])


def test_a_gradient_on_another_device_is_refused():
    class Strays(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient.cpu()

    with fake_cuda() as device:
        x = torch.ones(2, device=device, requires_grad=True)
        with pytest.raises(RuntimeError, match="mixes devices: cpu for cuda:0"):
            Strays.apply(x).sum().backward()


def test_everything_is_as_before_afterwards():
    backward, log = torch.Tensor.backward, torch._subclasses.fake_tensor.log.disabled
    with fake_cuda() as device, torch.autocast("cuda", torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        assert torch.empty(2, device=device).device == torch.device("cuda:0")
    assert torch.Tensor.backward is backward
    assert torch._subclasses.fake_tensor.log.disabled is log
    assert type(torch.empty(2)) is torch.Tensor
    assert not torch.is_autocast_enabled("cuda")

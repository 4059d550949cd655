"""Muon steps as its formula says, each matrix as if it were alone; each parameter has the optimizer that suits it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_training import seeded
from torch import nn
from torch.testing import assert_close

from sciformer import ImageTransformer
from sciformer.training import TrainConfig, make_optimizers
from sciformer.training.optimizers import AdamW, Muon, orthogonalize


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 5, 7), (2, 7, 5), (3, 5, 11)])
def test_orthogonalize_pushes_singular_values_to_one(shape):
    matrices = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    result = orthogonalize(matrices)
    u, _, vt = torch.linalg.svd(matrices, full_matrices=False)
    values = torch.diagonal(u.mT @ result @ vt.mT, dim1=-2, dim2=-1)
    assert_close(result, u @ torch.diag_embed(values) @ vt)  # the singular vectors stay
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_muon_steps_like_torchs():
    def weights():
        generator = torch.Generator().manual_seed(0)
        return [nn.Parameter(torch.randn(s, generator=generator)) for s in ((5, 7), (5, 7), (7, 5), (11, 11))]

    ours, torchs = weights(), weights()
    muon = Muon(ours, lr=0.1, weight_decay=0.2)
    torch_muon = torch.optim.Muon(torchs, lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw")
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for a, b in zip(ours, torchs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        muon.step()
        torch_muon.step()
    for a, b, start in zip(ours, torchs, weights(), strict=True):
        moved = (b - start).norm()
        assert (a - b).norm() < 0.03 * moved  # torch's iteration runs in bfloat16


def test_even_rows_divide_each_row_by_its_running_size_and_keep_the_matrix_at_its_own():
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(shape, generator=generator) for shape in ((5, 7), (5, 7), (7, 5))]
    weights = [nn.Parameter(start.clone()) for start in starts]
    muon = Muon(weights, lr=0.1, weight_decay=0.2, even_rows=True)
    momenta = [torch.zeros_like(w) for w in starts]
    squares = [torch.zeros(len(w), 1) for w in starts]
    for step in range(3):
        for n, weight in enumerate(weights):
            weight.grad = torch.randn(weight.shape, generator=generator)
            weight.grad[0] *= 30  # a row that is louder than the others
            momenta[n] = 0.95 * momenta[n] + 0.05 * weight.grad
            direction = orthogonalize((0.05 * weight.grad + 0.95 * momenta[n])[None])[0]
            squares[n] = 0.95 * squares[n] + 0.05 * direction.square().mean(dim=1, keepdim=True)
            even = direction / squares[n].sqrt()
            even *= direction.norm() / even.norm()
            starts[n] = starts[n] * (1 - 0.1 * 0.2) - 0.1 * 0.2 * 7**0.5 * even
            if step == 0:  # every row is its own running mean
                assert_close(even.norm(dim=1), even.norm(dim=1).mean().expand(len(even)))
        muon.step()
        for weight, expected in zip(weights, starts, strict=True):
            assert_close(weight.detach(), expected, rtol=1e-4, atol=1e-5)


def test_even_rows_leave_a_matrix_without_gradient_where_it_is():
    weight = nn.Parameter(torch.ones(5, 7))
    weight.grad = torch.zeros(5, 7)
    Muon([weight], lr=0.1, even_rows=True).step()
    assert_close(weight.detach(), torch.ones(5, 7))


def test_even_rows_go_on_from_a_saved_state_in_float64():
    """Loading brings every state to the dtype of its parameter."""
    weight = nn.Parameter(torch.ones(5, 7, dtype=torch.float64))
    weight.grad = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    went_on = nn.Parameter(weight.detach().clone())
    went_on.grad = weight.grad.clone()
    before, after = Muon([weight], lr=0.1, even_rows=True), Muon([went_on], lr=0.1, even_rows=True)
    before.step()
    with torch.no_grad():
        went_on.copy_(weight)
    after.load_state_dict(before.state_dict())
    before.step()
    after.step()
    assert_close(went_on, weight)


@pytest.mark.parametrize("even_rows", [False, True])
def test_each_matrix_is_stepped_as_if_it_were_alone(even_rows):
    """Of one shape or another, in one dtype or another; and one without a gradient stays where it is."""
    generator = torch.Generator().manual_seed(0)
    kinds = [((5, 7), torch.float32)] * 2 + [((5, 7), torch.float64), ((5, 7), torch.bfloat16), ((7, 5), torch.float32)]
    starts = [(10.0**n * torch.randn(shape, generator=generator)).to(dtype) for n, (shape, dtype) in enumerate(kinds)]
    together, alone = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    for a, b in zip(together, alone, strict=True):
        a.grad, b.grad = a.detach().clone(), b.detach().clone()
        Muon([b], lr=0.1, even_rows=even_rows).step()
    idle = nn.Parameter(torch.ones(5, 7))
    Muon([idle, *together], lr=0.1, even_rows=even_rows).step()
    assert_close(together, alone)
    assert_close(idle.detach(), torch.ones(5, 7))


def test_a_matrix_in_half_precision_is_orthogonalised_in_float32():
    gradient = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight = nn.Parameter(torch.zeros(32, 64, dtype=torch.bfloat16))
    weight.grad = gradient
    Muon([weight], lr=1.0, momentum=0.0).step()
    assert_close(weight.detach(), (-0.2 * 8 * orthogonalize(gradient.float()[None])[0].bfloat16()).bfloat16())


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5)])
def test_muon_refuses_what_is_no_matrix(shape):
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        Muon([nn.Parameter(torch.zeros(shape))], lr=0.1)


def test_muon_takes_the_matrices_inside_the_stack_and_nothing_else():
    model = ImageTransformer(4, 2, 1, 3, 6, 2, 2)
    muon, adamw = make_optimizers(model, TrainConfig(10, optimizer="muon"))
    by_muon = {id(p) for group in muon.param_groups for p in group["params"]}
    named = {name for name, p in model.named_parameters() if id(p) in by_muon}
    assert named == {n for n, p in model.named_parameters() if n.startswith("blocks.") and p.dim() == 2}
    assert len(named) == 2 * 6
    in_order = [id(p) for p in model.parameters() if id(p) in by_muon]
    assert [id(p) for p in muon.param_groups[0]["params"]] == in_order  # as a checkpoint counts them
    others = [id(p) for group in adamw.param_groups for p in group["params"]]
    assert sorted(others) == sorted(id(p) for p in model.parameters() if id(p) not in by_muon)


@pytest.mark.parametrize("optimizer", ["muon", "normuon"])
def test_normuon_is_muon_with_even_rows(optimizer):
    muon, _ = make_optimizers(seeded(), TrainConfig(10, optimizer=optimizer))
    assert isinstance(muon, Muon)
    assert muon.defaults["even_rows"] is (optimizer == "normuon")


def test_adamw_is_as_the_config_says():
    (adamw,) = make_optimizers(seeded(), TrainConfig(10, lr=0.25, betas=(0.5, 0.75), weight_decay=0.125))
    assert (adamw.defaults["lr"], adamw.defaults["betas"]) == (0.25, (0.5, 0.75))
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.125, 0.0]


def test_adamw_steps_like_torchs_also_after_it_was_saved():
    def trained(kind, steps, saved=None):
        torch.manual_seed(0)
        layer = nn.Linear(3, 5)
        optimizer = kind(layer.parameters(), lr=0.1, weight_decay=0.2)
        if saved is not None:
            layer.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for _ in range(steps):
            layer(torch.linspace(-1, 1, 6).view(2, 3)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return layer.state_dict(), optimizer.state_dict()

    whole, halved = trained(torch.optim.AdamW, 4), trained(AdamW, 2, saved=trained(AdamW, 2))
    assert_close(halved[0], whole[0], rtol=0, atol=0)
    assert_close(halved[1]["state"], whole[1]["state"], rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_first_step_imports_no_compiler(optimizer):
    """torch's own optimizers import it at their first call: about 900 modules, which take longer than the step."""
    code = f"""
import sys
from torch.nn.functional import cross_entropy
from sciformer.training import TrainConfig, fit
from small_training import seeded, stream
model, before = seeded(), set(sys.modules)
fit(model, stream(), cross_entropy, TrainConfig(1, optimizer={optimizer!r}), progress=False)
print(*sorted(set(sys.modules) - before))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), *sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) < 20, done.stdout


def test_muon_needs_a_stack():
    with pytest.raises(ValueError, match=r"nn\.ModuleList"):
        make_optimizers(nn.Linear(3, 5), TrainConfig(10, optimizer="muon"))

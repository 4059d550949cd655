"""The GPU that the CPU plays computes what the CPU does, and refuses what a GPU refuses; in processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

START = "import pretend_cuda, torch\nimport torch.nn.functional as F\npretend_cuda.play()\n"

#: What a GPU refuses, and a piece of its words.
REFUSED = {
    "two devices": ("torch.ones(3, device='cuda') + torch.ones(3)", "expected all tensors on cuda:0, found (3,)"),
    "a mask on the CPU": ("torch.ones(3, device='cuda').masked_fill(torch.ones(3) > 0, 0.0)", "found (3,) on cpu"),
    "an index on the GPU": ("torch.ones(3)[torch.tensor([0], device='cuda')]", "found (3,) on cpu"),
    "NumPy": ("torch.ones(3, device='cuda').numpy()", "can't convert cuda:0 device type tensor to numpy"),
    "its generator": (
        "torch.rand(3, device='cuda', generator=torch.Generator())",
        "expected a cuda device type for generator but found cpu",
    ),
    "a buffer that stays": (
        "model = torch.nn.Linear(2, 2).cuda(); table = torch.ones(2); model(torch.ones(1, 2).cuda()) * table",
        "found (2,) on cpu",
    ),
}

#: What a GPU does, and what is then true.
DONE = {
    "it is there": "torch.cuda.is_available() and torch.ones(1).cuda().is_cuda",
    "numbers are numbers": "(torch.arange(3, device='cuda') * 2).tolist() == [0, 2, 4]",
    "made like another": "torch.zeros_like(torch.ones(2).cuda()).device == torch.device('cuda:0')",
    "a module like a tensor": "torch.nn.Linear(2, 3).to(torch.ones(1).cuda()).bias.is_cuda",
    "labels": "F.one_hot(torch.tensor([1]).cuda()).cpu().tolist() == [[0, 1]]",
    "no memory of meta": "torch.empty(1 << 40, device='meta').device.type == 'meta'",
    "an index on the CPU": "torch.ones(3).cuda()[torch.tensor([0])].is_cuda",
    "a number beside it": "(torch.ones(3).cuda() * torch.tensor(2.0)).tolist() == [2, 2, 2]",
    "back again": "not torch.ones(3).cuda().cpu().is_cuda",
}


def play(code):
    process = [sys.executable, "-c", START + code]
    return subprocess.run(process, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_a_gpu_refuses(name):
    code, words = REFUSED[name]
    result = play(code)
    assert result.returncode == 1
    assert words in result.stderr


def test_it_does_what_a_gpu_does():
    result = play("".join(f"print({name!r}, {code})\n" for name, code in DONE.items()))
    assert result.stdout.splitlines() == [f"{name} True" for name in DONE], result.stderr


def test_a_step_of_training_is_that_of_the_cpu():
    code = """
def step(device):
    torch.manual_seed(0)
    x, model = torch.randn(4, 2, 5, 8).to(device), torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    F.scaled_dot_product_attention(model(x), x, x, is_causal=True).square().sum().backward()
    optimizer.step()
    assert all(p.is_cuda == p.grad.is_cuda == (device == "cuda") for p in model.parameters())
    return model.weight.detach().cpu()

torch.testing.assert_close(step("cuda"), step("cpu"))
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.bfloat16
print("done")
"""
    result = play(code)
    assert result.stdout == "done\n", result.stderr

"""What a computation asks of a machine, counted by hand; the limits of the machine are round numbers."""

import pytest
import torch
import torch.nn.functional as F

from sciformer.lab import roofline
from sciformer.lab.measuring import median_seconds
from sciformer.lab.roofline import Machine, cost

MACHINE = Machine(flops=1e6, copies=[(1000, 1e5), (10_000, 1e4)])


def test_bandwidth_is_that_of_the_copy_at_least_as_large():
    assert [MACHINE.bandwidth(moved) for moved in (1, 1000, 1001, 10**9)] == [1e5, 1e5, 1e4, 1e4]


def test_the_slower_of_the_two_binds():
    assert MACHINE.seconds(flops=1e6, moved=1000) == 1.0
    assert MACHINE.seconds(flops=10, moved=1000) == 0.01


def test_a_product_and_its_sum():
    """3 · 5 · 7 multiplications and as many additions; then a sum that reads the product and writes one number."""
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    counted = cost(lambda: (a @ b).sum(), MACHINE)
    product, summed = 4 * (3 * 5 + 5 * 7 + 3 * 7), 4 * (3 * 7 + 1)
    assert counted.flops == 2 * 3 * 5 * 7
    assert counted.bytes == product + summed
    assert counted.least_seconds == pytest.approx(max(210 / 1e6, product / 1e5) + summed / 1e5)


@pytest.mark.parametrize(
    ("run", "moved"),
    [
        (lambda x: x.view(7, 5).mT[1:].expand(3, -1, -1), 0),
        (lambda x: torch.empty_like(x), 0),
        (lambda x: x.mul_(2), 2 * 35 * 4),
        (lambda x: torch.add(x, 1, out=torch.empty(35)), 2 * 35 * 4),
        (lambda x: x[:5].expand(7, 5) + x.view(7, 5), (5 + 35 + 35) * 4),
    ],
    ids=["views", "nothing written", "in place", "into another", "what is repeated is read once"],
)
def test_bytes_are_what_is_read_and_written(run, moved):
    x = torch.randn(35)
    assert cost(lambda: run(x), MACHINE).bytes == moved


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_fused_kernel_does_the_products_of_its_pairs(is_causal):
    """Two forward and five backward, as the scores are computed once more; a causal one leaves hidden pairs out."""
    B, H, L, D = 2, 3, 16, 8
    inputs = torch.randn(3, B, H, L, D, requires_grad=True)
    counted = cost(lambda: F.scaled_dot_product_attention(*inputs, is_causal=is_causal).sum().backward(), MACHINE)
    pairs = B * H * (L * (L + 1) // 2 if is_causal else L * L)
    assert counted.flops == (2 + 5) * 2 * D * pairs


def test_a_machine_is_measured_by_its_fastest_product_and_its_copies():
    torch.set_num_threads(1)
    machine = roofline.measure_machine(sides=(8, 256), copies=(2**12, 2**16))
    assert [size for size, _ in machine.copies] == [2**12, 2**16]
    a, b = torch.randn(2, 256, 256)
    assert machine.flops > 0.2 * 2 * 256**3 / median_seconds(lambda: a @ b, 5), "the small one is much slower"


def test_what_runs_at_its_limit_reaches_it():
    """A machine's own product cannot need less than the machine allows, but for the noise of two measurements."""
    machine = roofline.measure_machine(sides=(256,), copies=(2**20,))
    a, b = torch.randn(2, 256, 256)
    share = cost(lambda: a @ b, machine).least_seconds / roofline.fastest(lambda: a @ b, "cpu", repeats=20)
    assert 0.2 < share < 5

"""Batches: each epoch once, from a generator of their own."""

from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from sciformer.data import batches, random_affine


def test_batches_cover_each_epoch_once():
    values = torch.arange(23)
    stream = batches(values, -values, batch_size=5, seed=1)
    epochs = [list(islice(stream, 4)) for _ in range(3)]  # 23 = 4 · 5 + 3, and the 3 are dropped
    for epoch in epochs:
        seen = torch.cat([first for first, _ in epoch])
        assert len(seen) == len(seen.unique()) == 20
        for first, second in epoch:
            assert torch.equal(first, -second)
    assert not torch.equal(torch.cat([b[0] for b in epochs[0]]), torch.cat([b[0] for b in epochs[1]]))


def test_batches_depend_on_their_seed_alone():
    images = torch.rand(11, 1, 7, 5)

    def run(seed, disturb):
        stream = batches(images, batch_size=3, seed=seed, augment=random_affine)
        torch.manual_seed(disturb)
        for (batch,) in islice(stream, 7):
            torch.rand(disturb)
            yield batch

    first, second, other = (torch.stack(list(run(*args))) for args in ((5, 1), (5, 17), (6, 1)))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_batches_leave_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    next(batches(torch.ones(7, 1, 5, 5), batch_size=3, seed=0, augment=random_affine))
    assert torch.equal(torch.rand(2), expected)


def test_augment_only_changes_the_first_tensor():
    values = torch.arange(7.0)
    seen = []

    def augment(batch, generator):
        assert isinstance(generator, torch.Generator)
        seen.append(batch)
        return batch + 100

    for first, second in islice(batches(values, values, batch_size=3, seed=0, augment=augment), 5):
        assert torch.equal(first, second + 100)
        assert torch.equal(seen[-1], second)
    assert len(seen) == 5
    assert torch.equal(values, torch.arange(7.0))


def test_batches_errors_come_at_once():
    values = torch.arange(7)
    for batch_size in (0, -1, 8):
        with pytest.raises(ValueError, match=rf"batch_size must lie in 1\.\.7, .*got {batch_size}"):
            batches(values, batch_size=batch_size, seed=0)
    with pytest.raises(ValueError, match=r"got lengths \[7, 5\]"):
        batches(values, values[:5], batch_size=2, seed=0)
    with pytest.raises(ValueError, match=r"got lengths \[\]"):
        batches(batch_size=2, seed=0)
    (batch,) = next(batches(values, batch_size=7, seed=0))  # the largest that is allowed
    assert sorted(batch.tolist()) == list(range(7))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_batches_are_the_same_on_a_gpu():
    images, labels = torch.rand(11, 1, 7, 5), torch.arange(11)
    here = batches(images, labels, batch_size=3, seed=0, augment=random_affine)
    there = batches(images.cuda(), labels.cuda(), batch_size=3, seed=0, augment=random_affine)
    for (x, y), (x_gpu, y_gpu) in islice(zip(here, there, strict=True), 5):
        assert x_gpu.is_cuda
        assert torch.equal(y, y_gpu.cpu())
        assert_close(x_gpu.cpu(), x)

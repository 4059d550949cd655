"""The loop does what it says: learns, resumes to the bit, stops at NaN, and never leaves half a checkpoint."""

import math
import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from sciformer import ImageTransformer
from sciformer.lab.metrics import accuracy
from sciformer.training import TrainConfig, evaluate, fit, loop, make_optimizers, next_token_loss
from sciformer.training.optimizers import Muon, orthogonalize


class Stacked(nn.Module):
    """The smallest model with stacked blocks, and with dropout, so that the random state matters."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(5, 7), nn.Dropout(0.2), nn.Linear(7, 5)])
        self.read_out = nn.Linear(5, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.read_out(x)


def seeded(seed=0):
    torch.manual_seed(seed)
    return Stacked()


def stream(seed=0, count=None):
    """Batches of a task that can be learnt: which of the first three inputs is the largest."""
    generator = torch.Generator().manual_seed(seed)
    while count is None or count > 0:
        x = torch.randn(32, 5, generator=generator)
        yield x, x[:, :3].argmax(-1)
        count = None if count is None else count - 1


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


def test_muon_needs_a_stack():
    with pytest.raises(ValueError, match=r"nn\.ModuleList"):
        make_optimizers(nn.Linear(3, 5), TrainConfig(10, optimizer="muon"))


def test_learning_rate_warms_up_and_falls():
    config = TrainConfig(steps=110, lr=2.0, warmup_steps=10)
    assert [config.lr_at(step) for step in (0, 4, 9)] == pytest.approx([0.2, 1.0, 2.0])
    assert config.lr_at(10) == 2.0
    assert config.lr_at(60) == pytest.approx(1.0)
    assert 0 < config.lr_at(109) < 0.001
    line, constant = (replace(config, schedule=schedule) for schedule in ("line", "constant"))
    assert [line.lr_at(step) for step in (4, 10, 35, 60, 109)] == pytest.approx([1.0, 2.0, 1.5, 1.0, 0.02])
    assert [constant.lr_at(step) for step in (4, 10, 109)] == pytest.approx([1.0, 2.0, 2.0])
    assert replace(config, steps=10, warmup_steps=10).lr_at(10) == 2.0  # one past the last, as a curve may be drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "0 steps"),
        ({"steps": 5, "warmup_steps": 7}, "5 steps, 7"),
        ({"steps": 5, "warmup_steps": -1}, "5 steps, -1"),
        ({"steps": 5, "lr": 0.0}, r"got 0\.0 and 1\.0"),
        ({"steps": 5, "lr": math.nan}, "got nan"),
        ({"steps": 5, "grad_clip": 0.0}, r"0\.0"),
        ({"steps": 5, "optimizer": "sgd"}, "'sgd'"),
        ({"steps": 5, "schedule": "step"}, "'step'"),
    ],
)
def test_config_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**arguments)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_fit_learns(optimizer):
    model = seeded()
    config = TrainConfig(steps=300, lr=1e-2, optimizer=optimizer, warmup_steps=10)
    history = fit(model, stream(), F.cross_entropy, config, progress=False)
    assert len(history.loss) == 300
    assert sum(history.loss[-20:]) < 0.5 * sum(history.loss[:20])
    assert evaluate(model, stream(seed=1, count=10), accuracy) > 0.9


def test_the_rate_of_each_step_reaches_every_optimizer(monkeypatch):
    made, rates = [], []

    def make(*arguments):
        made.extend(make_optimizers(*arguments))
        return made

    def watch(step, model):
        rates.append([group["lr"] for optimizer in made for group in optimizer.param_groups])

    monkeypatch.setattr(loop, "make_optimizers", make)
    config = TrainConfig(steps=5, lr=1e-2, optimizer="muon", warmup_steps=2)
    fit(seeded(), stream(), F.cross_entropy, config, watch, progress=False)
    assert rates == [[config.lr_at(step)] * 3 for step in range(5)]
    assert config.with_steps(9) == replace(config, steps=9)
    assert config.with_steps(1) == replace(config, steps=1, warmup_steps=1)


@pytest.mark.parametrize(("grad_clip", "moved"), [(1e6, 0.1), (1e-12, 0.0)])
def test_gradients_are_clipped(grad_clip, moved):
    """AdamW's first step has the size of the rate, unless the gradient is below its eps, 1e-8."""
    model = nn.Linear(5, 3, bias=False)
    before = model.weight.detach().clone()
    config = TrainConfig(steps=1, lr=0.1, weight_decay=0.0, grad_clip=grad_clip)
    fit(model, [(torch.ones(2, 5), torch.zeros(2, 3))], lambda output, _: output.sum(), config, progress=False)
    assert_close(before - model.weight.detach(), torch.full((3, 5), moved), rtol=0, atol=1e-4)


def test_training_drops_out_whatever_mode_the_model_is_in():
    """Before the first step and after each look from outside."""
    config = TrainConfig(steps=3)
    expected = fit(seeded(), stream(), F.cross_entropy, config, progress=False)

    def leaves_it_in_eval(step, model):
        model.eval()

    torch.manual_seed(0)
    history = fit(Stacked().eval(), stream(), F.cross_entropy, config, leaves_it_in_eval, progress=False)
    assert history.loss == expected.loss


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_if_asked_for(progress, capsys):
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), progress=progress)
    assert ("3/3" in capsys.readouterr().err) is progress


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_weight_decay_spares_biases(optimizer):
    model = seeded()
    before = {name: p.clone() for name, p in model.named_parameters()}
    zeros = [(torch.zeros(2, 5), torch.zeros(2, 3))]
    config = TrainConfig(steps=1, lr=0.1, weight_decay=0.5, optimizer=optimizer)
    fit(model, zeros, lambda logits, target: (logits * target).sum(), config, progress=False)  # all gradients are 0
    for name, p in model.named_parameters():
        assert_close(p, before[name] * (0.95 if p.dim() == 2 else 1.0))


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
def test_what_is_frozen_stays_as_it_is(optimizer):
    model = seeded()
    frozen = [model.blocks[0].weight, model.read_out.weight, model.read_out.bias]
    before = [p.requires_grad_(False).clone() for p in frozen]
    config = TrainConfig(steps=2, lr=0.1, weight_decay=0.5, optimizer=optimizer)
    fit(model, stream(), F.cross_entropy, config, progress=False)
    assert_close(frozen, before, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "normuon"])
@pytest.mark.parametrize("stopped_at", [20, 25])
def test_resume_is_exact(tmp_path, optimizer, stopped_at):
    config = TrainConfig(steps=40, lr=1e-2, optimizer=optimizer, warmup_steps=5)

    def watch(step, model):
        return {"norm": model.read_out.weight.norm().item()} if step % 8 == 0 else None

    whole = seeded()
    expected = fit(whole, stream(), F.cross_entropy, config, watch, progress=False)

    def interrupt(step, model):
        if step == stopped_at:
            raise KeyboardInterrupt
        return watch(step, model)

    file = tmp_path / "new" / "run.pt"
    options = {"checkpoint": file, "checkpoint_every": 10, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        fit(seeded(), stream(), F.cross_entropy, config, interrupt, **options)
    resumed = seeded(seed=7)  # another process would start from other random numbers
    history = fit(resumed, stream(), F.cross_entropy, config, watch, **options)
    assert history.loss == expected.loss
    assert history.metrics == expected.metrics
    for a, b in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [f.name for f in file.parent.iterdir()] == ["run.pt"]
    again = fit(seeded(seed=8), stream(), F.cross_entropy, config, **options)  # finished: nothing left to do
    assert again.loss == expected.loss
    assert again.seconds >= torch.load(file)["history"]["seconds"]  # the time of all parts


def test_checkpoint_of_another_run_is_refused(tmp_path):
    options = {"checkpoint": tmp_path / "run.pt", "progress": False}
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), **options)
    with pytest.raises(ValueError, match=r"'steps': \(3, 5\)"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=5), **options)
    with pytest.raises(ValueError, match=r"another run \(saved, asked for\): '', 'seed 1'"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint_of="seed 1", **options)
    state = torch.load(tmp_path / "run.pt")
    torch.save(state | {"of": "seed 1"}, tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"another run \(saved, asked for\): 'seed 1', ''"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), **options)


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    options = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 2, "progress": False}
    save = torch.save

    def fails_the_second_time(state, path):
        if len(state["history"]["loss"]) > 2:
            path.write_bytes(b"half of a check")
            raise OSError("no space left")
        save(state, path)

    monkeypatch.setattr(torch, "save", fails_the_second_time)
    with pytest.raises(OSError, match="no space left"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=4), **options)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    assert len(torch.load(tmp_path / "run.pt")["history"]["loss"]) == 2


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"not a checkpoint"])
def test_damaged_checkpoint_is_refused(tmp_path, damage):
    file = tmp_path / "run.pt"
    fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=file, progress=False)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.pt is not a whole checkpoint .*; delete it"):
        fit(seeded(), stream(), F.cross_entropy, TrainConfig(steps=3), checkpoint=file, progress=False)


@pytest.mark.parametrize("bad_step", [0, 3, 55])
def test_a_loss_that_is_not_finite_stops_with_step_and_rate(tmp_path, bad_step):
    def batches():
        for n, (x, y) in enumerate(stream()):
            yield (x * math.nan if n == bad_step else x), y

    config, file = TrainConfig(steps=80, lr=0.125), tmp_path / "run.pt"
    message = rf"nan at step {bad_step + 1} of 80, with learning rate {config.lr_at(bad_step):.3g}"
    with pytest.raises(FloatingPointError, match=message):
        fit(seeded(), batches(), F.cross_entropy, config, checkpoint=file, checkpoint_every=57, progress=False)
    assert not file.exists()


def test_a_loss_that_is_not_finite_stops_a_short_run_without_checkpoints():
    with pytest.raises(FloatingPointError, match="nan at step 1 of 3"):
        fit(seeded(), stream(), lambda logits, _: math.nan * logits.sum(), TrainConfig(steps=3), progress=False)


def test_batches_start_anew_or_run_dry():
    three = list(stream(count=3))
    history = fit(seeded(), three, F.cross_entropy, TrainConfig(steps=10), progress=False)
    assert len(history.loss) == 10
    with pytest.raises(ValueError, match="ran dry after 3"):
        fit(seeded(), stream(count=3), F.cross_entropy, TrainConfig(steps=10), progress=False)
    with pytest.raises(ValueError, match="ran dry after 0"):
        fit(seeded(), [], F.cross_entropy, TrainConfig(steps=10), progress=False)


def test_evaluate_weighs_batches_by_their_size_and_restores_the_mode():
    model = nn.Dropout(0.5)
    model.register_parameter("anchor", nn.Parameter(torch.zeros(())))
    logits, labels = torch.eye(3), torch.tensor([0, 1, 1])
    batches = [(logits[:2], labels[:2]), (logits[2:], labels[2:])]
    for mode in (True, False):
        model.train(mode)
        assert evaluate(model, batches, accuracy) == pytest.approx(2 / 3)
        assert model.training is mode
    with pytest.raises(ValueError, match="empty"):
        evaluate(model, [], accuracy)


def test_evaluate_keeps_no_graph():
    def metric(logits, labels):
        assert not logits.requires_grad
        return accuracy(logits, labels)

    evaluate(seeded(), stream(count=1), metric)


def test_compiled_training_is_the_same_training():
    config = {"steps": 3, "lr": 1e-2}
    plain, compiled = nn.Linear(5, 3), nn.Linear(5, 3)
    compiled.load_state_dict(plain.state_dict())
    expected = fit(plain, stream(), F.cross_entropy, TrainConfig(**config), progress=False)
    try:
        history = fit(compiled, stream(), F.cross_entropy, TrainConfig(**config, compile=True), progress=False)
    except Exception as error:
        pytest.skip(f"torch.compile does not work here: {error!r:.100}")
    assert_close(torch.tensor(history.loss), torch.tensor(expected.loss))
    assert compiled.state_dict().keys() == plain.state_dict().keys()


def test_next_token_loss_leaves_padding_out():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[4, 1, 0], [2, 0, 0]])
    log_p = logits.log_softmax(-1)
    expected = -(log_p[0, 0, 4] + log_p[0, 1, 1] + log_p[1, 0, 2]) / 3
    assert_close(next_token_loss(logits, targets, pad=0), expected)
    assert_close(next_token_loss(logits, targets), F.cross_entropy(logits.flatten(0, 1), targets.flatten()))

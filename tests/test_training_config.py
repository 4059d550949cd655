"""A configuration is refused where it makes no sense, and its learning rate follows the schedule."""

import math
from dataclasses import replace

import pytest

from sciformer.training import TrainConfig


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
        ({"steps": 1.5}, "got 1.5 steps"),
        ({"steps": math.nan}, "got nan steps"),
        ({"steps": 1e3}, "got 1000.0 steps, .* need whole numbers"),
        ({"steps": 5, "warmup_steps": 1.5}, "5 steps, 1.5 of them"),
        ({"steps": 5, "lr": math.inf}, "got inf and 1.0"),
        ({"steps": 5, "weight_decay": math.nan}, "got nan and"),
        ({"steps": 5, "weight_decay": -1.0}, "got -1.0 and"),
        ({"steps": 5, "betas": (0.9, 1.0)}, r"\(0\.9, 1\.0\)"),
        ({"steps": 5, "optimizer": "sgd"}, "'sgd'"),
        ({"steps": 5, "schedule": "step"}, "'step'"),
    ],
)
def test_config_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**arguments)

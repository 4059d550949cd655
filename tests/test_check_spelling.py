"""What a terminal prints is written in plain characters."""

import pytest

from sciformer import check
from sciformer.check.spelling import spelled
from sciformer.exercises import EXERCISES


@pytest.mark.parametrize(
    ("formula", "plain"),
    [
        (r"Why $1/\sqrt d$", "Why 1/√d"),
        (r"by $\sqrt{D + 1}$.", "by √(D + 1)."),
        (r"$w_{ij} = e^{s_{ij} - t_i}$", "w_ij = e^(s_ij - t_i)"),
        (r"$w_j\,e^{-\alpha d^2}$?", "w_j e^(-α d²)?"),
        (r"$X^\top X = \sum_j x_j x_j^\top$", "Xᵀ X = Σ_j x_j x_jᵀ"),
        (r"$x + g \odot f(\text{norm}(x))$", "x + g ⊙ f(norm(x))"),
        ("no formula, `scores[..., None]`", "no formula, `scores[..., None]`"),
    ],
)
def test_a_formula_becomes_plain_characters(formula, plain):
    assert spelled(formula) == plain


@pytest.mark.parametrize("name", EXERCISES)
def test_nothing_that_an_exercise_prints_is_left_in_tex(name, capsys, monkeypatch):
    exercise = EXERCISES[name]
    monkeypatch.setattr(exercise, "_hinted", 0)
    for _ in exercise.hints:
        exercise.hint()
    said = [capsys.readouterr().out, spelled(exercise.section)]
    said += [part for fault in exercise.faults for part in (fault.says, spelled(fault.see or ""))]
    assert not [text for text in said if "$" in text or "\\" in text or "^{" in text]


def unscaled(query, key, value, attn_mask=None):
    scores = query @ key.T
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return scores.softmax(dim=-1) @ value


def test_the_section_to_read_again_is_spelled():
    message = check.scaled_dot_product.diagnose(unscaled, seed=0).message
    assert message.endswith("read again: notebook 02, 'Why 1/√d'")

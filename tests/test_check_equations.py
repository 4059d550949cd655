"""Equations of einsum that differ from a student's by one slip."""

import pytest
import torch

from sciformer import check
from sciformer.check.equations import other_equations


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("bhld,hdr,bhsd,hdr->bhls", "bhld,hdr,bhse,her->bhls"),  # one letter for two axes
        ("bhld,bhsd->bhsl", "bhld,bhsd->bhls"),  # exchanged behind the arrow
        ("ij,ij->ij", "ij,jj->ij"),  # one letter for another
        ("ij,ij", "ij,ik"),  # without an arrow
    ],
)
def test_one_slip_is_mended(wrong, right):
    assert right in list(other_equations(wrong))


def test_the_equation_itself_is_none_of_them_and_no_letter_is_lost():
    others = list(other_equations("bl,l->b"))
    assert "bl,l->b" not in others
    assert all(len(other) == len("bl,l->b") for other in others)


def test_a_letter_that_means_two_axes_is_told_with_the_equation_that_is_meant():
    def low_rank_scores(query, key, left, right):
        scores = torch.einsum("bhld,hdr,bhsd,hdr->bhls", query, left, key, right)
        return scores / left.shape[2] ** 0.5

    message = check.low_rank_scores.diagnose(low_rank_scores, seed=0).message
    assert "\n    scores = torch.einsum('bhld,hdr,bhse,her->bhls', query, left, key, right)\n" in message

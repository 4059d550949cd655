"""What students get of these exercises: what is asked, and on which inputs an answer is called. No answers."""

from torch import nn

from sciformer.check import Case, GradedLater
from sciformer.check.modules import run_module


def cosine_scores(query, key):
    """The cosine of every query with every key: (L, D) and (S, D) to (L, S)."""
    raise NotImplementedError


cosine_scores = GradedLater(
    cosine_scores,
    notebook="02",
    section="The formula",
    level="middle",  # 2 points
    minutes=10,
    cases=lambda draw: [
        Case("1 query, 2 keys", {"query": draw.normal(1, 3), "key": draw.normal(2, 3)}),
        Case("3 queries, 5 keys", {"query": draw.normal(3, 7), "key": draw.normal(5, 7)}),
    ],
)


class SharedHead(nn.Module):
    """An attention head in which one map makes the queries and the keys: (B, L, E) to (B, L, D)."""

    def __init__(self, embed_dim, head_dim):
        raise NotImplementedError


SharedHead = GradedLater(
    SharedHead,
    notebook="02",
    section="One head as a class",
    level="hard",  # 3 points
    minutes=15,
    cases=lambda draw: [
        Case(
            f"{tokens} tokens",
            {"x": draw.normal(2, tokens, 5), "look": draw.normal(3, 5), "value": draw.normal(3, 5)},
        )
        for tokens in (1, 4)
    ],
    call=lambda answer, x, look, value: run_module(answer, (5, 3), {"look.weight": look, "value.weight": value}, x),
)

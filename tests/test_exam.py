"""The pool of exam questions: its form, and every number in bold of its model answers, computed."""

import math
import re
from pathlib import Path

import pytest
import torch
from scipy import stats

from sciformer import MultiHeadAttention, TransformerBlock, causal_mask
from sciformer.check import EXERCISES

PAGE = (Path(__file__).parents[1] / "docs" / "exam.md").read_text(encoding="utf-8")
QUESTION = re.compile(
    r"^### (\d+) · notebook (\d\d) · (\w+) · (\d+) points\n\n(.+?)\n\n"
    r"<details><summary>Model answer</summary>\n\n(.+?)\n\n((?:- [^\n]+\n)+)\n</details>$",
    flags=re.M | re.S,
)
QUESTIONS = QUESTION.findall(PAGE)
BOLD = re.compile(r"\*\*(−?[\d,]+(?:\.\d+)?)\*\*")


def softmax(*scores):
    return torch.tensor(scores, dtype=torch.float64).softmax(dim=0).tolist()


def scaled_scores(query, key):
    return query @ key.mT / math.sqrt(query.shape[-1])


def question_1():
    x = torch.tensor([[1.0, 0], [0, 1], [1, 0]])
    weights = (x @ x.T).softmax(dim=-1)
    return [*weights[0], *(weights @ x)[0]]


def question_4():
    x = torch.tensor([[2.0], [0]])
    return (x @ x.T).softmax(dim=0).sum(dim=-1)


def question_6():
    query, key = torch.tensor([[2.0, 0, 0, 0]]), torch.tensor([[2.0, 0, 0, 0], [0, 2, 0, 0]])
    weights = scaled_scores(query, key).softmax(dim=-1)[0]
    return [*weights, weights @ torch.tensor([10.0, 20]), (query @ key.T).softmax(dim=-1)[0, 0]]


def question_8():
    def here(last):
        return softmax(0, 0, last)[:2]

    return [*here(math.log(2)), *softmax(0, 0), *here(0)]


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def question_9():
    shared = 2 * (512 * 512 + 512) + 2 * (512 * 128 + 128)
    return [parameters(MultiHeadAttention(512, 8)), shared, 512 / 128]


def question_10():
    x = torch.arange(8).view(1, 2, 4)
    return [*x.view(1, 2, 2, 2)[0, 0, 1], *x.view(1, 2, 2, 2).transpose(1, 2)[0, 0, 1]]


def question_11():
    table = EXERCISES["sinusoidal_table"].reference(108, 4).double()
    return [*table[3], table[5] @ table[7], table[105] @ table[107]]


def question_13():
    x = torch.tensor([1.0, 3, 5, 7])
    return [*torch.nn.functional.layer_norm(x, (4,), eps=0), *torch.nn.functional.rms_norm(x, (4,), eps=0)]


def question_15():
    block = TransformerBlock(64, 4)
    norms = parameters(block.attention_norm) + parameters(block.feed_forward_norm)
    return [parameters(block.attention), parameters(block.feed_forward), norms, parameters(block)]


def question_17():
    gains = torch.tensor([1.0] * 38 + [-1.0] * 30 + [0.0] * 1932, dtype=torch.float64)
    return [100 * gains.mean(), 100 * gains.std() / math.sqrt(len(gains))]


def question_23():
    a, b = torch.tensor([5.0, -3]), torch.tensor([0, math.log(3)])
    weights = (a[:, None] + b).softmax(dim=-1)
    torch.testing.assert_close(weights[0], weights[1])
    return weights[0]


def question_24():
    d = torch.linspace(0, 3, 3001, dtype=torch.float64)
    scores = -d * torch.exp(-0.5 * d**2)
    lowest = scores.argmin()
    return [d[lowest], scores[lowest], scores[lowest].exp(), scores[-1].exp()]


def question_26():
    ends = {"AC": 0.6 * 0.5, "AD": 0.6 * 0.5, "BC": 0.4 * 0.9, "BD": 0.4 * 0.1}
    best = max(ends, key=ends.get)
    assert best == "BC"
    return [ends["AC"], ends[best], math.log(ends[best])]


def question_28():
    training = [start for start in range(100) if start + 15 <= 80]
    test = [start for start in range(100) if start + 12 >= 80 and start + 15 <= 100]
    return [len(training), len(test)]


def question_29():
    trials = next(n for n in range(1000) if 1 - 0.95**n >= 0.95)
    return [trials, math.log(10) / math.log(1000), (1e-3 - 1e-4) / (1e-1 - 1e-4)]


def question_30():
    scores, values = torch.tensor([0, math.log(2), math.log(4)]), torch.tensor([1.0, 4, 10])
    return [scores[:2].softmax(0) @ values[:2], values[2], scores.softmax(0) @ values]


def question_32():
    gains = [0.4, 0.1, 0.5, 0.2, 0.3]
    found = stats.ttest_1samp(gains, 0)
    low, high = found.confidence_interval(0.95)
    deviation = torch.tensor(gains).std()
    return [sum(gains) / 5, deviation, deviation / math.sqrt(5), low, high]


def question_33():
    return [1 - 0.95**20, *EXERCISES["holm"].reference(torch.tensor([0.012, 0.02, 0.04]))]


def question_35():
    tokens = [0, 1, 2, 3, 4] * 2
    earlier = tokens.index(tokens[7])
    assert tokens[earlier + 1] == 3
    return [earlier + 1, earlier]


#: By question: the numbers in bold, in their order.
COMPUTED = {
    1: question_1,
    2: lambda: [1 - softmax(1, 0, 1)[1], 1, 0],
    3: lambda: [*softmax(0, math.log(3)), *softmax(0, 2 * math.log(3)), softmax(0, math.log(3) / 1e9)[0]],
    4: question_4,
    5: lambda: [(4000 / 1000) ** 2, 4000**2 * 4 / 1e6],
    6: question_6,
    7: lambda: [64 * 1 * 1, math.sqrt(64), math.sqrt(64 * 4) / math.sqrt(64)],
    8: question_8,
    9: question_9,
    10: question_10,
    11: question_11,
    13: question_13,
    15: question_15,
    16: lambda: [(28 // 7) ** 2, 7 * 7, 7 * 7 * 64 + 64, (28 // 4) ** 2, ((28 // 4) ** 2 / (28 // 7) ** 2) ** 2],
    17: question_17,
    18: lambda: [math.exp(-0.1), math.exp(-0.1 * 28)],
    20: lambda: [math.exp(1.5), 1.5 / math.log(2), math.log(65)],
    21: lambda: [*softmax(2, 1, 0), *softmax(2, 1), *softmax(4, 2, 0)],
    22: lambda: [2 * 12 * 768 * 1024 * 2 / 1e6],
    23: question_23,
    24: question_24,
    26: question_26,
    27: lambda: [16 * 0.25, (4 / 16) ** 2, 0.2, 0.75 * 0.2 + 0.25 * 1.0],
    28: question_28,
    29: question_29,
    30: question_30,
    31: lambda: [math.log(3.2 / 0.2, 4), math.log(32 / 8, 4), 0.2 * 64**2],
    32: question_32,
    33: question_33,
    34: lambda: [softmax(1, *[0] * 99)[0], softmax(10, *[0] * 99)[0]],
    35: question_35,
    36: lambda: [math.log(64)],
}


def test_the_pool_has_enough_of_every_kind_from_every_notebook():
    assert len(QUESTIONS) == PAGE.count("\n### ") >= 24
    assert [int(number) for number, *_ in QUESTIONS] == list(range(1, len(QUESTIONS) + 1))
    assert {notebook for _, notebook, *_ in QUESTIONS} == {f"{n:02}" for n in range(19)}
    kinds = [kind for _, _, kind, *_ in QUESTIONS]
    assert set(kinds) == {"compute", "predict", "mistake", "figure", "explain", "design"}
    assert all(kinds.count(kind) >= 2 for kind in set(kinds))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_the_rubric_gives_the_points(question):
    *_, points, _, _, rubric = question
    assert sum(int(n) for n in re.findall(r"^- (\d+) points?: ", rubric, flags=re.M)) == int(points)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_the_numbers_of_a_model_answer_are_right(question):
    number, _, kind, _, _, answer, _ = question
    printed = BOLD.findall(answer)
    assert bool(printed) == (int(number) in COMPUTED)
    assert printed or kind != "compute"
    computed = [float(x) for x in COMPUTED[int(number)]()] if printed else []
    assert len(printed) == len(computed)
    for text, value in zip(printed, computed, strict=True):
        digits = len(text.partition(".")[2])
        assert abs(float(text.replace(",", "").replace("−", "-")) - value) <= 0.5 * 10**-digits + 1e-6, (text, value)


def test_code_that_is_said_to_be_wrong_is_wrong():
    """Questions 8, 12 and 14: a leak through the denominator, and what a causal mask changes."""
    scores = torch.zeros(3, 3)
    mask = causal_mask(3)

    def after(scores):
        return scores.softmax(dim=-1).masked_fill(~mask, 0.0)

    changed = scores.clone()
    changed[0, 2] = 5.0
    assert not torch.allclose(after(scores)[0], after(changed)[0])
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(4, 1).double(), torch.randn(1, 3, 4, dtype=torch.float64)
    turned = x.flip(1)
    means = [attention(words)[0].mean(1) for words in (x, turned)]
    torch.testing.assert_close(*means)
    means = [attention(words, attn_mask=mask)[0].mean(1) for words in (x, turned)]
    assert not torch.allclose(*means)


def test_a_half_turn_keeps_the_distances_and_a_mirror_does_not():
    """Question 19, in rows of 4 pixels."""
    places = torch.arange(16).view(4, 4)
    distances = (places.flatten()[:, None] - places.flatten()).abs()
    for turned, same in ((places.rot90(2), True), (places.flip(1), False)):
        moved = turned.flatten()
        assert torch.equal((moved[:, None] - moved).abs(), distances) == same

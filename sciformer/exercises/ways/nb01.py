import math

import torch

from sciformer import naive_attention


def plain_attention(x):
    scores = x @ x.T  # (L, E) @ (E, L) = (L, L)
    weights = scores.softmax(dim=-1)  # over j: each row sums to 1
    return weights @ x, weights  # (L, L) @ (L, E) = (L, E)


def plain_attention__loop(x):
    output, weights = [], []
    for query in x:
        exponentials = torch.stack([(query * key).sum().exp() for key in x])
        row = exponentials / exponentials.sum()
        output.append(sum(w * value for w, value in zip(row, x, strict=True)))
        weights.append(row)
    return torch.stack(output), torch.stack(weights)


def plain_attention__einsum(x):
    x = x.double()
    weights = torch.einsum("ie,je->ij", x, x).softmax(dim=1)
    return torch.einsum("ij,je->ie", weights, x), weights


def plain_attention__package(x):
    return naive_attention(x)


def tempered_attention(x, temperature):
    scores = x @ x.T / temperature  # (L, L)
    return scores.softmax(dim=-1) @ x  # (L, L) @ (L, E) = (L, E)


def tempered_attention__loop(x, temperature):
    output = []
    for query in x:
        exponentials = torch.stack([((query * key).sum() / temperature).exp() for key in x])
        weights = exponentials / exponentials.sum()
        output.append(sum(w * value for w, value in zip(weights, x, strict=True)))
    return torch.stack(output)


def tempered_attention__einsum(x, temperature):
    x = x.double()
    weights = (torch.einsum("ie,je->ij", x, x) / temperature).softmax(dim=1)
    return torch.einsum("ij,je->ie", weights, x)


def tempered_attention__shorter_words(x, temperature):
    length = math.sqrt(temperature)
    return length * naive_attention(x / length)[0]


def bilateral_filter(signal, place_width, content_width):
    position = torch.arange(len(signal)).to(signal)  # (L,)
    positions = -((position[:, None] - position) ** 2) / (2 * place_width**2)  # (L, L)
    content = -((signal[:, None] - signal) ** 2) / (2 * content_width**2)  # (L, L)
    return (positions + content).softmax(dim=-1) @ signal  # added scores are multiplied kernels


def bilateral_filter__kernels(signal, place_width, content_width):
    def gaussian(x, width):
        return (-(torch.cdist(x[:, None], x[:, None]) ** 2) / (2 * width**2)).exp() / (width * math.sqrt(2 * math.pi))

    kernel = gaussian(torch.arange(len(signal)).to(signal), place_width) * gaussian(signal, content_width)
    return kernel / kernel.sum(dim=1, keepdim=True) @ signal


def bilateral_filter__loop(signal, place_width, content_width):
    output = []
    for i, asks in enumerate(signal):
        top, bottom = 0.0, 0.0
        for j, answers in enumerate(signal):
            score = (i - j) ** 2 / place_width**2 + (asks - answers) ** 2 / content_width**2
            weight = torch.exp(-score / 2)
            top, bottom = top + weight * answers, bottom + weight
        output.append(top / bottom)
    return torch.stack(output)


def bilateral_filter__normalised_twice(signal, place_width, content_width):
    position = torch.arange(len(signal), device=signal.device, dtype=torch.float64)
    positions = (-((position[:, None] - position) ** 2) / (2 * place_width**2)).softmax(dim=-1)
    weights = positions * torch.exp(-((signal[:, None] - signal) ** 2) / (2 * content_width**2))
    return torch.einsum("ij,j->i", weights / weights.sum(dim=-1, keepdim=True), signal.double())


def one_more_word(state, word):
    state = state + torch.outer(word, word)  # (E, E)
    return state @ word, state  # (E, E) @ (E,) = (E,)


def one_more_word__einsum(state, word):
    after = torch.einsum("d,e->de", word.double(), word.double()) + state
    return torch.einsum("d,de->e", word.double(), after), after


def one_more_word__loop(state, word):
    after = torch.stack(
        [torch.stack([s + a * b for s, b in zip(row, word, strict=True)]) for row, a in zip(state, word, strict=True)]
    )
    return torch.stack([sum(s * b for s, b in zip(row, word, strict=True)) for row in after]), after


def one_more_word__itself_apart(state, word):
    return word @ state + (word @ word) * word, state + word[:, None] * word

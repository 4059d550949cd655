import math

import torch
import torch.nn.functional as F
from torch import nn

from sciformer import LearnedPositions, TransformerBlock


class GPT(nn.Module):
    def __init__(
        self, vocab_size, max_length, embed_dim, num_heads, num_layers, *, positions=LearnedPositions, **block
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = positions(embed_dim, max_length)
        self.blocks = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, bias=False, **block) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim, bias=False)
        self.read_out = nn.Linear(embed_dim, vocab_size, bias=False)
        self.read_out.weight = self.embedding.weight

    def forward(self, tokens):  # (B, L), whole numbers
        x = self.positions(self.embedding(tokens))  # (B, L, E)
        for block in self.blocks:
            x, _ = block(x, is_causal=True)
        return self.read_out(self.norm(x))  # (B, L, V)


class GPT__by_hand(nn.Module):
    """The embedding's rows by index, the read-out as a product with the same table, the mask by hand."""

    def __init__(self, V, N, E, H, layers, *, positions=LearnedPositions, **options):
        super().__init__()
        self.blocks = nn.ModuleList([TransformerBlock(E, H, bias=False, **options) for _ in range(layers)])
        self.embedding, self.positions = nn.Embedding(V, E), positions(E, N)
        self.norm = nn.LayerNorm(E, bias=False)

    def forward(self, tokens):
        x = self.positions(self.embedding.weight[tokens])
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=x.device).tril()
        for n in range(len(self.blocks)):
            x = self.blocks[n](x, attn_mask=mask)[0]
        return torch.einsum("ble,ve->blv", self.norm(x), self.embedding.weight)


def write_on(model, tokens, count, temperature, draw, longest):
    for _ in range(count):
        logits = model(tokens[:, -longest:])[:, -1]  # (B, V), after the last character that fits
        p = (logits / temperature).softmax(dim=-1)
        tokens = torch.cat([tokens, draw(p)[:, None]], dim=1)
    return tokens


def write_on__by_hand(model, tokens, count, temperature, draw, longest):
    """A list of columns, and the softmax from exponentials."""
    columns = list(tokens.unbind(dim=1))
    while len(columns) < tokens.shape[1] + count:
        heated = model(torch.stack(columns[-longest:], dim=1))[:, -1, :] * (1 / temperature)
        weight = (heated - heated.amax(dim=-1, keepdim=True)).exp()
        columns.append(draw(weight / weight.sum(dim=-1, keepdim=True)))
    return torch.stack(columns, dim=1)


def turn(x, offset):
    L, D = x.shape[-2:]
    position = offset + torch.arange(L, device=x.device)  # (L,)
    speed = 10_000.0 ** (-torch.arange(0, D, 2, device=x.device) / D)  # (D/2,)
    angle = position[:, None] * speed  # (L, D/2)
    a, b = x.chunk(2, dim=-1)  # (B, H, L, D/2) each: the two features of every pair
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


def turn__by_hand(x, offset):
    """Feature by feature."""
    D, features = x.shape[-1], [None] * x.shape[-1]
    for m in range(D // 2):
        angle = torch.tensor([(offset + t) / 10_000 ** (2 * m / D) for t in range(x.shape[-2])]).to(x)
        features[m] = x[..., m] * angle.cos() - x[..., m + D // 2] * angle.sin()
        features[m + D // 2] = x[..., m] * angle.sin() + x[..., m + D // 2] * angle.cos()
    return torch.stack(features, dim=-1)


def turn__complex(x, offset):
    D, position = x.shape[-1], torch.arange(x.shape[-2], device=x.device).double()
    angle = (offset + position)[:, None] * 10_000.0 ** (-torch.arange(0, D, 2, device=x.device).double() / D)
    pairs = torch.complex(*x.double().chunk(2, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pairs.real, pairs.imag], dim=-1).to(x.dtype)


def mix_previous(x, weight):
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]  # (B, L, E): one row of zeros in front, the last token left out
    return x + weight * before


def mix_previous__by_hand(x, weight):
    mixed = x.clone()
    mixed[:, 1:] += x[:, :-1] * weight
    return mixed


def text_perplexity(logits, tokens):
    log_p = logits[:, :-1].log_softmax(dim=-1)  # (B, L - 1, V)
    losses = -log_p.gather(-1, tokens[:, 1:, None])  # (B, L - 1, 1)
    return losses.mean().exp()


def text_perplexity__cross_entropy(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return math.e**loss


def text_perplexity__channels(logits, tokens):
    """Logits before positions, as cross_entropy wants them, and two to the bits."""
    bits = F.cross_entropy(logits.mT[:, :, :-1], tokens[:, 1:]) / math.log(2)
    return 2**bits


def text_perplexity__loop(logits, tokens):
    product, count = 1.0, 0
    for text, row in zip(logits, tokens, strict=True):
        for t in range(len(row) - 1):
            p = text[t].exp() / text[t].exp().sum()
            product, count = product / p[row[t + 1]], count + 1
    return product ** (1 / count)


def nucleus(logits, temperature, top_p):
    p = (logits / temperature).softmax(dim=-1)  # (B, V)
    ordered, order = p.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered  # what the likelier ones have, without this one
    kept = ordered * (before < top_p)
    kept = kept / kept.sum(dim=-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, kept)


def nucleus__hidden_logits(logits, temperature, top_p):
    logits = logits / temperature
    order = logits.argsort(dim=-1, descending=True)
    p = logits.softmax(dim=-1).gather(-1, order)
    out = p.cumsum(dim=-1) >= top_p
    out = torch.cat([torch.zeros_like(out[:, :1]), out[:, :-1]], dim=-1)  # the one that crosses is still in
    return logits.masked_fill(out.gather(-1, order.argsort(dim=-1)), -math.inf).softmax(dim=-1)


def nucleus__loop(logits, temperature, top_p):
    rows = []
    for row in logits.double():
        p = torch.exp(row / temperature) / torch.exp(row / temperature).sum()
        kept, total = [], 0.0
        while total < top_p:
            best = max((v for v in range(len(p)) if v not in kept), key=lambda v: p[v].item())
            kept.append(best)
            total += p[best].item()
        rows.append(torch.stack([p[v] if v in kept else 0 * p[v] for v in range(len(p))]) / p[kept].sum())
    return torch.stack(rows)


def nucleus__threshold(logits, temperature, top_p):
    p = (logits / temperature).softmax(dim=-1)
    likelier = (p[:, None, :] > p[:, :, None]) * p[:, None, :]  # (B, V, V)
    kept = p * (likelier.sum(dim=-1) < top_p)
    return kept / kept.sum(dim=-1, keepdim=True)


def read_piece(x, table, layers, cache):
    read, L = cache.get("read", 0), x.shape[1]
    cache["read"] = read + L
    x = x + table[read : read + L]
    seen = torch.ones(L, read + L, device=x.device).tril(diagonal=read).bool()  # (L, S)
    for n, layer in enumerate(layers):
        query, key, value = layer(x)  # (B, L, E)
        if n in cache:
            key, value = torch.cat([cache[n][0], key], dim=1), torch.cat([cache[n][1], value], dim=1)  # (B, S, E)
        cache[n] = key, value
        scores = query @ key.mT / math.sqrt(x.shape[-1])  # (B, L, S)
        x = x + scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ value
    return x


def read_piece__one_by_one(x, table, layers, cache):
    """A loop over the new tokens needs no mask."""
    states = []
    for t in range(x.shape[1]):
        state = x[:, t : t + 1] + table[cache.setdefault("read", 0)]
        cache["read"] += 1
        for layer in layers:
            query, key, value = layer(state)
            keys, values = cache.setdefault(layer, ([], []))
            keys.append(key)
            values.append(value)
            scores = torch.einsum("bie,bje->bij", query, torch.cat(keys, dim=1)) / x.shape[-1] ** 0.5
            state = state + scores.softmax(dim=-1) @ torch.cat(values, dim=1)
        states.append(state)
    return torch.cat(states, dim=1)


def read_piece__fused(x, table, layers, cache):
    old = cache.get("layers", [None] * len(layers))
    read = 0 if old[0] is None else old[0].shape[2]
    L, new = x.shape[1], []
    x = x + table[torch.arange(read, read + L, device=x.device)]
    mask = torch.arange(read + L, device=x.device) <= torch.arange(read, read + L, device=x.device)[:, None]
    for memory, layer in zip(old, layers, strict=True):
        query, *pair = layer(x)
        pair = torch.stack(pair)  # (2, B, L, E)
        new.append(pair if memory is None else torch.cat([memory, pair], dim=2))
        x = F.scaled_dot_product_attention(query, new[-1][0], new[-1][1], attn_mask=mask) + x
    cache["layers"] = new
    return x


def read_piece__double(x, table, layers, cache):
    """Keys and values in one list, in float64."""
    memory = cache.setdefault("memory", [x.new_zeros(2, x.shape[0], 0, x.shape[2]).double() for _ in layers])
    x = x + table[memory[0].shape[2] :][: x.shape[1]]
    for n, layer in enumerate(layers):
        query, key, value = (part.double() for part in layer(x))
        memory[n] = torch.cat([memory[n], torch.stack([key, value])], dim=2)
        scores = query @ memory[n][0].mT / math.sqrt(x.shape[-1])
        rank = torch.arange(scores.shape[-1], device=x.device) - scores.shape[-1] + scores.shape[-2]
        later = rank > torch.arange(scores.shape[-2], device=x.device)[:, None]
        x = x + ((scores - 1e30 * later).softmax(dim=-1) @ memory[n][1]).to(x.dtype)
    return x


def test_nucleus(nucleus):
    logits = torch.tensor([[0.3, 1.2, -0.9, 0.6, 0.0], [-1.0, 0.2, 4.0, -0.3, 0.5]])  # the second has a clear favourite
    for temperature, top_p in ((0.5, 0.7), (2.0, 0.5), (1.0, 0.9)):
        p = (logits / temperature).softmax(dim=-1)  # (B, V)
        likelier = p[:, None, :] > p[:, :, None]  # (B, V, V): is the last one likelier than the one before it?
        kept = p * ((likelier * p[:, None, :]).sum(dim=-1) < top_p)
        torch.testing.assert_close(nucleus(logits, temperature, top_p), kept / kept.sum(dim=-1, keepdim=True))


def test_nucleus__by_hand(nucleus):
    """Probabilities that can be added up by hand: 0.1, 0.6, 0.3 and 0.95, 0.01, 0.04."""
    p = torch.tensor([[0.1, 0.6, 0.3], [0.95, 0.01, 0.04], [0.3, 0.1, 0.6]])
    expected = {
        0.5: [[0, 1, 0], [1, 0, 0], [0, 0, 1]],
        0.8: [[0, 2 / 3, 1 / 3], [1, 0, 0], [1 / 3, 0, 2 / 3]],
        0.97: [[0.1, 0.6, 0.3], [0.95 / 0.99, 0, 0.04 / 0.99], [0.3, 0.1, 0.6]],
    }
    for temperature in (0.25, 1.0, 3.0):
        logits = temperature * p.log() + 0.5
        for top_p, result in expected.items():
            torch.testing.assert_close(nucleus(logits, temperature, top_p), torch.tensor(result).float())

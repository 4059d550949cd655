import torch
import torch.nn.functional as F


def hidden_loss(predicted, patches, visible):
    return F.mse_loss(predicted[~visible], patches[~visible])


def hidden_loss__loop(predicted, patches, visible):
    total, count = 0, 0
    for b in range(len(visible)):
        for n in range(visible.shape[1]):
            if not visible[b, n]:
                total = total + ((predicted[b, n] - patches[b, n]) ** 2).sum()
                count += patches.shape[2]
    return total / count


def hidden_loss__weights(predicted, patches, visible):
    """As in the paper's own code."""
    hidden = (~visible).double()
    errors = (predicted.double() - patches.double()).square().mean(dim=-1)  # (B, L)
    return ((errors * hidden).sum() / hidden.sum()).to(predicted.dtype)


def choose_visible(noise, hidden_share):
    L = noise.shape[1]
    rank = noise.argsort(dim=1).argsort(dim=1)  # (B, L): 0 for the smallest of its row
    return rank < L - round(hidden_share * L)


def choose_visible__topk(noise, hidden_share):
    hidden = noise.topk(round(hidden_share * noise.shape[1]), dim=1).indices
    return torch.ones_like(noise, dtype=torch.bool).scatter(1, hidden, False)


def choose_visible__kept(noise, hidden_share):
    kept = noise.shape[1] - round(hidden_share * noise.shape[1])
    return noise <= noise.sort(dim=1).values[:, kept - 1 : kept]


def choose_visible__loop(noise, hidden_share):
    mask = torch.ones_like(noise).bool()
    for b, row in enumerate(noise.tolist()):
        for largest in sorted(row, reverse=True)[: round(hidden_share * len(row))]:
            mask[b, row.index(largest)] = False
    return mask


def frozen_features(encoder, train, test):
    with torch.no_grad():
        train, test = encoder(train), encoder(test)  # (N, F), (M, F)
    mean, deviation = train.mean(dim=0), train.std(dim=0)  # (F,)
    return (train - mean) / deviation, (test - mean) / deviation


def frozen_features__detached(encoder, train, test):
    features = encoder(torch.cat([train, test])).detach()
    mine = features[: len(train)]
    centred = features - mine.mean(0, keepdim=True)
    scaled = centred / mine.var(0, keepdim=True).sqrt()
    return list(scaled.split([len(train), len(test)]))


def frozen_features__loop(encoder, train, test):
    train, test = encoder(train).detach().clone(), encoder(test).detach().clone()
    for f in range(train.shape[1]):
        mean, deviation = train[:, f].mean(), train[:, f].std()
        train[:, f], test[:, f] = (train[:, f] - mean) / deviation, (test[:, f] - mean) / deviation
    return train, test


def decoded_from_visible(patches, kept, embedding, positions, encoder, mask_token, decoder_positions, decoder):
    tokens = patches @ embedding + positions  # (B, L, E)
    rows = torch.arange(len(kept), device=kept.device)[:, None]  # (B, 1)
    seen = encoder(tokens[rows, kept])  # (B, V, E)
    everywhere = mask_token.expand_as(tokens).clone()
    everywhere[rows, kept] = seen
    return decoder(everywhere + decoder_positions)


def decoded_from_visible__gather(patches, kept, embedding, positions, encoder, mask_token, decoder_positions, decoder):
    """As in the paper's own code: mask tokens behind the visible ones, then all of them back by the inverse order."""
    tokens = torch.einsum("blp,pe->ble", patches, embedding) + positions[None]
    B, L, E = tokens.shape
    seen = encoder(tokens.gather(1, kept[..., None].expand(-1, -1, E)))
    hidden = [[n for n in range(L) if n not in row] for row in kept.tolist()]
    order = torch.cat([kept, torch.tensor(hidden, device=kept.device)], dim=1)
    everywhere = torch.cat([seen, mask_token.repeat(B, L - kept.shape[1], 1)], dim=1)
    everywhere = everywhere.gather(1, order.argsort(dim=1)[..., None].expand(-1, -1, E))
    return decoder(everywhere + decoder_positions)


def decoded_from_visible__sorted(patches, kept, embedding, positions, encoder, mask_token, decoder_positions, decoder):
    """The encoder does not care about the order, so the visible ones may as well stand as in the image."""
    visible = torch.zeros(patches.shape[:2], dtype=torch.bool, device=kept.device).scatter(1, kept, True)
    tokens = (patches @ embedding + positions)[visible].view(len(kept), kept.shape[1], -1)
    everywhere = mask_token.expand(*visible.shape, -1).masked_scatter(visible[..., None], encoder(tokens))
    return decoder(everywhere + decoder_positions)

import torch
import torch.nn.functional as F
from torch import nn

from sciformer import Classifier, ImageToSequence, ImageTransformer, LearnedPositions, TransformerBlock


def cut_into_patches(image, patch_size):
    patches = F.unfold(image[None], patch_size, stride=patch_size)  # (1, numbers, patches)
    return patches[0].T


def cut_into_patches__loop(image, patch_size):
    _, height, width = image.shape
    patches = []
    for row in range(0, height, patch_size):
        for column in range(0, width, patch_size):
            patches.append(image[:, row : row + patch_size, column : column + patch_size].flatten())
    return torch.stack(patches)


def cut_into_patches__permute(image, patch_size):
    channels, height, width = image.shape
    grid = image.view(channels, height // patch_size, patch_size, width // patch_size, patch_size)
    return grid.permute(1, 3, 0, 2, 4).reshape(-1, channels * patch_size**2)


def cut_into_patches__tensor_unfold(image, patch_size):
    windows = image.unfold(1, patch_size, patch_size).unfold(2, patch_size, patch_size)  # (C, rows, columns, P, P)
    return windows.movedim(0, 2).flatten(0, 1).flatten(1)


def cut_into_patches__convolution(image, patch_size):
    numbers = image.shape[0] * patch_size**2
    kernel = torch.eye(numbers).view(numbers, image.shape[0], patch_size, patch_size).to(image)
    return F.conv2d(image[None], kernel, stride=patch_size).flatten(2)[0].T


def embed_patches(images, weight, bias):
    grid = F.conv2d(images, weight, bias, stride=weight.shape[-1])  # (B, E, rows, columns)
    return grid.flatten(2).transpose(1, 2)  # (B, L, E)


def embed_patches__by_hand(images, weight, bias):
    patches = torch.stack([cut_into_patches(image, weight.shape[-1]) for image in images])  # (B, L, C·P·P)
    return patches @ weight.flatten(1).T + bias


def embed_patches__einsum(images, weight, bias):
    size = weight.shape[-1]
    windows = images.unfold(2, size, size).unfold(3, size, size)  # (B, C, rows, columns, P, P)
    return torch.einsum("bcrshw,echw->brse", windows, weight).flatten(1, 2) + bias


class VisionTransformer(nn.Module):
    def __init__(self, image_size, patch_size, embed_dim, num_heads, num_layers):
        super().__init__()
        self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
        self.positions = LearnedPositions(embed_dim, self.to_sequence.num_tokens)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, expansion=2) for _ in range(num_layers))
        self.classifier = Classifier(embed_dim, 10)

    def forward(self, images):  # (B, 1, H, W)
        projection = self.to_sequence.projection
        tokens = embed_patches(images, projection.weight, projection.bias)  # (B, L, E)
        tokens = tokens + self.positions.table
        for block in self.blocks:
            tokens, _ = block(tokens)
        summary = self.classifier.norm(tokens).mean(dim=1)  # (B, E)
        return self.classifier.linear(summary)  # (B, 10)


def VisionTransformer__package(image_size, patch_size, embed_dim, num_heads, num_layers):
    return ImageTransformer(image_size, patch_size, 1, 10, embed_dim, num_heads, num_layers, expansion=2)


class VisionTransformer__modules(VisionTransformer):
    def forward(self, images):
        tokens = self.positions(self.to_sequence(images))
        for block in self.blocks:
            tokens = block(tokens)[0]
        return self.classifier(tokens)


def logits_from_patches(patches, embedding, positions, blocks, head):
    tokens = patches @ embedding + positions  # (B, L, E)
    for block in blocks:
        tokens = block(tokens)
    votes = tokens @ head  # (B, L, classes)
    return votes.mean(dim=1)  # (B, classes)


def logits_from_patches__einsum(patches, embedding, positions, blocks, head):
    tokens = torch.einsum("blp,pe->ble", patches, embedding)
    tokens = tokens + positions.expand_as(tokens)
    for block in blocks:
        tokens = block(tokens)
    return torch.einsum("ble,ek->bk", tokens, head) / tokens.shape[1]


def logits_from_patches__one_image_at_a_time(patches, embedding, positions, blocks, head):
    logits = []
    for image in patches:
        tokens = torch.stack(
            [F.linear(patch, embedding.T, position) for patch, position in zip(image, positions, strict=True)]
        )
        for block in blocks:
            tokens = block(tokens)
        logits.append(sum(token @ head for token in tokens) / len(tokens))
    return torch.stack(logits)


def logits_from_patches__mean_token(patches, embedding, positions, blocks, head):
    tokens = (patches.double() @ embedding.double()).to(patches.dtype) + positions[None]
    for block in blocks:
        tokens = block(tokens)
    return tokens.mean(dim=-2) @ head


def order_matters(model, images, patch_size):
    patches = F.unfold(images, patch_size, stride=patch_size)  # (B, numbers, patches)
    for _ in range(10):
        shuffled = patches[:, :, torch.randperm(patches.shape[2])]
        moved = F.fold(shuffled, images.shape[2:], patch_size, stride=patch_size)
        if not torch.allclose(model(images), model(moved), atol=1e-5):
            return True
    return False


def order_matters__loop(model, images, patch_size):
    height, width = images.shape[2:]
    corners = [(row, column) for row in range(0, height, patch_size) for column in range(0, width, patch_size)]
    moved = torch.empty_like(images)
    for n, (row, column) in enumerate(corners):
        to_row, to_column = corners[n - 1]
        moved[:, :, to_row : to_row + patch_size, to_column : to_column + patch_size] = images[
            :, :, row : row + patch_size, column : column + patch_size
        ]
    return not torch.allclose(model(images), model(moved), atol=1e-5)


def order_matters__permute(model, images, patch_size):
    batch, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    grid = images.view(batch, channels, rows, patch_size, columns, patch_size).transpose(3, 4).flatten(2, 3)
    before, changes = model(images), []
    for _ in range(10):
        other = grid[:, :, torch.randperm(rows * columns)].unflatten(2, (rows, columns)).transpose(3, 4)
        after = model(other.reshape(images.shape))
        changes.append(bool(((before - after).abs() > 1e-5 + 1e-5 * after.abs()).any()))
    return any(changes)


def order_matters__several_tries(model, images, patch_size):
    patches = F.unfold(images, patch_size, stride=patch_size)
    for _ in range(10):
        order = torch.rand(patches.shape[-1], device=images.device).argsort()
        moved = F.fold(patches[..., order], images.shape[-2:], patch_size, stride=patch_size)
        if not torch.allclose(model(moved), model(images), atol=1e-5):
            return True
    return False

"""The encoder–decoder that reads a picture: by hand from its parts, and how it writes."""

import pytest
import torch
from torch.testing import assert_close

from sciformer import ImageToText, SeparableAdditiveScore, Transformer
from sciformer.fast.cache import Cache
from sciformer.models import decoding

B, L, E, H, VOCAB, MAX_LENGTH = 3, 5, 12, 3, 11, 8
EXACTLY = {"rtol": 1e-12, "atol": 1e-12}
SIZES = ((4, 10), 2, 1, VOCAB, MAX_LENGTH, E, H, 2, 1)  # 2 × 5 patches, two blocks that read, one that writes


def build(**options):
    """In float64 and not training, with every number away from where it starts."""
    torch.manual_seed(0)
    model = ImageToText(*SIZES, **options).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def pair():
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(3, VOCAB, (B, L), generator=generator)
    target[:, 0] = 1
    return torch.rand(B, 1, 4, 10, generator=generator, dtype=torch.float64), target


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_by_hand_from_its_parts(norm_first):
    model, (pictures, target) = build(norm_first=norm_first), pair()
    encoded = model.source_embedding(pictures) + model.source_positions.table
    for block in model.encoder:
        encoded = block(encoded)[0]
    encoded = model.encoder_norm(encoded)
    x = model.target_positions(E**0.5 * model.target_embedding.weight[target])
    for block in model.decoder:
        x = block(x, encoded)[0]
    expected = model.decoder_norm(x) @ model.target_embedding.weight.T
    assert_close(model(pictures, target), expected, **EXACTLY)


def test_all_but_the_way_in_is_the_transformer():
    """The same parameters by name and shape, except for the source's embedding and positions."""
    torch.manual_seed(0)
    of_text = Transformer(13, VOCAB, MAX_LENGTH, E, H, 2)
    of_pictures = ImageToText((4, 10), 2, 1, VOCAB, MAX_LENGTH, E, H, 2, 2)
    shapes = [
        {name: p.shape for name, p in model.named_parameters() if not name.startswith("source_")}
        for model in (of_text, of_pictures)
    ]
    assert shapes[0] == shapes[1]
    own = {name: tuple(p.shape) for name, p in of_pictures.named_parameters() if name.startswith("source_")}
    assert own == {
        "source_embedding.projection.weight": (E, 1, 2, 2),
        "source_embedding.projection.bias": (E,),
        "source_positions.table": (10, E),
    }
    assert of_pictures.target_embedding.weight.norm(dim=1).mean().item() == pytest.approx(1, rel=0.2)


def test_every_patch_matters_to_every_letter():
    model, (pictures, target) = build(), pair()
    before = model(pictures, target)
    for top in (0, 2):
        for left in range(0, 10, 2):
            changed = pictures.clone()
            changed[:, :, top : top + 2, left : left + 2] += 0.5
            assert (model(changed, target) - before).abs().amax(-1).min() > 1e-6


def test_weights_of_all_three_attentions():
    model, (pictures, target) = build(), pair()
    maps = model.attention_weights(pictures, target)
    assert {kind: [tuple(m.shape) for m in each] for kind, each in maps.items()} == {
        "encoder": [(B, H, 10, 10)] * 2,
        "decoder": [(B, H, L, L)],
        "cross": [(B, H, L, 10)],
    }
    for weights in (m for each in maps.values() for m in each):
        assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert maps["cross"][0].min() > 0  # no patch is padding


def test_cache_gives_the_logits_of_the_whole_pass():
    model, (pictures, target) = build(cross_score=SeparableAdditiveScore), pair()
    encoded, cache = model.encode(pictures), Cache()
    parts = [model.decode(chunk, *encoded, cache=cache) for chunk in target.split([2, 1, 2], dim=1)]
    assert_close(torch.cat(parts, dim=1), model(pictures, target), **EXACTLY)


def test_greedy_writes_what_is_likeliest_and_a_beam_of_one_is_greedy():
    model, (pictures, _) = build(), pair()
    written = model.greedy(pictures)
    for row, picture in zip(written, pictures, strict=True):
        tokens = torch.tensor([[1]])
        while tokens[0, -1] != 2 and tokens.shape[1] <= MAX_LENGTH:
            likeliest = model(picture[None], tokens)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat((tokens, likeliest), dim=1)
        assert row[: tokens.shape[1]].tolist() == tokens[0].tolist()
        assert not row[tokens.shape[1] :].any()
    assert torch.equal(model.beam(pictures, 1)[0][:, 0], written)
    assert torch.equal(decoding.greedy(model, pictures, 2), written[:, :3])


def test_what_the_encoder_reads_is_dropped_in_training():
    model, (pictures, _) = build(dropout=0.5).train(), pair()
    model.encoder.eval()
    assert not torch.equal(model.encode(pictures)[0], model.encode(pictures)[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: (4, 9)}, r"image_size \(4, 9\) is not divisible by patch_size 2"),
        ({4: 0}, "max_length must be at least 1, got 0"),
        ({7: 0}, "encoder_layers must be at least 1, got 0"),
        ({8: 0}, "decoder_layers must be at least 1, got 0"),
        ({3: 2}, "pad, start and end must be three tokens among the target's 2, got 0, 1, 2"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ImageToText(*(changes.get(n, size) for n, size in enumerate(SIZES)))


def test_pictures_of_another_size_are_refused():
    model, (_, target) = build(), pair()
    with pytest.raises(ValueError, match=r"images must be \(B, 1, 4, 10\), got \(3, 1, 4, 8\)"):
        model(torch.rand(B, 1, 4, 8, dtype=torch.float64), target)

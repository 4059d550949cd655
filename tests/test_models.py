"""What every model owes: each option reaches each of its blocks."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from sciformer import (
    CharTransformer,
    DecoderBlock,
    ImageTransformer,
    MaskedImageModel,
    Transformer,
    TransformerBlock,
    random_visible,
)
from sciformer.fast.cache import Cache

B, L, E, H = 2, 5, 6, 3
MODELS = {
    "images": (partial(ImageTransformer, 6, 2, 1, 10, E, H, 2), 2),
    "characters": (partial(CharTransformer, 7, 5, E, H, 2), 2),
    "masked images": (partial(MaskedImageModel, 6, 2, 1, E, H, 2, decoder_dim=2 * E, decoder_layers=1), 3),
    "encoder-decoder": (partial(Transformer, 7, 7, 5, E, H, 2), 4),
    "decoder block": (partial(DecoderBlock, E, H), 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_hands_every_option_to_each_of_its_blocks(name):
    make, count = MODELS[name]
    options = {"activation": nn.SiLU, "norm": nn.RMSNorm, "norm_first": name == "encoder-decoder"}
    network = make(expansion=3, dropout=0.25, bias=False, **options)
    blocks = [part for part in network.modules() if isinstance(part, TransformerBlock)]
    assert len(blocks) == count
    for block in blocks:
        width = block.feed_forward.up.in_features
        assert block.feed_forward.up.out_features == 3 * width
        assert isinstance(block.feed_forward.activation, nn.SiLU)
        assert {type(norm) for norm in (block.attention_norm, block.feed_forward_norm)} == {nn.RMSNorm}
        assert block.norm_first is options["norm_first"]
        assert (block.attention.dropout, block.feed_forward.dropout.p, block.dropout.p) == (0.25, 0.25, 0.25)
        assert not [p for p, _ in block.named_parameters() if "bias" in p]
    if name != "masked images":  # which refuses it
        shifts = [part.attention_shift for part in make(token_shift=2).modules() if isinstance(part, TransformerBlock)]
        assert [shift.weight.shape for shift in shifts] == [(2, E)] * count


@pytest.mark.parametrize("name", MODELS)
def test_an_unknown_option_is_named(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'expnsion'"):
        MODELS[name][0](expnsion=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImageTransformer(6, 2, 1, 10, E, H, -1), "num_layers must be at least 0, got -1"),
        (lambda: ImageTransformer(6, 2, 1, 10, E, H, 1.5), "num_layers must be a whole number, got 1.5"),
        (lambda: ImageTransformer(6, 2, 0, 10, E, H, 1), "in_channels must be at least 1, got 0"),
        (lambda: ImageTransformer(6, 2, 1, 0, E, H, 1), "num_classes must be at least 1, got 0"),
        (lambda: ImageTransformer(6, 2, 1, 10, E, H, 1, num_queries=-1), "num_queries must be at least 0, got -1"),
        (lambda: ImageTransformer(0, 2, 1, 10, E, H, 1), "image_size must be at least 1, got 0"),
        (lambda: MaskedImageModel(6, 2, 1, E, H, -1, decoder_dim=E), "num_layers must be at least 0, got -1"),
        (
            lambda: MaskedImageModel(6, 2, 1, E, H, 1, decoder_dim=E, decoder_layers=-2),
            "decoder_layers must be at least 0, got -2",
        ),
        (lambda: MaskedImageModel(6, 2, 1, E, H, 1, decoder_dim=-6), "decoder_dim must be at least 1, got -6"),
        (lambda: random_visible(-1, 9), "count must be at least 0, got -1"),
        (lambda: CharTransformer(7, 5, E, H, -1), "num_layers must be at least 1, got -1"),
        (lambda: CharTransformer(7, 5, -6, H, 1), "embed_dim must be at least 1, got -6"),
        (lambda: CharTransformer(7, 5, E, H, 1, dropout=math.nan), "got nan"),
        (lambda: Transformer(7, 7, 5, E, H, -1), "num_layers must be at least 1, got -1"),
        (lambda: Transformer(7, 7, 1.5, E, H, 1), "max_length must be a whole number, got 1.5"),
    ],
)
def test_sizes_that_make_no_model_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_batch_that_changes_between_inputs_is_refused():
    masked = MaskedImageModel(6, 2, 1, E, H, 1, decoder_dim=E)
    visible = random_visible(3, 9)
    with pytest.raises(ValueError, match=r"visible must be \(2, 9\) booleans, got torch\.bool of \(3, 9\)"):
        masked(torch.zeros(2, 1, 6, 6), visible)
    with pytest.raises(ValueError, match="visible is on meta, but images are on cpu"):
        masked(torch.zeros(3, 1, 6, 6), visible.to("meta"))
    with pytest.raises(ValueError, match="images must be at least 1, got 0"):
        masked(torch.zeros(0, 1, 6, 6), visible[:0])
    with pytest.raises(ValueError, match="query has batch 2, but key has batch 1"):
        Transformer(7, 7, 5, E, H, 1)(torch.tensor([[3, 4]]), torch.tensor([[1, 2], [1, 2]]))
    cache, model = Cache(), CharTransformer(7, 5, E, H, 1)
    model(torch.zeros(2, 2, dtype=torch.int64), cache=cache)
    for batch in (1, 3):
        with pytest.raises(ValueError, match=f"the cache holds a batch of 2 texts, got {batch}"):
            model(torch.zeros(batch, 1, dtype=torch.int64), cache=cache)

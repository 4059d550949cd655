"""What every model owes: each option reaches each of its blocks."""

from functools import partial

import pytest
from torch import nn

from sciformer import (
    CharTransformer,
    DecoderBlock,
    ImageTransformer,
    MaskedImageModel,
    Transformer,
    TransformerBlock,
)

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

"""From one sequence to another: an encoder reads a text or a picture, a decoder writes the target, token by token."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sciformer.blocks import DecoderBlock, TransformerBlock
from sciformer.fast.cache import Cache
from sciformer.functional import InputError, check_sizes
from sciformer.models import decoding
from sciformer.models.decoding import Source
from sciformer.models.image import ImageToSequence
from sciformer.models.tokens import check_tokens
from sciformer.positions import LearnedPositions, SinusoidalPositions
from sciformer.scores import DotProductScore, ScoreRecipe


class _EncoderDecoder(nn.Module, ABC):
    """What is the same whatever the source is made of; a subclass says how a source becomes tokens for the encoder.

    Args:
        source_embedding: makes tokens of ``embed_dim`` features of a source.
        source_positions: adds to each where it stands.
        max_length: the longest target, in tokens.
        encoder_layers: blocks in the encoder.
        decoder_layers: blocks in the decoder.
        positions: recipe for the positions of the target, called as ``positions(embed_dim, max_length)``.
        The others are those of :class:`Transformer`.

    Raises:
        ValueError: as :class:`Transformer`.
    """

    def __init__(
        self,
        source_embedding: nn.Module,
        source_positions: nn.Module,
        target_vocab: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        encoder_layers: int,
        decoder_layers: int,
        *,
        encoder_score: ScoreRecipe = DotProductScore,
        decoder_score: ScoreRecipe = DotProductScore,
        cross_score: ScoreRecipe = DotProductScore,
        positions: Callable[[int, int], nn.Module] = SinusoidalPositions,
        activation: Callable[[], nn.Module] = nn.ReLU,
        norm_first: bool = False,
        dropout: float = 0.0,
        pad: int = 0,
        start: int = 1,
        end: int = 2,
        **block: Any,
    ):
        super().__init__()
        if len({pad, start, end}) < 3 or not 0 <= min(pad, start, end) <= max(pad, start, end) < target_vocab:
            raise InputError(
                f"pad, start and end must be three tokens among the target's {target_vocab}, got {pad}, {start}, {end}"
            )
        self.max_length = max_length
        self.pad, self.start, self.end = pad, start, end
        self.source_embedding = source_embedding
        self.source_positions = source_positions
        self.target_embedding = nn.Embedding(target_vocab, embed_dim)
        self.target_positions = positions(embed_dim, max_length)
        self.dropout = nn.Dropout(dropout)
        block |= {"activation": activation, "norm_first": norm_first, "dropout": dropout}
        self.encoder = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, score=encoder_score, **block) for _ in range(encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(embed_dim) if norm_first else nn.Identity()
        self.decoder = nn.ModuleList(
            DecoderBlock(embed_dim, num_heads, score=decoder_score, cross_score=cross_score, **block)
            for _ in range(decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(embed_dim) if norm_first else nn.Identity()
        self.read_out = nn.Linear(embed_dim, target_vocab, bias=False)
        self.read_out.weight = self.target_embedding.weight
        for embedding in (self.source_embedding, self.target_embedding):
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=embed_dim**-0.5)

    def forward(self, source: Source, target: Int[Tensor, "B L"]) -> Float[Tensor, "B L V"]:
        """Logits of the target token after each.

        Args:
            source: tokens filled up with ``pad``, or pictures.
            target: ``start`` and the tokens known so far, filled up with ``pad`` at its end.

        Raises:
            ValueError: if the model cannot read the source, or the target is no (B, length) integers, empty, longer
                than ``max_length``, has a token that is not in its vocabulary or does not begin with ``start``.
        """
        return self.decode(target, *self.encode(source))

    def encode(self, source: Source) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 1 S"]]:
        """What the encoder makes of a source, and the mask that hides its padding.

        Raises:
            ValueError: as :meth:`forward`.
        """
        return self._encode(source, need_weights=False)[:2]

    def decode(
        self,
        target: Int[Tensor, "B L"],
        encoded: Float[Tensor, "B S E"],
        source_mask: Bool[Tensor, "B 1 1 S"],
        *,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Logits of the target token after each, given what :meth:`encode` made of the source.

        Args:
            cache: remembers the source and the target's tokens of earlier calls, so that ``target`` is only what is
                new; starts as :class:`~sciformer.fast.cache.Cache` ``()``.

        Raises:
            ValueError: as :meth:`forward`; if the cache is another model's, batch's or source's, or given in training
                with dropout.
        """
        return self._decode(target, encoded, source_mask, need_weights=False, cache=cache)[0]

    def attention_weights(
        self, source: Source, target: Int[Tensor, "B L"]
    ) -> dict[str, list[Float[Tensor, "B H _ _"]]]:
        """The weights of every attention, first block first.

        Returns:
            ``"encoder"``, (B, H, S, S) each, ``"decoder"``, (B, H, L, L), and ``"cross"``, (B, H, L, S).
        """
        encoded, source_mask, encoder_maps = self._encode(source, need_weights=True)
        _, decoder_maps, cross_maps = self._decode(target, encoded, source_mask, need_weights=True, cache=None)
        return {"encoder": encoder_maps, "decoder": decoder_maps, "cross": cross_maps}

    @abstractmethod
    def _read(self, source: Source) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 1 S"]]:
        """The source as tokens for the encoder, and the mask that hides its padding."""

    def _encode(
        self, source: Source, *, need_weights: bool
    ) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 1 S"], list[Float[Tensor, "B H S S"]]]:
        """What :meth:`encode` returns, and the weights of every attention if they are wanted."""
        (x, mask), maps = self._read(source), []
        for block in self.encoder:
            x, weights = block(x, attn_mask=mask, need_weights=need_weights)
            if need_weights:
                maps.append(weights)
        return self.encoder_norm(x), mask, maps

    def _decode(
        self,
        target: Int[Tensor, "B L"],
        encoded: Float[Tensor, "B S E"],
        source_mask: Bool[Tensor, "B 1 1 S"],
        *,
        need_weights: bool,
        cache: Cache | None,
    ) -> tuple[Float[Tensor, "B L V"], list[Float[Tensor, "B H L L"]], list[Float[Tensor, "B H L S"]]]:
        """The logits, and the weights of both attentions of every block if they are wanted."""
        read = 0 if cache is None else cache.length
        look, vocab = self._looks_at(target), self.target_embedding.num_embeddings
        check_tokens("target", target, vocab, longest=self.max_length, read=read, look=look)
        if look and read == 0 and len(other := (target[:, 0] != self.start).nonzero()):
            row = int(other[0])
            raise InputError(f"target {row} must begin with the start token {self.start}, got {target[row, 0].item()}")
        maps, cross_maps = [], []
        x = self.target_embedding(target) * math.sqrt(self.target_embedding.embedding_dim)
        x = self.dropout(self.target_positions(x, offset=read))
        for block in self.decoder:
            x, weights, cross_weights = block(
                x, encoded, source_mask=source_mask, need_weights=need_weights, cache=cache
            )
            if need_weights:
                maps.append(weights)
                cross_maps.append(cross_weights)
        if cache is not None:
            cache.length = read + target.shape[1]
        return self.read_out(self.decoder_norm(x)), maps, cross_maps

    def _looks_at(self, tokens: Tensor) -> bool:
        return tokens.device.type == "cpu" or not self.training

    def greedy(self, source: Source, count: int | None = None) -> Int[Tensor, "B N"]:
        """A target for each source, always the likeliest token next; see :func:`~sciformer.models.decoding.greedy`."""
        return decoding.greedy(self, source, count)

    def beam(
        self, source: Source, width: int, count: int | None = None, *, length_penalty: float = 0.0
    ) -> tuple[Int[Tensor, "B K N"], Float[Tensor, "B K"]]:
        """Several targets for each source, best first, and scores; see :func:`~sciformer.models.decoding.beam`."""
        return decoding.beam(self, source, width, count, length_penalty=length_penalty)


class Transformer(_EncoderDecoder):
    r"""The encoder–decoder of Vaswani et al. 2017 (arXiv:1706.03762): at each position, logits of the next token.

    .. math:: p(y_1, \dots, y_L \mid x) = \prod_t p(y_t \mid y_0, \dots, y_{t-1}, x), \qquad y_0 = \text{start}

    With its defaults it is the architecture of 2017: post-norm, ReLU, sinusoidal positions. A target token that is read
    and one that is written are one vector (section 3.4): a row of the target's embedding is also a row of the read-out.
    Rows of length about 1 suit a read-out, but would drown in positions, whose entries reach 1; so a token that is read
    is multiplied by √E.

    Padding is a token. Every mask is then read off the tokens themselves, and none can be forgotten or disagree with
    them. The target needs none: its padding comes last, where no real token looks. A loss must leave it out.

    Tokens that make no sense are refused, except in training on a GPU, which would have to wait in every step for
    somebody to look at them. So are a source that is longer than ``max_length`` or nothing but padding.

    Args:
        max_length: the longest source and the longest target, in tokens.
        num_layers: blocks in the encoder, and blocks in the decoder.
        encoder_score: recipe for the score of the encoder's attentions, called as ``score(num_heads, head_dim)``.
        decoder_score: the same for the decoder's self-attentions.
        cross_score: the same for the decoder's attentions to the source; see :class:`~sciformer.blocks.DecoderBlock`.
        positions: recipe for the positions of each side, called as ``positions(embed_dim, max_length)``.
        activation: recipe for the feed-forwards' nonlinearity.
        norm_first: pre-norm if True, with one more norm at the end of the encoder and of the decoder.
        dropout: on the embedded tokens and as in :class:`~sciformer.blocks.TransformerBlock`.
        block: the other options of each :class:`~sciformer.blocks.TransformerBlock`, on both sides.
        pad: the token that fills up what is too short, in source and target.
        start: the target token before the first.
        end: the target token after the last.

    Raises:
        ValueError: if a size is below 1, the heads do not divide the embedding, a special token is not in the
            vocabulary or stands for two things, or ``cross_score`` compares positions.
    """

    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        positions: Callable[[int, int], nn.Module] = SinusoidalPositions,
        pad: int = 0,
        **options: Any,
    ):
        check_sizes(source_vocab=source_vocab, max_length=max_length, embed_dim=embed_dim, num_layers=num_layers)
        if pad >= source_vocab:
            raise InputError(f"pad must be among the source's {source_vocab} tokens, got {pad}")
        super().__init__(
            nn.Embedding(source_vocab, embed_dim),
            positions(embed_dim, max_length),
            target_vocab,
            max_length,
            embed_dim,
            num_heads,
            num_layers,
            num_layers,
            positions=positions,
            pad=pad,
            **options,
        )

    def _read(self, source: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 1 S"]]:
        embedding: Any = self.source_embedding
        look = self._looks_at(source)
        check_tokens("source", source, embedding.num_embeddings, longest=self.max_length, look=look)
        real = source != self.pad  # (B, S)
        if look and len(empty := (~real.any(dim=1)).nonzero()):
            raise InputError(f"source {empty[0].item()} is nothing but padding (token {self.pad})")
        x = embedding(source) * math.sqrt(embedding.embedding_dim)
        return self.dropout(self.source_positions(x)), real[:, None, None, :]


class ImageToText(_EncoderDecoder):
    """An encoder–decoder whose source is a picture: its tokens are patches, mapped linearly.

    All else is :class:`Transformer`. A decoder does not see what the encoder read; its cross-attention compares queries
    from letters with keys from patches. Each patch has a learned position of its own, as in
    :class:`~sciformer.models.image.ImageTransformer`, and no patch is padding. Source: Li et al. 2021,
    arXiv:2109.10282, section 2 (a transformer that reads printed and handwritten lines), without pre-training.

    Args:
        image_size: pixels of a side, or (height, width) of pictures that are not square.
        patch_size: pixels of a patch's side, or its (height, width).
        max_length: the longest target, in tokens.
        encoder_layers: blocks in the encoder.
        decoder_layers: blocks in the decoder.
        options: the options of :class:`Transformer`; ``positions`` are those of the target.

    Raises:
        ValueError: if the patches do not tile the picture, or as :class:`Transformer`.
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        in_channels: int,
        target_vocab: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        encoder_layers: int,
        decoder_layers: int,
        **options: Any,
    ):
        check_sizes(max_length=max_length, encoder_layers=encoder_layers, decoder_layers=decoder_layers)
        to_sequence = ImageToSequence(image_size, patch_size, in_channels, embed_dim)
        super().__init__(
            to_sequence,
            LearnedPositions(embed_dim, to_sequence.num_tokens),
            target_vocab,
            max_length,
            embed_dim,
            num_heads,
            encoder_layers,
            decoder_layers,
            **options,
        )

    def _read(
        self, source: Float[Tensor, "B C height width"]
    ) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 1 S"]]:
        x = self.dropout(self.source_positions(self.source_embedding(source)))  # (B, S, E)
        return x, x.new_ones(len(x), 1, 1, x.shape[1], dtype=torch.bool)

"""A language model, character by character."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.blocks import TransformerBlock
from sciformer.fast.cache import Cache
from sciformer.functional import InputError, check_sizes
from sciformer.models import decoding
from sciformer.models.tokens import check_tokens
from sciformer.positions import LearnedPositions
from sciformer.scores import check_hides_future


class CharTransformer(nn.Module):
    r"""A causal transformer: at each position, the logits of the character that comes next.

    .. math:: p(x_1, \dots, x_L) = \prod_t p(x_t \mid x_1, \dots, x_{t-1})

    With its defaults it is GPT-2's architecture (Radford et al. 2019, section 2.3): learned positions, pre-norm blocks,
    a last norm, and a read-out that is the token embedding once more.

    Args:
        max_length: the longest text that it can look at, in tokens.
        positions: recipe for the positions, called as ``positions(embed_dim, max_length)``. For rotary positions,
            ``NoPositions`` together with ``score=partial(RotaryScore, score=...)``.
        norm, dropout, bias: as in :class:`~sciformer.blocks.TransformerBlock`; the last norm is of the same kind, and
            embedded tokens are dropped too.
        tie_weights: read out with the token embedding (Press and Wolf 2017, arXiv:1608.05859): a character that is read
            and a character that is written are one vector, and there are vocab_size · embed_dim fewer parameters.
        start: ``"small"`` draws all matrices from a normal distribution of standard deviation 0.02, divided by
            √(2 · num_layers) where a branch joins the residual stream, so that the stream's variance does not grow with
            depth (GPT-2). ``"identity"`` sets those, and a read-out of its own, to 0: every block starts as the
            identity and every character as equally likely (Zhang et al. 2019, arXiv:1901.09321, for the branches).
        block: the other options of each :class:`~sciformer.blocks.TransformerBlock`, such as ``score``.

    Raises:
        ValueError: if a size is below 1, the heads do not divide the embedding, ``start`` is none of the two, or the
            score has a trainable mask that does not hide the future.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        positions: Callable[[int, int], nn.Module] = LearnedPositions,
        norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        tie_weights: bool = True,
        start: Literal["small", "identity"] = "small",
        **block: Any,
    ):
        super().__init__()
        check_sizes(vocab_size=vocab_size, max_length=max_length, embed_dim=embed_dim, num_layers=num_layers)
        self.max_length = max_length
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = positions(embed_dim, max_length)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, norm=norm, dropout=dropout, bias=bias, **block)
            for _ in range(num_layers)
        )
        check_hides_future(self.blocks)
        self.norm = norm(embed_dim) if norm else nn.LayerNorm(embed_dim, bias=bias)
        self.read_out = nn.Linear(embed_dim, vocab_size, bias=False)
        if tie_weights:
            self.read_out.weight = self.embedding.weight
        self._initialize(start, tie_weights)

    @torch.no_grad()
    def _initialize(self, start: str, tie_weights: bool) -> None:
        blocks: Iterable[Any] = self.blocks
        last = [layer for block in blocks for layer in (block.attention.out_proj, block.feed_forward.down)]
        if start == "small":
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
            for layer in last:
                layer.weight.div_(math.sqrt(len(last)))
        elif start == "identity":
            for layer in last if tie_weights else [*last, self.read_out]:
                for parameter in layer.parameters():
                    nn.init.zeros_(parameter)
        else:
            raise InputError(f'start must be "small" or "identity", got {start!r}')

    def forward(self, tokens: Int[Tensor, "B L"], *, cache: Cache | None = None) -> Float[Tensor, "B L V"]:
        """Logits of the token after each.

        Args:
            cache: remembers the tokens of earlier calls, so that ``tokens`` are only the new ones; starts as
                :class:`~sciformer.fast.cache.Cache` ``()``.

        Raises:
            ValueError: if the tokens are not (B, L) integers, or with those in the cache more than ``max_length``, or,
                on a CPU, one is not in the vocabulary (a GPU would have to wait for the look); if the cache is another
                model's or another batch's, or given in training with dropout.
        """
        return self._run_blocks(tokens, need_weights=False, cache=cache)[0]

    def attention_weights(self, tokens: Int[Tensor, "B L"]) -> list[Float[Tensor, "B H L L"]]:
        """The weights of every block's attention, first block first."""
        return self._run_blocks(tokens, need_weights=True, cache=None)[1]

    def _run_blocks(
        self, tokens: Int[Tensor, "B L"], *, need_weights: bool, cache: Cache | None
    ) -> tuple[Float[Tensor, "B L V"], list[Float[Tensor, "B H L L"]]]:
        """The logits, and the weights of every block's attention if they are wanted."""
        read, on_cpu = 0 if cache is None else cache.length, tokens.device.type == "cpu"
        vocab_size = self.embedding.num_embeddings
        check_tokens("text", tokens, vocab_size, longest=self.max_length, read=read, look=on_cpu)
        x, maps = self.dropout(self.positions(self.embedding(tokens), offset=read)), []
        for block in self.blocks:
            x, weights = block(x, is_causal=True, need_weights=need_weights, cache=cache)
            if need_weights:
                maps.append(weights)
        if cache is not None:
            cache.length = read + tokens.shape[1]
        return self.read_out(self.norm(x)), maps

    def generate(
        self,
        prompt: Int[Tensor, "B L"],
        count: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "B N"]:
        """The prompt and ``count`` more tokens; see :func:`~sciformer.models.decoding.generate`."""
        return decoding.generate(self, prompt, count, temperature=temperature, top_k=top_k, generator=generator)

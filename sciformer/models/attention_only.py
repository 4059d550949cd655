"""A language model of attention alone, small enough to be understood head by head."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.functional import check_sizes
from sciformer.models.tokens import check_tokens
from sciformer.positions import LearnedPositions
from sciformer.scores import DotProductScore, ScoreRecipe, check_hides_future


class AttentionOnly(nn.Module):
    r"""A causal transformer without feed-forward networks: every layer adds what its heads have copied.

    .. math:: x \leftarrow x + \text{attention}(\text{norm}(x))

    Source: Elhage et al. 2021, https://transformer-circuits.pub/2021/framework/index.html; theirs has no norms. Tokens
    start with a standard deviation of 0.02, as learned positions do, so that neither drowns the other.

    Args:
        max_length: the longest sequence that it can look at, in tokens.
        positions: recipe for the positions, called as ``positions(embed_dim, max_length)``.

    Raises:
        ValueError: if a size is below 1, the heads do not divide the embedding, or the score has a trainable mask
            that does not hide the future.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        score: ScoreRecipe = DotProductScore,
        positions: Callable[[int, int], nn.Module] = LearnedPositions,
    ):
        super().__init__()
        check_sizes(vocab_size=vocab_size, max_length=max_length, embed_dim=embed_dim, num_layers=num_layers)
        self.max_length = max_length
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = positions(embed_dim, max_length)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(num_layers))
        self.attentions = nn.ModuleList(
            MultiHeadAttention(embed_dim, num_heads, score=score) for _ in range(num_layers)
        )
        check_hides_future(self.attentions)
        self.norm = nn.LayerNorm(embed_dim)
        self.read_out = nn.Linear(embed_dim, vocab_size)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: Int[Tensor, "B L"]) -> Float[Tensor, "B L V"]:
        """Logits of the token after each.

        Raises:
            ValueError: if the tokens are not (B, L) integers of the vocabulary, or longer than ``max_length``.
        """
        return self._run(tokens, need_weights=False)[0]

    def attention_weights(self, tokens: Int[Tensor, "B L"]) -> list[Float[Tensor, "B H L L"]]:
        """The weights of every layer's attention, first layer first."""
        return self._run(tokens, need_weights=True)[1]

    def _run(
        self, tokens: Int[Tensor, "B L"], *, need_weights: bool
    ) -> tuple[Float[Tensor, "B L V"], list[Float[Tensor, "B H L L"]]]:
        """The logits, and the weights of every layer if they are wanted."""
        vocab_size, longest = self.embedding.num_embeddings, self.max_length
        check_tokens("sequence", tokens, vocab_size, longest=longest, look=tokens.device.type == "cpu")
        x, maps = self.positions(self.embedding(tokens)), []  # (B, L, E)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            y, weights = attention(norm(x), is_causal=True, need_weights=need_weights)
            x = x + y
            maps += [weights] if need_weights else []
        return self.read_out(self.norm(x)), maps

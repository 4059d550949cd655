"""The diagram of notebook 04 shows the numbers it was given."""

import torch

from sciformer.teach.diagrams.positions import where_positions_enter


def test_it_shows_tokens_positions_and_their_sum():
    tokens, positions = torch.tensor([[1.0, -2.0], [0.5, 0.3]]), torch.tensor([[0.2, 0.4], [-0.1, 2.0]])
    texts = [text.get_text() for text in where_positions_enter(tokens, positions, words=["dog", "bites"]).axes[0].texts]
    shown = [
        f"{float(x):.1f}".replace("-", "−") for part in (tokens, positions, tokens + positions) for x in part.flatten()
    ]
    assert [text for text in texts if text.replace("−", "").replace(".", "").isdigit()] == shown
    assert {"dog", "bites", "tokens (2, 2)", "positions (2, 2)", "queries", "keys", "values", "scores"} <= set(texts)
    assert [text[0] for text in texts if " · " in text] == ["1", "2", "3"]

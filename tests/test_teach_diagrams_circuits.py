"""The diagram of two heads says what it was given: notes of what stood before, and the token that is found."""

from sciformer.teach.diagrams.circuits import two_heads


def test_it_shows_the_notes_and_what_followed_the_earlier_copy():
    texts = [text.get_text() for text in two_heads(["x", "A", "B", "y", "A"]).axes[0].texts]
    assert [text for text in texts if ", after " in text] == [
        "A, after x", "B, after A", "y, after B", "A, after y"
    ]  # fmt: skip
    assert "next: B" in texts
    assert "query: who stands after A?" in texts
    assert texts.count("x") == 2  # as it is read, and with nothing before it

"""The glossary on the site: an anchor for each entry, and links to them where a term is used before it is explained."""

import re

#: An entry of the glossary, with the names that it goes by in parentheses behind it.
ENTRY = re.compile(r"^- \*\*(.+?)\*\*( \(([^)]+)\))?: ", re.M)


def anchor(term: str) -> str:
    """The name of an entry's place on the page."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def with_anchors(text: str) -> str:
    """The glossary, every entry with a place that can be linked to."""
    return ENTRY.sub(lambda entry: f"- [**{entry[1]}**]{{#{anchor(entry[1])}}}{entry[2] or ''}: ", text)


def with_places(text: str, glossary: str) -> str:
    """A text whose links to a letter of the glossary lead to the very entry, where the link's words are its term.

    Args:
        glossary: its text.
    """
    places = {entry[1].lower(): anchor(entry[1]) for entry in ENTRY.finditer(glossary)}

    def link(found: re.Match[str]) -> str:
        words = " ".join(found[1].replace("*", "").lower().split())
        singular = re.sub(r"(?<=x)es$|s$", "", words)
        return f"[{found[1]}]({found[2]}#{places.get(words) or places.get(singular) or found[3]})"

    return re.sub(r"\[([^\[\]]+)\]\(([^)\s]*glossary\.md)#([a-z])\)", link, text)


class Terms:
    """The terms of a glossary, each to be linked once.

    Args:
        glossary: its text.
    """

    def __init__(self, glossary: str):
        self.left = {entry[1]: anchor(entry[1]) for entry in ENTRY.finditer(glossary)}

    def linked(self, text: str) -> str:
        """A piece of HTML in which every term, the first time that it occurs, leads to its entry."""
        pieces = re.split(r"(<code>.*?</code>|<[^>]+>)", text)  # what is within a tag or is code stays as it is
        for n in range(0, len(pieces), 2):
            pieces[n] = self._linked(pieces[n])
        return "".join(pieces)

    def _linked(self, text: str) -> str:
        if not self.left:
            return text
        longest_first = sorted(self.left, key=len, reverse=True)
        pattern = rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?=s?(?![\w-]))"

        def link(found: re.Match[str]) -> str:
            place = self.left.pop(found[0], None)
            return f'<a class="term" href="glossary.html#{place}">{found[0]}</a>' if place else found[0]

        return re.sub(pattern, link, text)

"""What the site takes from the committed notebooks: their head lines, their pictures, and what these show."""

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

#: The picture that stands for each notebook: what the cell contains that draws it, and what there is to see, for
#: pictures that do not say so themselves.
SMALL_PICTURES = {
    "00": ('title="who looks at whom"', "a matrix of attention weights: which word looks at which word"),
    "01": (
        'title="old words, new words, and the hull"',
        "the words as points, and their convex hull; every average lies inside it",
    ),
    "02": ('title="causal: nobody looks ahead"', "attention weights under a causal mask, zero above the diagonal"),
    "03": ("plotting.heads(torch.cat(maps)", "attention weights of three heads side by side"),
    "04": ('title="sinusoidal positions"', "stripes: sinusoidal positions, fast waves on the left, slow ones right"),
    "05": ("residual_streams(in_pre", "two transformer blocks with the residual stream: pre-norm and post-norm"),
    "06": ("plotting.attention_on_image", "a digit, and where one of its patches looks in each head"),
    "07": ("turned by 180°", "a six, and the same six turned to a nine; the logits of both are the same"),
    "08": ("def one_step(text)", "how a character is drawn: probabilities, temperature, the draw, and the longer text"),
    "09": ('"outside: separable"', "the attention weights of a word under Bahdanau's score and the separable one"),
    "10": ('words = ["the", "cat"', "four energy wells around six words, seen from above"),
    "11": ('xlabel="source", ylabel="writes"', "where a decoder looks in a written date while it writes the ISO date"),
    "12": ("model.restore(digits", "ten digits, what is visible of them, and how the model restores them"),
    "13": ('title="as measured"', "forty years of carbon dioxide in the air, and of the sea's temperature"),
    "14": ("plotting.parallel_coordinates(", "trials as lines across eight settings, coloured by accuracy"),
    "15": ("time of a training pass", "time and memory of a training pass against length, with their slopes"),
    "16": (
        "figure = plotting.images(torch.cat([shuffled[:1], shuffled])",
        "a digit, and how much each part of it is looked at under eight scores, one of them twice",
    ),
    "17": (
        "capstone.looks_at_a_digit(",
        "where one patch of a digit looks under a score of one's own and under others",
    ),
    "18": (
        'title="loss of two layers"',
        "a loss that drops when two kinds of heads have formed",
    ),
}
#: Width and height that a small picture may have.
ROOM = (480, 300)


@dataclass(frozen=True)
class Head:
    """What a notebook's head line says: what it needs, how long it runs, and how long it takes to study."""

    needs: str
    runs: str
    study: str | None

    @property
    def times(self) -> str:
        """The two times, told apart."""
        return f"runs in about {self.runs}" + (f", about {self.study} of study" if self.study else "")


@dataclass(frozen=True)
class Picture:
    """One picture among a notebook's outputs."""

    source: str
    data: bytes
    alt: str | None

    @property
    def suffix(self) -> str:
        """How a file with it ends."""
        return ".gif" if self.data.startswith(b"GIF8") else ".png"


@cache
def read(path: Path) -> Any:
    """A notebook's JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


#: The head line, with or without the hours of study.
HEAD_LINE = re.compile(
    r"^Needs: (.+?) · (?:runs in )?about ([^·\n]+?) on two CPU cores(?: · about ([^·\n]+?) of study)?$", re.M
)


def head(path: Path) -> Head:
    """A notebook's head line, from its first cell."""
    found = HEAD_LINE.search("".join(read(path)["cells"][0]["source"]))
    if found is None:
        raise ValueError(f"{path.name} has no line 'Needs: … · runs in about … on two CPU cores' in its first cell")
    return Head(*found.groups())


def with_running_time_named(source: str) -> str:
    """A first cell whose head line says that its time is that of a run, not of a reader."""
    return re.sub(
        r"^(Needs: .+? · )about (?=[^·\n]+ on two CPU cores)", r"\1runs in about ", source, count=1, flags=re.M
    )


def pictures(path: Path) -> Iterator[Picture]:
    """All pictures of a notebook, in their order, animations among them."""
    for cell in read(path)["cells"]:
        yield from pictures_of(cell)


def pictures_of(cell: dict[str, Any]) -> Iterator[Picture]:
    """The pictures of a cell; where an animation comes with a still picture, both."""
    for output in cell.get("outputs", []):
        for kind in ("image/gif", "image/png"):
            if kind in (data := output.get("data", {})):
                content = base64.b64decode("".join(data[kind]))
                yield Picture("".join(cell["source"]), content, alternative(output))


def alternative(output: dict[str, Any]) -> str | None:
    """What an output's picture shows, in words, if the output says so."""
    for kind in ("image/png", "image/gif"):
        if alt := output.get("metadata", {}).get(kind, {}).get("alt"):
            return str(alt)
    text = "".join(output["data"].get("text/plain", ""))
    return None if re.match(r"<\w+ .*>$", text, re.S) else text or None  # a figure's repr tells nothing


def alternatives(paths: list[Path]) -> dict[str, str]:
    """What is to be seen in each picture of some notebooks, by the hash of its bytes, which is its name on the site."""
    found = (picture for path in paths for picture in pictures(path))
    return {hashlib.sha256(picture.data).hexdigest(): picture.alt for picture in found if picture.alt}


def small_picture(path: Path) -> Picture:
    """The picture that stands for a notebook, with a text that says what it shows."""
    marked, alt = SMALL_PICTURES[path.stem[:2]]
    for picture in pictures(path):
        if marked in picture.source:
            return Picture(picture.source, picture.data, picture.alt or alt)
    raise ValueError(f"no cell of {path.name} with a picture contains {marked!r}; name another in SMALL_PICTURES")


def write_small_picture(picture: Picture, target: Path) -> None:
    """Store a picture as small as a card of the map wants it."""
    image = Image.open(io.BytesIO(picture.data)).convert("RGB")
    image.thumbnail(ROOM, Image.Resampling.LANCZOS)
    image.quantize(64).save(target, optimize=True)

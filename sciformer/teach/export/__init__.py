"""A trained model as a page: one HTML file that computes in the browser what the model computes in torch.

The page needs no network and no server. ``forward.js`` is the forward pass, to be read beside the core, whose names it
keeps; ``decoding.js`` unpacks the weights and writes text; ``reading.js`` and ``writing.js`` are what is seen.
"""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.blocks import evaluating
from sciformer.data import Vocabulary, mnist, shakespeare
from sciformer.data.files import written_whole
from sciformer.functional import InputError
from sciformer.lab.settings import PixelSetting
from sciformer.lab.trainers import thinned
from sciformer.models import CharTransformer, ImageTransformer
from sciformer.teach.export.describing import Describer
from sciformer.teach.export.packing import DType, Packed
from sciformer.training import History

HERE = Path(__file__).parent
#: Digits that a page brings along, and the beginning of a text.
EXAMPLES, PROMPT = 20, "ROMEO:\n"
#: The sides of the pictures that a drawing of 28 × 28 can be averaged to.
SIDES = tuple(side for side in range(1, 29) if 28 % side == 0)


def export_html(
    model: nn.Module,
    out: str | Path = "my-model.html",
    *,
    history: History | Sequence[float] | None = None,
    setting: Any = None,
    vocabulary: Vocabulary | None = None,
    dtype: DType = "float16",
    title: str | None = None,
) -> Path:
    """Write a model as one HTML file in which anybody can try it: no Python, no network, no server.

    Args:
        model: an ``ImageTransformer`` or a ``CharTransformer``, with scores, positions, norms and activations of the
            package's own.
        history: what ``fit`` returned, or its losses, for the curve in the page.
        setting: what the model was trained with, to be shown. A ``PixelSetting`` also says that black is -1, not 0.
        vocabulary: the characters of a character model; if not given, those of Tiny Shakespeare.
        dtype: of the weights. ``"float16"`` takes half the room of ``"float32"``, ``"int8"`` a quarter.
        title: of the page.

    Returns:
        The file written.

    Raises:
        InputError: if the page cannot compute what the model computes, as with a score of one's own, the weights are
            not finite, or the model's images or vocabulary are not those of the page.
        OSError: if the file cannot be written.
    """
    packed = pack(model, history=history, setting=setting, vocabulary=vocabulary, dtype=dtype)
    kind = "digits" if isinstance(model, ImageTransformer) else "text"
    page = page_of(packed, title or ("My model reads digits" if kind == "digits" else "My model writes"))
    with written_whole(out) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(out)


def pack(
    model: Any,
    *,
    history: History | Sequence[float] | None = None,
    setting: Any = None,
    vocabulary: Vocabulary | None = None,
    dtype: DType = "float16",
) -> dict[str, Any]:
    """What a page holds of a model, as JSON takes it; the arguments are those of :func:`export_html`.

    Raises:
        InputError: as :func:`export_html`.
    """
    if type(model) not in (ImageTransformer, CharTransformer):
        raise InputError(f"a page shows an ImageTransformer or a CharTransformer, got a {type(model).__name__}")
    weights = Packed(dtype)
    described = Describer(weights)(model, "model")
    reads_images = isinstance(model, ImageTransformer)
    device, losses = next(model.parameters()).device, history.loss if isinstance(history, History) else history
    with torch.no_grad(), evaluating(model):
        if reads_images:
            given, examples = _image_input(model, setting)
            logits = model(examples.to(device))
        else:
            given, tokens = _text_input(model, vocabulary)
            logits = model(tokens.to(device)[None])[0, -1]
    return {
        "model": described,
        **weights.content(),
        "input": given,
        "torch": logits.float().tolist(),
        "facts": _facts(model, setting, dtype),
        "history": _curves(history, losses),
        "unit": "loss (nats a character)" if not reads_images else "loss (nats)",
    }


def _image_input(model: Any, setting: Any) -> tuple[dict[str, Any], Tensor]:
    """How the page makes the model's input of a drawing, and the examples as the model is given them."""
    channels, side, width = model.to_sequence.image_shape
    if channels != 1 or side not in SIDES or side != width:
        raise InputError(
            f"the page draws grey pictures of 28 × 28 pixels, or averages them to {', '.join(map(str, SIDES))}; the "
            f"model wants {channels} channel(s) of {side} × {width}"
        )
    if len(set(model.to_sequence.patch_size)) > 1:
        raise InputError(f"the page cuts square patches; the model's are {model.to_sequence.patch_size}")
    images, labels = (tensor[:EXAMPLES] for tensor in mnist("test"))
    black, white = (-1.0, 1.0) if isinstance(setting, PixelSetting) else (0.0, 1.0)
    pooled = torch.nn.functional.avg_pool2d(images, 28 // side)
    given = {
        "size": side,
        "black": black,
        "white": white,
        "labels": labels.tolist(),
        "examples": base64.b64encode((images * 255).round().to(torch.uint8).numpy().tobytes()).decode(),
    }
    return given, black + (white - black) * pooled


def _text_input(model: Any, vocabulary: Vocabulary | None) -> tuple[dict[str, Any], Tensor]:
    """The characters, and a beginning that the model can read."""
    vocabulary = vocabulary or shakespeare()[1]
    if len(vocabulary) != (known := model.embedding.num_embeddings):
        raise InputError(f"the model knows {known} tokens, and the vocabulary has {len(vocabulary)}: pass its own")
    prompt = "".join(c for c in PROMPT if c in vocabulary.characters) or vocabulary.characters[0]
    prompt = prompt[-model.max_length :]
    return {"vocabulary": vocabulary.characters, "prompt": prompt}, vocabulary.encode(prompt)


def _curves(history: Any, losses: Sequence[float] | None) -> dict[str, Any] | None:
    """The loss, thinned, and beside it what was measured in the same unit."""
    if not losses:
        return None
    measured = history.metrics if isinstance(history, History) else {}
    return {"training loss": thinned(losses), **{n: c for n, c in measured.items() if n.endswith("loss")}}


def _facts(model: nn.Module, setting: Any, dtype: DType) -> list[tuple[str, Any]]:
    """Sizes, and the setting's fields, as rows of a table."""
    facts: list[tuple[str, Any]] = [("parameters", f"{sum(p.numel() for p in model.parameters()):,}")]
    facts.append(("weights in this page", dtype))
    if is_dataclass(setting) and not isinstance(setting, type):
        for name, value in asdict(setting).items():
            nested = value.items() if isinstance(value, Mapping) else [(name, value)]
            facts += [(str(key).replace("_", " "), _shown(v)) for key, v in nested]
    return facts


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def page_of(packed: Mapping[str, Any], title: str) -> str:
    """The page of a packed model."""
    image = packed["model"]["kind"] == "ImageTransformer"
    name, shown = ("reading", "DigitPage") if image else ("writing", "TextPage")
    start_here = "Draw a digit, see what it reads," if image else "Begin a text, let the model go on,"
    intro = f"This model runs in the page you are looking at. {start_here} and see where it looks."
    body = (HERE / f"{name}.html").read_text(encoding="utf-8")
    return assemble(
        title,
        body.replace("{{intro}}", intro).replace("{{more}}", ""),
        scripts=[HERE / f"{name}.js"],
        data={"packed": packed},
        start=f'draw_facts(data("packed")); const page = new {shown}(data("packed"));',
    )


def assemble(
    title: str,
    body: str,
    *,
    scripts: Sequence[Path],
    data: Mapping[str, Any],
    start: str,
    style: str = "",
    header: str = "<span>A model of the course sciformer</span>",
    footer: str = "Made with sciformer, a course that teaches attention by building it.",
) -> str:
    """One HTML file of a body, the forward pass, some scripts, and data that they read by name.

    Args:
        scripts: what comes after the forward pass and the charts.
        data: JSON for each name; a script reads it with ``data(name)``.
        start: the last line of the script.
        style: rules of CSS beside those of all pages.
        header: what stands above the title, beside the switch for light and dark.
    """
    names = [HERE / name for name in ("forward.js", "decoding.js", "charts.js")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in (*names, *scripts))
    code += "\nconst data = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);\n" + start
    parts = {
        "title": html.escape(title),
        "style": (HERE / "style.css").read_text(encoding="utf-8") + style,
        "header": header,
        "body": body,
        "footer": footer,
        "data": "\n".join(_json(name, content) for name, content in data.items()),
        "script": code,
    }
    page = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)  # once: what is filled in is left as it is


def _json(name: str, content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")  # no tag ends here
    return f'<script type="application/json" id="data-{name}">{text}</script>'

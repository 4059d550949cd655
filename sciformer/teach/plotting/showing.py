"""How a picture gets into a notebook: with words for those who do not see it, and moving where that tells more."""

import base64
import io
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from sciformer.teach.plotting.style import figure_of


def png_of(figure: Figure) -> bytes:
    """The figure as a PNG file; it is closed, or the notebook would show it a second time."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    plt.close(figure)
    return buffer.getvalue()


def show(alt: str) -> None:
    """Show the current figure with its alternative text, which screen readers read and the validation compares.

    Args:
        alt: what there is to see, in words: no numbers that differ from run to run.

    Raises:
        ValueError: if the text is empty, or if nothing has been drawn.
    """
    if not alt.strip():
        raise ValueError("a picture needs words for those who do not see it, got an empty text")
    if not plt.get_fignums():
        raise ValueError("there is no figure to show: draw one first")
    data = {"text/plain": alt, "image/png": base64.b64encode(png_of(plt.gcf())).decode()}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})


def animate(draw: Callable[[Any], Figure | Axes], frames: Iterable[Any], *, alt: str, seconds: float = 0.8) -> None:
    """Show ``draw(frame)`` for one frame after the other as a GIF that runs three times and stops at its last frame.

    Where no HTML is shown, as in some viewers, the last frame is.

    Args:
        draw: draws one frame; all have to be of the same size.
        alt: what there is to see, in words.
        seconds: for each frame; the last one stays three times as long.
    """
    pngs = [png_of(figure_of(draw(frame))) for frame in frames]
    pictures = [Image.open(io.BytesIO(png)).convert("RGB").quantize(64) for png in pngs]
    times = [round(1000 * seconds)] * (len(pictures) - 1) + [round(3000 * seconds)]
    gif = io.BytesIO()
    pictures[0].save(gif, format="GIF", save_all=True, append_images=pictures[1:], duration=times, loop=2)
    source = f"data:image/gif;base64,{base64.b64encode(gif.getvalue()).decode()}"
    html = f'<img src="{source}" alt="{escape(alt)}" style="max-width: 100%">'
    data = {"text/plain": alt, "text/html": html, "image/png": base64.b64encode(pngs[-1]).decode()}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})

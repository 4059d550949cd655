"""Sliders over a picture, which stay a picture where nothing can be moved."""

import base64
import io
from collections.abc import Callable
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sciformer.plotting import figure_of


def explore(draw: Callable[..., Figure | Axes], *, alt: str, **sliders: Any) -> None:
    """Show widgets above the picture that ``draw(**values)`` returns, and draw it anew when one of them moves.

    One output carries the live widgets (JupyterLab, Colab), a PNG of the first state (GitHub, printed pages) and
    ``alt``. Of these only ``alt`` is compared when a notebook is validated.

    Args:
        alt: what there is to see, in words.
        sliders: an ipywidgets widget for each argument of ``draw``.
    """

    def png() -> bytes:
        figure = figure_of(draw(**{name: slider.value for name, slider in sliders.items()}))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        plt.close(figure)  # or the notebook would show it a second time
        return buffer.getvalue()

    def redraw(_: Any) -> None:
        picture.value = png()

    first = png()
    picture = ipywidgets.Image(value=first, format="png", layout={"max_width": "100%", "align_self": "flex-start"})
    for slider in sliders.values():
        slider.continuous_update = False
        slider.style.description_width = "initial"
        slider.observe(redraw, "value")
    box = ipywidgets.VBox([*sliders.values(), picture], layout={"overflow": "hidden"})
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    bundle = {
        "text/plain": alt,
        "image/png": base64.b64encode(first).decode(),
        "application/vnd.jupyter.widget-view+json": view,
    }
    # Not a _repr_mimebundle_ of our own: ipywidgets 7, which Colab has, would not call it.
    display(bundle, raw=True)

"""Sliders and clickable squares above a picture; where no widget runs, the picture remains."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
import traitlets
from IPython.display import display
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sciformer.teach.plotting import figure_of
from sciformer.teach.plotting.showing import png_of


def explore(draw: Callable[..., Figure | Axes], *, alt: str, **sliders: Any) -> None:
    """Show widgets above the picture that ``draw(**values)`` returns, and draw it anew when one of them moves.

    One output carries the live widgets (JupyterLab, Colab), a PNG of the first state (GitHub, printed pages) and
    ``alt``. Of these only ``alt`` is compared when a notebook is validated.

    Args:
        alt: what there is to see, in words.
        sliders: an ipywidgets widget for each argument of ``draw``.

    Raises:
        ValueError: if a slider has no description, so that nobody can tell what it moves.
    """

    def png() -> bytes:
        return png_of(figure_of(draw(**{name: slider.value for name, slider in sliders.items()})))

    def redraw(_: Any) -> None:
        picture.value = png()

    first = png()
    picture = ipywidgets.Image(value=first, format="png", layout={"max_width": "100%", "align_self": "flex-start"})
    for name, slider in sliders.items():
        if hasattr(slider, "description"):
            if not slider.description:
                raise ValueError(f"the slider for {name!r} has no description")
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
    display(bundle, raw=True, metadata={"image/png": {"alt": alt}})


class Squares(ipywidgets.GridBox):
    """Squares of which one is chosen: by a click, or by the keyboard with Tab and Space.

    Args:
        shades: how light each square is, from 0 for black to 1 for white.
        value: the one that is chosen, counted row by row.
    """

    value = traitlets.Int()

    def __init__(self, shades: Float[Tensor, "R C"], value: int = 0):
        super().__init__(**_squares(shades.shape, self._choose))
        for button, shade in zip(self.children, shades.flatten().tolist(), strict=True):
            button.style.button_color = f"rgb({round(255 * shade)}, {round(255 * shade)}, {round(255 * shade)})"
        self.observe(self._mark, "value")
        self.value = value
        self._mark()

    def _choose(self, number: int) -> None:
        self.value = number

    def _mark(self, _: Any = None) -> None:
        for number, button in enumerate(self.children):
            button.layout.border = "3px solid #d55e00" if number == self.value else "1px solid #888"


class Switches(ipywidgets.GridBox):
    """Squares that are on or off, each switched by a click, or by the keyboard with Tab and Space.

    ``value`` is a tuple of rows, each a tuple of booleans, so that ``torch.tensor(value)`` is a mask.

    Args:
        on: which ones are on at first.
    """

    value = traitlets.Tuple()

    def __init__(self, on: Bool[Tensor, "R C"]):
        super().__init__(**_squares(on.shape, self._switch))
        self.observe(self._mark, "value")
        self.value = tuple(map(tuple, on.tolist()))

    def _switch(self, number: int) -> None:
        columns = len(self.value[0])
        flat = [state for row in self.value for state in row]
        flat[number] = not flat[number]
        self.value = tuple(tuple(flat[start : start + columns]) for start in range(0, len(flat), columns))

    def _mark(self, _: Any) -> None:
        for button, on in zip(self.children, (state for row in self.value for state in row), strict=True):
            button.description = "✓" if on else ""
            button.style.button_color = "#9ecae1" if on else "#525252"
            button.style.text_color = "black"  # or a dark theme would write white on light blue


def _squares(shape: Sequence[int], clicked: Callable[[int], None]) -> dict[str, Any]:
    """Children and layout of a grid of square buttons; ``clicked(n)`` is called for the n-th, counted row by row."""
    (rows, columns), buttons = shape, []
    for number in range(rows * columns):
        where = f"row {number // columns}, column {number % columns}"
        button = ipywidgets.Button(tooltip=where, layout={"width": "28px", "height": "28px", "padding": "0"})
        button.on_click(lambda _, number=number: clicked(number))
        buttons.append(button)
    return {
        "children": buttons,
        "layout": {"grid_template_columns": f"repeat({columns}, 28px)", "grid_gap": "1px", "margin": "2px"},
    }

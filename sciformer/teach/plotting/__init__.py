"""Every picture that the notebooks draw. Each function draws and returns what it drew on; the notebook shows it.

Colours: viridis for what is positive, a red-blue map centred on 0 for what is signed, Okabe and Ito's palette for
lines. All three stay legible to colour-blind readers.
"""

from sciformer.teach.plotting.classes import course, mistakes
from sciformer.teach.plotting.lines import (
    bands,
    bars,
    curves,
    dots_and_curves,
    growth,
    intervals,
    roofline,
    seeds,
    timeline,
    with_errors,
)
from sciformer.teach.plotting.matrices import attention_on_image, confusion, heads, heatmap, images, letters_on_picture
from sciformer.teach.plotting.searches import parallel_coordinates, slices, trials
from sciformer.teach.plotting.showing import animate, show
from sciformer.teach.plotting.spaces import clocks, clusters, convex_hull, plane, regions
from sciformer.teach.plotting.style import COLORS, figure_of

__all__ = [
    "COLORS",
    "animate",
    "attention_on_image",
    "bands",
    "bars",
    "clocks",
    "clusters",
    "confusion",
    "convex_hull",
    "course",
    "curves",
    "dots_and_curves",
    "figure_of",
    "growth",
    "heads",
    "heatmap",
    "images",
    "intervals",
    "letters_on_picture",
    "mistakes",
    "parallel_coordinates",
    "plane",
    "regions",
    "roofline",
    "seeds",
    "show",
    "slices",
    "timeline",
    "trials",
    "with_errors",
]

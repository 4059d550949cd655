"""The site's settings for Sphinx. ``tools/build_site.py`` puts its sources together and runs it; see there."""

import importlib.metadata
import importlib.util
import json
from pathlib import Path

from docutils import nodes
from sphinx.util.fileutil import copy_asset

project = "sciformer"
author = "The sciformer authors"
copyright = "The sciformer authors, MIT License"
release = importlib.metadata.version("sciformer")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["playground", "_static", "_templates"]
templates_path = ["_templates"]

# The notebooks are shown as they were committed, with their outputs; nothing is run. An explorer's still picture stands
# for its sliders, which need a kernel, and the libraries of widgets would have to be fetched.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_render_markdown_format = "myst"  # a table that a cell prints has links to other notebooks
# An animation is shown in place of the still picture beside it.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None), ("html", "image/gif", 45)]
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}
html_title = "sciformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = ["extra"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "repository_url": "https://github.com/sciformer/sciformer",
    "use_repository_button": True,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "navbar_persistent": [],  # the sidebar has the search
    "article_header_start": ["toggle-primary-sidebar.html", "site-links.html"],
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# MathJax comes from a package, so that no page asks a network for it; of its 24 MB the site needs one script and fonts.
MATHJAX = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
mathjax_path = "mathjax/tex-chtml.js"


def copy_mathjax(app, exception):
    """Copy the script and its fonts into a site that was built."""
    if exception is None:
        target = Path(app.outdir) / "_static" / "mathjax"
        copy_asset(str(MATHJAX / "tex-chtml.js"), str(target))
        fonts = Path("output") / "chtml" / "fonts" / "woff-v2"
        copy_asset(str(MATHJAX / fonts), str(target / fonts))


ALTERNATIVES = json.loads((Path(__file__).parent / "alternatives.json").read_text(encoding="utf-8"))


def describe_pictures(app, doctree):
    """Give the pictures of the notebooks the texts that came with them; myst-nb names a picture by its hash."""
    for picture in doctree.findall(nodes.image):
        if alt := ALTERNATIVES.get(Path(picture["uri"]).stem):
            picture["alt"] = alt


def setup(app):
    """What Sphinx calls when it has read these settings."""
    app.connect("doctree-read", describe_pictures)
    app.connect("build-finished", copy_mathjax)


# What the notebooks and the pages of the repository link to beyond the site stays a link to the repository.
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure", "myst.header"]

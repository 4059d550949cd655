"""``python -m sciformer export``: what ``train`` has trained, as a page."""

import argparse
from pathlib import Path
from typing import Any

from sciformer.data.files import check_writable


def add_export(commands: Any) -> None:
    """Add the command and its options."""
    export = commands.add_parser("export", help="write what train has trained as a page to try it in, one HTML file")
    export.add_argument("run", type=Path, metavar="RUN", help="folder that train has written")
    export.add_argument("--out", type=Path, default=Path("my-model.html"), help="my-model.html if not given")
    export.add_argument(
        "--dtype", choices=["float32", "float16", "int8"], default="float16", help="of the weights in the page"
    )
    export.add_argument("--title", help="of the page")
    export.set_defaults(command=run_export)


def run_export(options: argparse.Namespace) -> None:
    """Write the page of a run."""
    from sciformer.lab.runs import load_run
    from sciformer.teach import export

    check_writable(options.out)
    model, setting, history = load_run(options.run)
    page = export.export_html(
        model, options.out, history=history, setting=setting, dtype=options.dtype, title=options.title
    )
    print(f"written: {page}, {page.stat().st_size / 1e6:.2f} MB")

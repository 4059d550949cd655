"""``python -m sciformer`` is the command line."""

import sys

from sciformer.cli import main

sys.exit(main())

"""The command line: ``python -m sciformer``, or ``sciformer`` where the package is installed."""

import signal
import sys

from sciformer import cli


def main() -> int:
    """Run one command. From here on Ctrl-C is an exception again, so that what is under way can be put in order."""
    if callable(signal.getsignal(signal.SIGINT)):  # not where it is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())

"""What tests that press Ctrl-C share."""

import signal


def heed_ctrl_c() -> None:
    """Let SIGINT end the command that is about to start, which it would not where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

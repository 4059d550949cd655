"""Whether submissions can be run in a sandbox here."""

import shutil
import subprocess


def _works():
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(command, check=False).returncode == 0


WORKS = _works()

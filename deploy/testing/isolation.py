"""Gives a test namespaces of its own, so that what it starts and mounts ends with it."""

import os
import sys

_ISOLATED = "DJINN_TEST_ISOLATED"


def isolate(why, *namespaces):
    """Starts the program again with processes of its own, and in further namespaces.

    `why` says why that takes root. `namespaces` are options of unshare. Returns in the new process.
    """
    if os.getuid():
        sys.exit(f"run this as root: {why}")
    if _ISOLATED not in os.environ:
        os.environ[_ISOLATED] = "yes"
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                              *namespaces, sys.executable, *sys.argv])

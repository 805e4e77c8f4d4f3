"""Knows whether a thread captures a call of a function as a whole.

Modules that such a call calls are not traced by Dynamo, because their operators belong to the
capture.
"""

import contextlib
import threading


class Recording(threading.local):
    """Is active in a thread while it captures a call (_registered/compiled.py)."""

    active = False

    @contextlib.contextmanager
    def capture(self):
        before, self.active = self.active, True
        try:
            yield
        finally:
            self.active = before


recording = Recording()

"""Values on their way between the program and a device."""

import asyncio
import atexit
import contextlib
import itertools
import sys
import threading

from djinn import _djinn


class _Notifier:
    """Calls back, in a thread of its own, when values are here."""

    def __init__(self):
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting = {}
        self._thread = None

    def add(self, pending, callback):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="djinn-reads", daemon=True)
                self._thread.start()
                atexit.register(self._stop)
            number = next(self._numbers)
            self._waiting[number] = callback
        pending.push_when_ready(number)

    def _run(self):
        while (number := _djinn.pop_ready()) is not None:
            with self._lock:
                callback = self._waiting.pop(number)
            try:
                callback()
            except Exception:
                sys.excepthook(*sys.exc_info())
            del callback

    def _stop(self):
        # Before the interpreter ends, while the thread can still be joined.
        _djinn.stop_ready()
        self._thread.join()


_notifier = _Notifier()


class AsyncRead:
    """A tensor's value on its way; also awaitable."""

    def __init__(self, pending):
        self._pending = pending

    def done(self):
        """Whether result() returns at once."""
        return self._pending.ready()

    def result(self, timeout=None):
        """The CPU tensor, the same one every time.

        Raises TimeoutError if it is not here after `timeout` seconds, and what
        .cpu() would have raised.
        """
        return self._pending.wait(timeout)

    def add_done_callback(self, function):
        """Calls function(self) once the value or an error is here, on another thread."""
        _notifier.add(self._pending, lambda: function(self))

    def __await__(self):
        if not self.done():
            loop = asyncio.get_running_loop()
            here = loop.create_future()

            def wake():
                if not here.done():
                    here.set_result(None)

            def tell(_):
                # A loop that is closed waits for nothing.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(tell)
            yield from here
        return self.result(0)


def read_async(tensor):
    """Asks for a remote tensor's value without waiting for it.

    It is the value at the call, whatever is written to the tensor afterwards.
    """
    return AsyncRead(_djinn.read_async(tensor))


def on_upload_progress(function, *, min_bytes=16 << 20):
    """Calls function(done_bytes, total_bytes) while large tensors move to a worker.

    About a hundred times each, in the thread that uploads, and at last with
    done_bytes equal to total_bytes. It must not use a device. None: no more calls.
    """
    _djinn.set_upload_progress(function, min_bytes)

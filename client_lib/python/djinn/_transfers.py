"""Transfers values between the program and a device in the background."""

import asyncio
import atexit
import contextlib
import itertools
import sys
import threading

from djinn import _djinn


class _Notifier:
    """Runs callbacks on its own thread when values have arrived."""

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
        # This runs before the interpreter ends, while the thread can still be joined.
        _djinn.stop_ready()
        self._thread.join()


_notifier = _Notifier()


class AsyncRead:
    """A tensor's value on its way to the CPU. It is awaitable.

        read = djinn.read_async(scores)
        prepare(next_batch)
        local = read.result()  # or: await read
    """

    def __init__(self, pending):
        self._pending = pending

    def done(self):
        """Returns whether result() would return at once."""
        return self._pending.ready()

    def result(self, timeout=None):
        """Waits for the value and returns a contiguous CPU tensor, the same one every time.

        Raises TimeoutError if the value has not arrived after `timeout` seconds, and
        otherwise what .cpu() would have raised. None waits without a limit.
        """
        return self._pending.wait(timeout)

    def add_done_callback(self, function):
        """Calls function(self) on another thread when the value or an error has arrived."""
        _notifier.add(self._pending, lambda: function(self))

    def __await__(self):
        if not self.done():
            loop = asyncio.get_running_loop()
            here = loop.create_future()

            def wake():
                if not here.done():
                    here.set_result(None)

            def wake_loop(_):
                # A closed loop raises RuntimeError; nothing waits in it.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(wake_loop)
            yield from here
        return self.result(0)


def read_async(tensor):
    """Asks for a remote tensor's value and returns an AsyncRead without waiting.

    The value is the one that the tensor has now; later writes do not change it. Raises
    djinn.Error with the reason NOT_REMOTE for a tensor that is not on a remote device, and
    NOT_STRIDED for a sparse or nested one.
    """
    return AsyncRead(_djinn.read_async(tensor))


def on_upload_progress(function, *, min_bytes=16 << 20):
    """Calls function(done_bytes, total_bytes) while a tensor of `min_bytes` or more is uploaded.

    The function is called about a hundred times for each tensor, and at last with done_bytes
    equal to total_bytes. It runs on the uploading thread, and must not use a device. None
    ends the calls. The setting applies to the whole process, from the next upload on.
    """
    _djinn.set_upload_progress(function, min_bytes)

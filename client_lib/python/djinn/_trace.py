"""Traces sampled requests with OpenTelemetry."""

import threading

from djinn import _djinn


def configure_tracing(endpoint="", *, sample_ratio=0.0, nodes=False, ca_file="",
                      certificate_file="", private_key_file="", server_name="",
                      insecure=False):
    """Exports spans of this process's requests to a collector's OTLP/gRPC port.

    sample_ratio is the share of requests that are traced, from 0 to 1. With nodes, traces have
    spans for the longest nodes on the device. Without an endpoint this process exports nothing,
    but the coordinator and the workers may. The files are PEM; without ca_file there is no TLS,
    and an endpoint on another host needs insecure=True. Raises djinn.Error with the reason
    BAD_TRACING, INSECURE_ADDRESS, MALFORMED_ADDRESS or TLS_FILES.

    A process that does not call this reads DJINN_TRACING_ENDPOINT, DJINN_TRACING_SAMPLE_RATIO,
    and the other variables that djinn/trace.h lists, when it opens its first session.
    """
    _djinn.configure_tracing(endpoint, sample_ratio, nodes, ca_file, certificate_file,
                             private_key_file, server_name, insecure)


class trace:
    """Makes the requests of a block, on this thread, part of the caller's trace.

        with djinn.trace(request.headers["traceparent"]):
            result = model(x).cpu()

    The argument is the header of W3C Trace Context. Its own flag decides whether the requests
    are traced, whatever sample_ratio is. Raises djinn.Error with the reason BAD_TRACEPARENT for
    a malformed one, and AFTER_FORK in a forked child. Raises RuntimeError when it is entered
    twice, or left on another thread than it was entered on.
    """

    def __init__(self, traceparent):
        self._traceparent = traceparent
        self._scope = None
        self._thread = None

    def __enter__(self):
        if self._scope is not None:
            raise RuntimeError("djinn.trace: it is entered already")
        self._scope = _djinn.TraceScope(self._traceparent)
        self._thread = threading.get_ident()
        return self

    def __exit__(self, kind, error, traceback):
        if self._scope is None:
            raise RuntimeError("djinn.trace: it was not entered")
        if self._thread != threading.get_ident():
            raise RuntimeError("djinn.trace: it was entered on another thread")
        # The scope ends as soon as nothing refers to it.
        self._scope = None

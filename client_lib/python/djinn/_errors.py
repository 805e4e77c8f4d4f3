"""Defines the exceptions that Djinn raises if Djinn fails, and not the program's own call."""

import torch


class Error(RuntimeError):
    """A failure of Djinn: a worker was lost, the session was closed, or a value cannot be read
    because its computation failed earlier.

    Mistakes in the program's own call raise the same errors as on any other device.
    """

    def __init__(self, message, code="UNKNOWN", reason="", error_id="", retry_after=None):
        super().__init__(message)
        #: The status code, such as "UNAVAILABLE".
        self.code = code
        #: UPPER_SNAKE_CASE, such as "WORKER_LOST" or "OPERATOR_FAILED".
        self.reason = reason
        #: The id of the root error, which all failures that derive from it share. Empty if no
        #: operator on a worker failed.
        self.error_id = error_id
        #: Seconds after which a retry may succeed. None if a retry does not help or the time is
        #: unknown.
        self.retry_after = retry_after

    def __reduce__(self):
        return type(self), (str(self), self.code, self.reason, self.error_id, self.retry_after)


class OutOfMemoryError(Error, torch.OutOfMemoryError):
    """A worker has too little memory. It is also a torch.OutOfMemoryError."""


class LinAlgError(Error, torch.linalg.LinAlgError):
    """A matrix could not be decomposed. It is also a torch.linalg.LinAlgError."""


def from_fields(code, reason, error_id, message, retry_after):
    out_of_memory = code == "RESOURCE_EXHAUSTED" and "MEMORY" in reason
    kind = OutOfMemoryError if out_of_memory else Error
    if reason == "LINALG_FAILED":
        kind = LinAlgError
    return kind(message, code, reason, error_id, retry_after)

"""What Djinn raises when Djinn, not the program's own call, is what fails."""

import torch


class Error(RuntimeError):
    """A lost worker, a closed session, a value whose computation failed earlier.

    Mistakes in the program's own call raise what they raise on any device.
    """

    def __init__(self, message, code="UNKNOWN", reason="", error_id="", retry_after=None):
        super().__init__(message)
        #: The status code, such as "UNAVAILABLE".
        self.code = code
        #: UPPER_SNAKE_CASE, such as "WORKER_LOST" or "OPERATOR_FAILED".
        self.reason = reason
        #: Names the root error: everything that failed because of it has the
        #: same. Empty when no operator on a worker failed.
        self.error_id = error_id
        #: Seconds after which it may be worth while to try again. None when that does
        #: not help, or nobody knows when it will.
        self.retry_after = retry_after

    def __reduce__(self):
        return type(self), (str(self), self.code, self.reason, self.error_id, self.retry_after)


class OutOfMemoryError(Error, torch.OutOfMemoryError):
    """A worker's memory does not suffice."""


def from_fields(code, reason, error_id, message, retry_after):
    out_of_memory = code == "RESOURCE_EXHAUSTED" and "MEMORY" in reason
    kind = OutOfMemoryError if out_of_memory else Error
    return kind(message, code, reason, error_id, retry_after)

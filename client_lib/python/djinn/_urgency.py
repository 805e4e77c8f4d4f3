"""Sets how urgent the session's runs are."""

import contextlib
from typing import NamedTuple, Optional

from djinn import _djinn


class Urgency(NamedTuple):
    """A priority and a deadline for runs."""

    #: "batch", "interactive", "realtime", or "default" if none is declared.
    priority: str = "default"
    #: Seconds from a run's arrival at its worker until it should be finished, or None.
    run_deadline: Optional[float] = None


def set_urgency(priority="default", run_deadline=None):
    """Sets the urgency of the open session's runs and returns the former Urgency.

    Higher priorities execute first and, among runs of one priority, earlier deadlines. With
    "default", runs are interactive, except that training is batch. A run is not started if
    its turn comes later than `run_deadline` seconds after its worker received it, or if
    earlier runs show that it would finish later; reading its results then raises djinn.Error
    with the code DEADLINE_EXCEEDED. The call does not wait until the workers know the urgency.

    Raises ValueError for an unknown priority, and djinn.Error, whose reason is
    PRIORITY_NOT_ALLOWED if the tenant may not use the priority, BAD_URGENCY if the deadline
    is not positive, and NO_SESSION if no session is open.
    """
    return Urgency(*_djinn.set_urgency(priority, run_deadline))


@contextlib.contextmanager
def urgency(priority="default", run_deadline=None):
    """`with djinn.urgency("batch"):` sets the urgency for the block.

    It applies to all threads of the process.
    """
    outer = set_urgency(priority, run_deadline)
    try:
        yield
    finally:
        set_urgency(*outer)

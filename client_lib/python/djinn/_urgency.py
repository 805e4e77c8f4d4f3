"""How urgent the session's runs are, among those of its tenant."""

import contextlib
from typing import NamedTuple, Optional

from djinn import _djinn


class Urgency(NamedTuple):
    #: "batch", "interactive", "realtime", or "default" for none of them.
    priority: str = "default"
    #: Seconds from a run's arrival at its worker until it should be done.
    run_deadline: Optional[float] = None


def set_urgency(priority="default", run_deadline=None):
    """Says how urgent the open session's runs are from now on, or soon after.

    Where none is declared, by "default", runs are interactive, except that training
    counts as batch. Higher priorities go first among the runs of the tenant; of one
    priority, those with the earlier deadline. A run that cannot be done within
    `run_deadline` seconds after its worker received it, as far as earlier runs tell, or
    whose turn comes later, is not begun: reading what it would have written raises
    DEADLINE_EXCEEDED. Returns what was said before.
    """
    return Urgency(*_djinn.set_urgency(priority, run_deadline))


@contextlib.contextmanager
def urgency(priority="default", run_deadline=None):
    """`with djinn.urgency("batch"):` says it for the block, to the whole process."""
    outer = set_urgency(priority, run_deadline)
    try:
        yield
    finally:
        set_urgency(*outer)

"""Sets the execution mode, the urgency and the phase of a program's calls."""

import contextlib
from typing import NamedTuple, Optional

from djinn import _djinn

_MODES = ("strict", "fast")


def set_execution_mode(mode):
    """Sets the mode of the calls that this process makes from now on.

    In "strict" mode every operator returns the bits that PyTorch returns. In "fast" mode
    workers may compute sums in another order. DJINN_EXECUTION_MODE sets the initial mode,
    which is "strict" by default. Raises ValueError for another mode.
    """
    if mode not in _MODES:
        raise ValueError(f"execution mode {mode!r}: must be one of {', '.join(_MODES)}")
    _djinn.set_fast_execution(mode == "fast")


def execution_mode():
    """Returns the mode, "strict" or "fast"."""
    return _MODES[_djinn.fast_execution()]


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


def signal_phase(phase):
    """Sets the phase of this thread's calls, and of their backward passes, from now on.

    The phase is "forward", "llm_prefill", "llm_decode", "vision_encoding",
    "vision_decoding", "multimodal_fusion", "training" or "unknown"; another one raises
    ValueError. Returns the former phase. The client sends the phase to the coordinator with
    each new graph, and `djinnctl get graphs` shows it.
    """
    return _djinn.signal_phase(phase)


@contextlib.contextmanager
def phase(phase):
    """`with djinn.phase("llm_decode"):` sets the phase for the block."""
    outer = signal_phase(phase)
    try:
        yield
    finally:
        signal_phase(outer)

"""What workers may do to be fast."""

from djinn import _djinn

_MODES = ("strict", "fast")


def set_execution_mode(mode):
    """"strict": PyTorch's own bits; "fast": sums may be taken in another order.

    For the whole process, and for what is sent from now on. DJINN_EXECUTION_MODE names
    the mode to begin with; without it that is "strict".
    """
    if mode not in _MODES:
        raise ValueError(f"execution mode {mode!r}: must be one of {', '.join(_MODES)}")
    _djinn.set_fast_execution(mode == "fast")


def execution_mode():
    """The mode, "strict" or "fast"."""
    return _MODES[_djinn.fast_execution()]

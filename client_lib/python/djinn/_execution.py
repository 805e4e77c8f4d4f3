"""Chooses whether workers may trade bit-exact results for speed."""

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

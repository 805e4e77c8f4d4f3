"""Hints: facts about calls that Djinn cannot see. No hint changes a result."""

import contextlib

from djinn import _djinn


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

"""What a program knows about its calls and Djinn does not; no hint changes a result."""

import contextlib

from djinn import _djinn


def signal_phase(phase):
    """Says what this thread's calls, and their backward passes, are for from now on.

    One of "forward", "llm_prefill", "llm_decode", "vision_encoding", "vision_decoding",
    "multimodal_fusion", "training" and "unknown". Returns what they were for. The
    coordinator is told with each new structure: `djinnctl get graphs` shows it.
    """
    return _djinn.signal_phase(phase)


@contextlib.contextmanager
def phase(phase):
    """`with djinn.phase("llm_decode"):` signals the phase for the block."""
    outer = signal_phase(phase)
    try:
        yield
    finally:
        signal_phase(outer)

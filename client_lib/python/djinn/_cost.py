"""Measures what a part of a program costs."""

from djinn import _djinn


class cost:
    """Measures the cost of a block's calls, with the figures by which workers bill the tenant.

        with djinn.cost() as cost:
            logits = model(tokens)
        print(cost.device_seconds, cost.bytes_up, cost.bytes_down, cost.runs)

    The calls of all threads on all virtual devices count. Leaving the block does not wait;
    reading a figure waits until the workers have executed the block's calls. Blocks may
    overlap, and the costs of consecutive blocks add up.

    Reading a figure raises RuntimeError before the block was entered, and djinn.Error, whose
    reason is SESSION_CLOSED if the session that was open has ended.
    """

    def __init__(self):
        self._scope = None
        self._figures = None

    def __enter__(self):
        self._figures = None
        self._scope = _djinn.CostScope()
        return self

    def __exit__(self, kind, error, traceback):
        self._scope.close()

    def _get(self, index):
        if self._scope is None:
            raise RuntimeError("the cost is unknown: enter the block first")
        if self._figures is None:
            self._figures = self._scope.get()
        return self._figures[index]

    @property
    def device_seconds(self):
        """The time for which devices worked, summed over all devices."""
        return self._get(0)

    @property
    def bytes_up(self):
        """The bytes of messages and tensors from this process to the workers."""
        return self._get(1)

    @property
    def bytes_down(self):
        """The bytes of messages and tensors from the workers to this process."""
        return self._get(2)

    @property
    def runs(self):
        """The number of runs that the workers executed."""
        return self._get(3)

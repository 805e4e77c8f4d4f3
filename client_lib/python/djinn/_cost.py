"""What pieces of a program cost."""

from djinn import _djinn


class cost:
    """What the calls of a block cost, as the workers measure and bill it.

        with djinn.cost() as cost:
            logits = model(tokens)
        print(cost.device_seconds, cost.bytes_up, cost.bytes_down, cost.runs)

    All virtual devices and threads of the process count. Leaving the block waits for
    nothing; asking for a figure waits until the workers have carried out what was
    called in it. Blocks may overlap; those that follow each other add up.
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
            raise RuntimeError("the cost is not known: enter its block first")
        if self._figures is None:
            self._figures = self._scope.get()
        return self._figures[index]

    @property
    def device_seconds(self):
        """How long devices worked for it, all together."""
        return self._get(0)

    @property
    def bytes_up(self):
        """Messages and values, from this process to the workers."""
        return self._get(1)

    @property
    def bytes_down(self):
        return self._get(2)

    @property
    def runs(self):
        """Pieces of the program that the workers carried out."""
        return self._get(3)

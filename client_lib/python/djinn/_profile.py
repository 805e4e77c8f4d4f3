"""Where a program's time goes, here and on the workers."""

from djinn import _djinn


class profile:
    """Profiles all devices of the process for a block.

        with djinn.profile() as profile:
            for batch in batches:
                model(batch).cpu()
        print(profile.operator_table())
        print(profile.stage_table())
        profile.save_chrome_trace("trace.json")

    Behind the block, which waits for the devices: `operators`, largest total first,
    and `requests`, each a read that the program waited for with all that led to it,
    its wall time in `stages` that are disjoint. Seconds. `dropped` counts what there was
    no room for, `remarks` say what could not be measured. One profile at a time.
    """

    def __init__(self):
        self._scope = None
        self._profile = None

    def __enter__(self):
        self._profile = None
        self._scope = _djinn.ProfileScope()
        return self

    def __exit__(self, kind, error, traceback):
        scope, self._scope = self._scope, None
        try:
            self._profile = scope.finish()
        except Exception:
            # The program's own says more.
            if error is None:
                raise

    def _finished(self):
        if self._profile is None:
            raise RuntimeError("the profile is not finished: leave its block first")
        return self._profile

    @property
    def operators(self):
        """Dictionaries: name, mode, way ("plain", "packed", "failed"), calls,
        total."""
        return self._finished().operators

    @property
    def requests(self):
        """Dictionaries: device, thread, wall, stages (by name, in their order)."""
        return self._finished().requests

    @property
    def statistics(self):
        """As get_profiler().get_stats()."""
        return self._finished().statistics

    @property
    def remarks(self):
        return self._finished().remarks

    @property
    def dropped(self):
        """By kind: requests, runs, nodes."""
        return self._finished().dropped

    def operator_table(self):
        return self._finished().operator_table()

    def stage_table(self):
        return self._finished().stage_table()

    def save_chrome_trace(self, path):
        """Writes the time line of threads and workers, for chrome://tracing."""
        trace = self._finished().chrome_trace()
        with open(path, "w", encoding="utf-8") as file:
            file.write(trace)


class Profiler:
    def get_stats(self):
        """capture_ms and schedule_ms of all requests, execution_ms of all runs, and
        cache_hit_rate, the share of runs whose plan the worker had: of the profile that
        runs, as far as it has gathered, or of the last one."""
        return _djinn.profile_statistics()


_profiler = Profiler()


def get_profiler():
    """The process' profiler; it measures while a profile() block runs."""
    return _profiler

"""Measures where a program's time goes, in this process and on the workers."""

from djinn import _djinn


class profile:
    """Profiles all devices of the process for a block.

        with djinn.profile() as profile:
            for batch in batches:
                model(batch).cpu()
        print(profile.operator_table())
        print(profile.stage_table())
        profile.save_chrome_trace("trace.json")

    Leaving the block waits for the devices. The results are available afterwards; before,
    reading them raises RuntimeError. All times are in seconds. A request is a read that the
    program waited for, with all calls that led to it; its stages do not overlap. One profile
    may run at a time: another one raises djinn.Error with the reason PROFILE_RUNNING.
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
            # The program's own error is more informative.
            if error is None:
                raise

    def _finished(self):
        if self._profile is None:
            raise RuntimeError("the profile is not finished: leave the block first")
        return self._profile

    @property
    def operators(self):
        """Dictionaries with name, mode, way ("plain", "packed", "failed"), calls and total,
        sorted by total, largest first."""
        return self._finished().operators

    @property
    def requests(self):
        """Dictionaries with device, thread, wall, and stages by name, in their order."""
        return self._finished().requests

    @property
    def statistics(self):
        """The same figures as get_profiler().get_stats()."""
        return self._finished().statistics

    @property
    def remarks(self):
        """Texts that say which figures are missing, and why."""
        return self._finished().remarks

    @property
    def dropped(self):
        """The numbers of requests, runs and nodes that were dropped for lack of room."""
        return self._finished().dropped

    def operator_table(self):
        """Returns a human-readable table of operators."""
        return self._finished().operator_table()

    def stage_table(self):
        """Returns a human-readable table of stages."""
        return self._finished().stage_table()

    def save_chrome_trace(self, path):
        """Writes the time line of threads and workers as JSON for chrome://tracing."""
        trace = self._finished().chrome_trace()
        with open(path, "w", encoding="utf-8") as file:
            file.write(trace)


class Profiler:
    """The process's profiler."""

    def get_stats(self):
        """Returns capture_ms and schedule_ms of all requests, execution_ms of all runs (all in
        milliseconds), and cache_hit_rate, the share of runs whose plan the worker had. The
        figures are those of the running profile so far, or of the last one."""
        return _djinn.profile_statistics()


_profiler = Profiler()


def get_profiler():
    """Returns the process's Profiler. It measures while a profile() block runs."""
    return _profiler

"""The graphs that calls make."""

import json

from djinn import _djinn


def export_graph(function, *args, index=0, **kwargs):
    """The graphs of all calls made for the device while `function(*args, **kwargs)` runs.

    A dict as djinn.v1.GraphExport (proto/djinn/v1/graph_export.proto) has it in JSON:
    "pieces", a graph each for every stretch of calls that was sent at a time, in order of
    first use. `djinnctl get graph FINGERPRINT` shows what the coordinator found out about
    one. With `set_call_sites` the notes say where in the program its nodes were called.
    Waits for the device before and after; calls of other threads count, too.
    """
    return json.loads(_djinn.export_graph(lambda: function(*args, **kwargs), index))

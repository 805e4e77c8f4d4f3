"""Exports the graphs of a program's calls."""

import json

from djinn import _djinn


def export_graph(function, *args, index=0, **kwargs):
    """Calls `function(*args, **kwargs)` and returns the graphs of all calls on the device.

    The result is a dict in the form of djinn.v1.GraphExport as JSON
    (proto/djinn/v1/graph_export.proto). Its "pieces" have one graph for each part that was
    sent at one time, in the order of first use. `djinnctl get graph FINGERPRINT` shows what
    the coordinator knows about a graph. With set_call_sites() the notes name the places of
    the calls. Calls of other threads are included, and the function waits for the device
    before and after.

    Raises djinn.Error, whose reason is EXPORT_RUNNING if another export runs, and
    EXPORT_TOO_LARGE above 256 MiB.
    """
    return json.loads(_djinn.export_graph(lambda: function(*args, **kwargs), index))

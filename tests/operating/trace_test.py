"""Traces of requests, from the program to the node, with real processes and a real collector."""

import base64
import collections
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import unittest

from tests.operating.cluster import PATIENCE, Cluster, eventually

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_TOKENS = [name + "-0123456789abcdef" for name in ("join", "admin", "dev")]
# A product of this size takes a CPU about ten milliseconds. The operand is small enough to be
# sent at once.
_SIZE = "640"
# A request's products, as traced_request makes them.
_PRODUCTS = 12
_REQUESTS = 24
# The share of a whole that its parts may miss or exceed, and the noise of clocks, which differ
# more between processes.
_SHARE = 0.05
_NOISE = 1e-3
_NOISE_BETWEEN = 0.05


def _attributes(pairs):
    def value(of):
        [(kind, found)] = of.items()
        return int(found) if kind == "intValue" else found

    return {pair["key"]: value(pair["value"]) for pair in pairs}


def _hex(text):
    return base64.b64decode(text).hex()


def _spans(request):
    """The spans of an ExportTraceServiceRequest as JSON, with times in seconds."""
    for resource_spans in request["resourceSpans"]:
        resource = _attributes(resource_spans["resource"]["attributes"])
        for span in resource_spans["scopeSpans"][0]["spans"]:
            yield {"service": resource["service.name"],
                   "trace": _hex(span["traceId"]),
                   "span": _hex(span["spanId"]),
                   "parent": _hex(span.get("parentSpanId", "")),
                   "name": span["name"],
                   "start": int(span["startTimeUnixNano"]) / 1e9,
                   "end": int(span["endTimeUnixNano"]) / 1e9,
                   "attributes": _attributes(span.get("attributes", ()))}


class Collector:
    """Runs a collector process, and keeps the spans that it received."""

    def __init__(self, case, folder):
        self._path = os.path.join(folder, "spans")
        process = subprocess.Popen(
            ["tests/operating/otlp_collector", self._path], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        case.addCleanup(process.stdout.close)
        case.addCleanup(process.wait, PATIENCE)
        case.addCleanup(process.stdin.close)
        self.address = process.stdout.readline().strip()

    def received(self):
        """JSON and bytes of each request."""
        if not os.path.exists(self._path):
            return []
        with open(self._path) as file:
            # The last line may be half written.
            lines = [line.split("\t") for line in file if line.endswith("\n")]
        return [(json.loads(text), base64.b64decode(data)) for text, data in lines]

    def spans(self):
        return [span for request, _ in self.received() for span in _spans(request)]


def _length(span):
    return span["end"] - span["start"]


def _sum(spans):
    return sum(map(_length, spans))


def _adds_up(whole, parts):
    """Whether the lengths of the parts add up to that of the whole."""
    return abs(sum(parts) - whole) <= _SHARE * whole + _NOISE


def _covered(spans):
    """Returns the length of the union of the spans."""
    total, end = 0, 0
    for span in sorted(spans, key=lambda span: span["start"]):
        total += max(0, span["end"] - max(span["start"], end))
        end = max(end, span["end"])
    return total


def _complete(spans, requests):
    """The spans, once those of so many requests and of their products are among them."""
    names = collections.Counter(span["name"] for span in spans)
    complete = (names["request"] == names["receive"] == requests and names["announce"] and
                names["aten::mm"] == _PRODUCTS * requests and names["execute"] == names["run"])
    return spans if complete else None


class TraceTest(unittest.TestCase):

    def start(self, tracing=True, worker_extra=""):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.collector = Collector(self, folder.name)
        extra = "monitoring: {listen: '127.0.0.1:0'}\n"
        if tracing:
            extra += "tracing: {endpoint: '%s'}\n" % self.collector.address
        # With this time-out, a worker that is suspended for a while is not lost.
        self.cluster = Cluster(folder.name, ("w0",), extra=extra, worker_extra=worker_extra,
                               coordinator_extra="worker_timeout: 20s\n")
        self.addCleanup(self.cluster.stop)
        eventually(lambda: self.cluster.json("get", "workers")["workers"], "the worker joins")

    def request(self, *arguments, until=lambda: True, **variables):
        """Runs the program, which ends once `until` holds; returns how long each of its requests
        took."""
        with subprocess.Popen(
                ["tests/operating/traced_request", *arguments],
                env=self.cluster.environment(**variables), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            eventually(lambda: until() or process.poll() is not None, "all spans arrive")
            out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, errors)
        return [float(line) for line in out.split()]

    def client(self, **variables):
        return {"DJINN_TRACING_ENDPOINT": self.collector.address,
                "DJINN_TRACING_SAMPLE_RATIO": "1", **variables}

    def arrived(self, names):
        """The received spans, if there is one of each name."""
        spans = self.collector.spans()
        missing = names - {span["name"] for span in spans}
        return None if missing else spans

    def wait_for(self, names):
        """The received spans, once there is one of each name."""
        return eventually(
            lambda: self.arrived(names), "spans arrive: " + ", ".join(sorted(names)))

    def assert_adds_up(self, whole, parts):
        self.assertTrue(_adds_up(_length(whole), map(_length, parts)), (whole, parts))

    def test_sums_that_differ_are_seen_in_both_directions(self):
        self.assertTrue(_adds_up(1, [0.5, 0.46]))
        self.assertTrue(_adds_up(1, [0.5, 0.54]))
        self.assertFalse(_adds_up(1, [0.5, 0.44]))
        self.assertFalse(_adds_up(1, [0.5, 0.56]))
        self.assertEqual(_covered([{"start": 3, "end": 5}, {"start": 1, "end": 4},
                                   {"start": 7, "end": 8}]), 5)

    def test_one_trace_holds_client_coordinator_worker_and_nodes(self):
        self.start()
        times = self.request(
            str(_REQUESTS), _SIZE, _PARENT,
            until=lambda: _complete(self.collector.spans(), _REQUESTS),
            **self.client(DJINN_TRACING_NODES="1"))
        self.assertEqual(len(times), _REQUESTS)
        spans = self.collector.spans()
        self.assertEqual(len({span["span"] for span in spans}), len(spans))
        children = collections.defaultdict(lambda: collections.defaultdict(list))
        for span in spans:
            # One trace, which is the caller's.
            self.assertEqual(span["trace"], _PARENT.split("-")[1], span)
            self.assertEqual(span["attributes"]["djinn.tenant"], "dev")
            children[span["parent"]][span["name"]].append(span)
        service = {"request": "djinn-client", "grant lease": "djinn-coordinator",
                   "run": "djinn-worker", "aten::mm": "djinn-worker"}
        for span in spans:
            self.assertEqual(span["service"], service.get(span["name"], span["service"]))

        root = children.pop(_PARENT.split("-")[2])
        self.assertEqual(set(root), {"request"})
        requests = sorted(root["request"], key=lambda span: span["start"])
        # Each entry has the wholes of one request, each with its parts.
        sums = []
        for took, request in zip(times, requests):
            below = children.pop(request["span"])
            leases = below.pop("grant lease", ())
            # The first request needed a lease.
            self.assertEqual(len(leases), 1 if request is requests[0] else 0)
            for lease in leases:
                self.assertEqual(lease["attributes"]["djinn.worker"], "w0")
                parts = children.pop(lease["span"])
                self.assertEqual(set(parts), {"place", "announce"})
                self.assert_adds_up(lease, parts["place"] + parts["announce"])
            runs = below.pop("run")
            self.assertEqual(set(below), {"record", "send", "wait", "receive"})
            self.assert_adds_up(request, [stage for [stage] in below.values()])
            # The program measured the same request.
            self.assertLessEqual(_length(request), took + _NOISE)
            covered = [("program", took, [_length(request)]),
                       ("request", _length(request), [_covered(runs)])]
            sums.append(covered)
            products = 0
            for run in runs:
                self.assertEqual(run["attributes"]["djinn.state"], "completed")
                self.assertGreaterEqual(run["start"], request["start"] - _NOISE_BETWEEN)
                self.assertLessEqual(run["end"], request["end"] + _NOISE_BETWEEN)
                parts = children.pop(run["span"])
                [turn] = parts["turn"]
                self.assertLessEqual(set(parts), {"queue", "batching", "turn"})
                self.assert_adds_up(run, sum(parts.values(), []))
                below_turn = children.pop(turn["span"])
                self.assertEqual(set(below_turn), {"execute"})
                [execute] = below_turn["execute"]
                self.assertLessEqual(_length(execute), _length(turn) + _NOISE)
                nodes = sum(children.pop(execute["span"], {}).values(), [])
                self.assertLessEqual(_sum(nodes), _length(execute) + _NOISE)
                products += sum(node["name"] == "aten::mm" for node in nodes)
                covered += [("turn", _length(turn), [_length(execute)]),
                            ("execute", _length(execute), list(map(_length, nodes)))]
            self.assertEqual(products, _PRODUCTS)
        # Between two spans a process may be suspended, but not in most requests.
        shares = collections.defaultdict(list)
        for name, whole, parts in itertools.chain.from_iterable(sums):
            shares[name].append(sum(parts) / whole)
        for name, found in shares.items():
            self.assertLessEqual(abs(statistics.median(found) - 1), _SHARE, (name, sums))
        # Every span hangs in the tree.
        self.assertEqual(dict(children), {})
        for _, data in self.collector.received():
            for token in _TOKENS:
                self.assertNotIn(token.encode(), data)
        metrics = self.cluster.http("w0", "metrics")[1]
        self.assertRegex(metrics, r'djinn_trace_spans_total\{result="exported"\} [1-9]')

    def test_nothing_is_exported_when_it_is_off(self):
        self.start(tracing=False)
        self.request("1", "16", **self.client(DJINN_TRACING_SAMPLE_RATIO="0"))
        self.request("1", "16", _PARENT)
        # The spans of a later request arrive behind those that there must not be.
        names = {"request", "record", "send", "wait", "receive"}
        self.request("1", "16", until=lambda: self.arrived(names), **self.client())
        spans = self.collector.spans()
        self.assertEqual({span["name"] for span in spans}, names)
        self.assertEqual(len({span["trace"] for span in spans}), 1)
        self.assertEqual({span["service"] for span in spans}, {"djinn-client"})
        self.assertNotIn(_PARENT.split("-")[1], {span["trace"] for span in spans})

    def test_an_unsampled_request_leaves_no_span(self):
        self.start()
        self.request("1", "16", _PARENT[:-1] + "0", **self.client())
        # The spans of a later request arrive behind those that there must not be.
        names = {"request", "grant lease", "run"}
        self.request("1", "16", until=lambda: self.arrived(names), **self.client())
        spans = self.collector.spans()
        self.assertNotIn(_PARENT.split("-")[1], {span["trace"] for span in spans})
        self.assertEqual(len({span["trace"] for span in spans}), 1)

    def test_workers_export_for_clients_that_do_not(self):
        self.start()
        self.request("1", "16", _PARENT)
        spans = self.wait_for({"grant lease", "run"})
        self.assertEqual({span["service"] for span in spans},
                         {"djinn-coordinator", "djinn-worker"})

    def test_a_tenants_process_exports_through_the_supervisor(self):
        self.start(worker_extra="isolation: {mode: process, executors: 1}\n")
        names = {"request", "run", "turn", "aten::mm"}
        self.request(
            "1", "16", _PARENT, until=lambda: self.arrived(names), DJINN_TRACING_NODES="1",
            **self.client(DJINN_TRACING_SAMPLE_RATIO="0"))
        spans = self.collector.spans()
        for span in spans:
            self.assertEqual(span["attributes"]["djinn.tenant"], "dev")
            self.assertEqual(span["trace"], _PARENT.split("-")[1])

    def test_a_dead_collector_changes_no_result(self):
        self.start(tracing=False)
        self.request("3", "16", **self.client(DJINN_TRACING_ENDPOINT="127.0.0.1:1"))

    def test_bad_settings_are_named(self):
        self.start(tracing=False)
        for variables, said in (
                # The printed status escapes letters of the reason.
                ({"DJINN_TRACING_SAMPLE_RATIO": "2"}, "sample_ratio is 2"),
                ({"DJINN_TRACING_SAMPLE_RATIO": "often"}, "DJINN_TRACING_SAMPLE_RATIO is"),
                ({"DJINN_TRACING_ENDPOINT": "otel.example.com:4317"}, "INSECURE_ADDRESS")):
            done = subprocess.run(
                ["tests/operating/traced_request", "1", "16"],
                env=self.cluster.environment(**self.client(**variables)),
                capture_output=True, text=True, timeout=PATIENCE)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()

"""Tests how the profile divides a program's time."""

import json
import os
import tempfile
import time

import torch

import djinn
from tests.python.remote_case import RemoteCase

STAGES = ["capture", "encode", "client queue", "transit", "decode", "admission",
          "worker queue", "bind", "execute", "reply", "transit back", "hand over"]


class ProfileTest(RemoteCase):
    def profiled(self, work):
        with djinn.profile() as profile:
            work()
        return profile

    def test_counts_operators_where_they_were_executed(self):
        x = torch.randn(64, 64)
        remote = x.to(self.device)

        def work():
            for _ in range(3):
                torch.testing.assert_close(torch.mm(remote, remote).cpu(), torch.mm(x, x))

        profile = self.profiled(work)
        [product] = [op for op in profile.operators if op["name"] == "aten::mm"]
        self.assertEqual(product["calls"], 3)
        self.assertEqual(product["mode"], "strict")
        self.assertEqual(product["way"], "plain")
        self.assertGreater(product["total"], 0)
        self.assertIn("aten::mm", profile.operator_table())
        self.assertEqual(profile.remarks, [])
        self.assertEqual(profile.dropped, {"requests": 0, "runs": 0, "nodes": 0})

    def test_stages_add_up_to_each_request(self):
        remote = torch.randn(256, 256, device=self.device)
        walls = []

        def work():
            for _ in range(20):
                start = time.perf_counter()
                y = remote
                for _ in range(4):
                    y = y @ remote
                y.cpu()
                walls.append(time.perf_counter() - start)

        profile = self.profiled(work)
        self.assertEqual(len(profile.requests), 20)
        for request, wall in zip(profile.requests, walls):
            self.assertEqual(list(request["stages"]), STAGES)
            self.assertTrue(all(time >= 0 for time in request["stages"].values()))
            total = sum(request["stages"].values())
            self.assertAlmostEqual(total, request["wall"], places=6)
            # The components are within the time that the caller measured.
            self.assertLessEqual(total, wall)
        self.assertIn("20 requests", profile.stage_table())

    def test_packed_nodes_are_shown_as_such(self):
        djinn.set_execution_mode("fast")
        self.addCleanup(djinn.set_execution_mode, "strict")
        layer = torch.nn.Linear(384, 384).to(self.device).requires_grad_(False)
        rows = torch.randn(32, 384, device=self.device)

        def work():
            for _ in range(200):
                layer(rows).cpu()

        profile = self.profiled(work)
        ways = {op["way"] for op in profile.operators if "addmm" in op["name"]
                or "linear" in op["name"]}
        self.assertIn("packed", ways)
        self.assertTrue(all(op["mode"] == "fast" for op in profile.operators))

    def test_writes_a_time_line(self):
        remote = torch.randn(8, 8, device=self.device)
        profile = self.profiled(lambda: (remote + 1).cpu())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.save_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        self.assertLessEqual({"request", "capture", "aten::add.Tensor"},
                             {event["name"] for event in slices})
        [request] = [e for e in slices if e["name"] == "request"]
        [node] = [e for e in slices if e["name"] == "aten::add.Tensor"]
        self.assertEqual(request["pid"], os.getpid())
        # All events are on one time line: the request contains what it waited
        # for, within the accuracy of the clocks.
        self.assertGreater(node["ts"], request["ts"] - 1000)
        self.assertLess(node["ts"] + node["dur"], request["ts"] + request["dur"] + 1000)

    def test_the_profiler_has_statistics(self):
        remote = torch.randn(8, 8, device=self.device)
        for _ in range(2):  # its plan is there from here on
            (remote * 3).cpu()

        def work():
            for _ in range(10):
                (remote * 3).cpu()

        profile = self.profiled(work)
        stats = djinn.get_profiler().get_stats()
        self.assertEqual(stats, profile.statistics)
        self.assertEqual(set(stats), {
            "capture_ms", "schedule_ms", "execution_ms", "cache_hit_rate"})
        self.assertGreater(stats["capture_ms"], 0)
        self.assertGreater(stats["schedule_ms"], 0)
        self.assertGreater(stats["execution_ms"], 0)
        self.assertEqual(stats["cache_hit_rate"], 1)

    def test_one_at_a_time_and_readable_afterwards_only(self):
        with djinn.profile() as outer:
            with self.assertRaisesRegex(djinn.Error, "profiled already"):
                with djinn.profile():
                    self.fail("not entered")
            with self.assertRaisesRegex(RuntimeError, "leave the block first"):
                outer.operators
        self.assertEqual(outer.requests, [])

    def test_the_programs_own_exception_passes_through(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            with djinn.profile():
                raise KeyError("mine")
        self.assertEqual(self.profiled(lambda: None).requests, [])

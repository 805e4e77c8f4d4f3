"""Tests of test_report.py on build events written here."""

import contextlib
import io
import json
import os
import tempfile
import unittest

from third_party.tools import test_report

_TWO_PASS = '<testsuites><testsuite><testcase name="A" status="run"/><testcase name="B"/></testsuite></testsuites>'
_ONE_FAILS = '<testsuites><testsuite><testcase name="A" classname="S"><failure/></testcase><testcase name="B"/></testsuite></testsuites>'
_SKIPS = '<testsuites><testsuite><testcase name="A" status="notrun"/><testcase name="B"><skipped/></testcase></testsuite></testsuites>'


class TestReportTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.events = []

    def add_result(self, label, status, xml=None, attempt=1):
        event = {
            "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}},
            "testResult": {"status": status},
        }
        if xml is not None:
            path = os.path.join(self.folder, "test %d.xml" % len(self.events))
            with open(path, "w") as f:
                f.write(xml)
            uri = "file://" + path.replace(" ", "%20")
            event["testResult"]["testActionOutput"] = [{"name": "test.xml", "uri": uri}]
        self.events.append(event)

    def report(self, bazel_status):
        """Returns the exit status and the lines printed."""
        path = os.path.join(self.folder, "events.json")
        with open(path, "w") as f:
            f.writelines(json.dumps(event) + "\n" for event in self.events)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = test_report.main(path, bazel_status)
        return status, out.getvalue().splitlines()

    def test_counts_cases_over_all_targets(self):
        self.add_result("//a:a", "PASSED", _TWO_PASS)
        self.add_result("//b:b", "FAILED", _ONE_FAILS)
        self.assertEqual(self.report(3), (1, ["FAILED: //b:b S.A", "3 passed, 1 failed"]))

    def test_passing_run_succeeds(self):
        self.add_result("//a:a", "PASSED", _TWO_PASS)
        self.assertEqual(self.report(0), (0, ["2 passed, 0 failed"]))

    def test_a_test_that_was_given_up_fails_with_the_run(self):
        self.add_result("//a:a", "PASSED", _TWO_PASS)
        self.events.append({"id": {"testResult": {"label": "//b:b"}}, "aborted": {}})
        status, lines = self.report(8)
        self.assertEqual(status, 1)
        self.assertIn("2 passed, 1 failed", lines)

    def test_skipped_cases_are_neither_passed_nor_failed(self):
        self.add_result("//a:a", "PASSED", _SKIPS)
        self.assertEqual(self.report(0), (1, ["2 skipped", "0 passed, 0 failed"]))

    def test_target_that_does_not_build_is_a_failure(self):
        self.add_result("//a:a", "PASSED", _TWO_PASS)
        self.events.append({"id": {"targetCompleted": {"label": "//b:b"}}, "aborted": {}})
        self.events.append({"id": {"targetCompleted": {"label": "//a:a"}}, "completed": {"success": True}})
        self.assertEqual(self.report(1), (1, ["FAILED: //b:b does not build", "2 passed, 1 failed"]))

    def test_test_that_dies_without_a_failed_case_is_a_failure(self):
        self.add_result("//a:a", "FAILED", _TWO_PASS)
        self.add_result("//b:b", "TIMEOUT")
        self.assertEqual(self.report(3), (1, ["FAILED: //a:a FAILED", "FAILED: //b:b TIMEOUT", "2 passed, 2 failed"]))

    def test_last_attempt_decides(self):
        self.add_result("//a:a", "FAILED", _ONE_FAILS, attempt=1)
        self.add_result("//a:a", "PASSED", _TWO_PASS, attempt=2)
        self.assertEqual(self.report(0), (0, ["2 passed, 0 failed"]))

    def test_bazel_failure_without_any_event_is_a_failure(self):
        self.assertEqual(self.report(1), (1, ["FAILED: bazel ended with status 1", "0 passed, 1 failed"]))


if __name__ == "__main__":
    unittest.main()

"""Counts the test cases of one `bazel test` run from its build events.

usage: test_report.py EVENTS_JSON BAZEL_EXIT_STATUS [CHECK=passed|failed ...]

Prints what failed and ends with the line "N passed, N failed". A target that does
not build counts as one failure, as does a test that dies without naming a case.
Each CHECK, made outside Bazel, counts as one test.
Exits 1 when something failed or nothing passed.
"""

import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree

Counts = collections.namedtuple("Counts", "passed skipped failed")


def count_cases(path):
    """Reads one test.xml; returns Counts with the failed cases by name."""
    passed, skipped, failed = 0, 0, []
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "")
        if case.get("classname"):
            name = case.get("classname") + "." + name
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.get("status") == "notrun" or case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return Counts(passed, skipped, failed)


class Report:
    """Collects the results of one run from its build events."""

    def __init__(self):
        self.unbuilt = []
        self.results = {}  # (label, run, shard) -> (attempt, status, path of test.xml)

    def add(self, event):
        id_ = event.get("id", {})
        if "targetCompleted" in id_:
            if not event.get("completed", {}).get("success"):
                self.unbuilt.append(id_["targetCompleted"]["label"])
        elif "testResult" in id_ and "testResult" in event:
            # A test that was given up has no result.
            key = id_["testResult"]
            attempt = key.get("attempt", 1)
            shard = (key["label"], key.get("run", 1), key.get("shard", 1))
            # A flaky test is judged by its last attempt.
            if self.results.get(shard, (0,))[0] <= attempt:
                result = event["testResult"]
                files = {f["name"]: f.get("uri", "") for f in result.get("testActionOutput", [])}
                path = urllib.parse.unquote(urllib.parse.urlparse(files.get("test.xml", "")).path)
                self.results[shard] = (attempt, result["status"], path)

    def counts(self):
        passed, skipped, failed = 0, 0, []
        for (label, _, _), (_, status, path) in sorted(self.results.items()):
            try:
                cases = count_cases(path)
            except (OSError, xml.etree.ElementTree.ParseError):
                cases = Counts(0, 0, [])
            passed += cases.passed
            skipped += cases.skipped
            failed += ["%s %s" % (label, name) for name in cases.failed]
            # For instance a sanitizer's report at exit, or a time-out.
            if status not in ("PASSED", "FLAKY") and not cases.failed:
                failed.append("%s %s" % (label, status))
        failed += [label + " does not build" for label in sorted(set(self.unbuilt))]
        return Counts(passed, skipped, failed)


def main(events, bazel_status, checks=()):
    report = Report()
    with open(events) as lines:
        for line in lines:
            report.add(json.loads(line))
    passed, skipped, failed = report.counts()
    for check in checks:
        name, _, outcome = check.rpartition("=")
        if outcome == "passed":
            passed += 1
        else:
            failed.append(name)
    if bazel_status != 0 and not failed:
        failed.append("bazel ended with status %d" % bazel_status)
    for failure in failed:
        print("FAILED: " + failure)
    if skipped:
        print("%d skipped" % skipped)
    print("%d passed, %d failed" % (passed, len(failed)))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

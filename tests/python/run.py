"""Runs a module's unittest cases, and names each of them in Bazel's test.xml."""

import os
import sys
import time
import unittest
import xml.etree.ElementTree


class _Result(unittest.TextTestResult):
    """Keeps what happened to each case."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []

    def startTest(self, test):
        self._outcome = None
        self._started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        seconds = time.monotonic() - self._started
        self.cases.append((test.id(), seconds, self._outcome))

    def addError(self, test, err):
        super().addError(test, err)
        self._outcome = ("error", self.errors[-1][1])
        if not isinstance(test, unittest.TestCase):  # setUpClass, setUpModule
            self.cases.append((str(test), 0, self._outcome))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._outcome = ("failure", self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._outcome = ("failure", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._outcome = ("skipped", reason)


def _write_xml(cases, path):
    suite = xml.etree.ElementTree.Element("testsuite")
    for name, seconds, outcome in cases:
        group, _, short = name.rpartition(".")
        case = xml.etree.ElementTree.SubElement(
            suite, "testcase", classname=group, name=short, time=f"{seconds:.3f}")
        if outcome is not None:
            xml.etree.ElementTree.SubElement(case, outcome[0]).text = outcome[1]
    xml.etree.ElementTree.ElementTree(suite).write(path)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(resultclass=_Result, verbosity=2).run(suite)
    if path := os.environ.get("XML_OUTPUT_FILE"):
        _write_xml(result.cases, path)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())

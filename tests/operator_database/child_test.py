import json
import sys
import unittest

from tests.operator_database import child

# A checker whose behaviour the task decides, by the sample that must not be run.
FAKE = """
import json, os, sys, time
results = os.fdopen(int(sys.argv[1]), "w", buffering=1)
def send(message):
    results.write(json.dumps(message) + "\\n")
send({"ready": True})
for line in sys.stdin:
    task = json.loads(line)
    for sample in range(3):
        if ["forward", sample] in task["skip"]:
            continue
        send({"at": ["forward", sample]})
        if sample in task["fatal"]:
            os._exit(7)
        while sample in task["hanging"]:
            time.sleep(60)
    send({"done": {"forward": {"samples": 3 - len(task["skip"]),
                               "equal": 3 - len(task["skip"]),
                               "failures": [], "synchronous": {}}}})
"""


class ChildTest(unittest.TestCase):
    def run_task(self, **task):
        tester = child.Child([sys.executable, "-c", FAKE], sample_seconds=1)
        try:
            return tester.run({"fatal": [], "hanging": [], **task})["forward"]
        finally:
            tester.stop()

    def test_a_task_returns_the_result_of_the_checker(self):
        self.assertEqual(self.run_task()["equal"], 3)

    def test_a_death_counts_against_its_sample_alone(self):
        outcome = self.run_task(fatal=[1])
        self.assertEqual((outcome["equal"], outcome["samples"]), (2, 3))
        self.assertEqual(
            outcome["failures"],
            [{"sample": 1, "kind": "death", "message": "exit status 7"}],
        )

    def test_a_hang_counts_against_its_sample_alone(self):
        outcome = self.run_task(hanging=[0])
        self.assertEqual((outcome["equal"], outcome["samples"]), (2, 3))
        self.assertIn("hung", outcome["failures"][0]["message"])

    def test_several_offenders_are_all_found(self):
        outcome = self.run_task(fatal=[0, 2])
        self.assertEqual([f["sample"] for f in outcome["failures"]], [0, 2])
        self.assertEqual(outcome["equal"], 1)

    def test_a_checker_that_never_starts_is_a_failure(self):
        tester = child.Child([sys.executable, "-c", "raise SystemExit(1)"])
        outcome = tester.run({})["forward"]
        self.assertEqual(outcome["equal"], 0)
        self.assertIn("given up", outcome["failures"][0]["message"])
        json.dumps(outcome)

"""The pages of docs/reference are what the code says."""

import os
import re
import unittest

from docs.reference import reference


_ROOT = os.path.dirname(os.path.realpath("djinn"))
# Sources that a worker with a process per tenant runs in the supervisor alone, and
# families that an executor lacks.
_SUPERVISOR = ("gpu_worker/supervisor/", "gpu_worker/supervised_worker", "gpu_worker/gpus/",
               "gpu_worker/all_gpus", "gpu_worker/nvml/")
_NO_EXECUTOR = ("process_", "djinn_build_info", "djinn_certificate_", "djinn_config_",
                "djinn_ready", "djinn_trace_", "djinn_worker_channel_", "djinn_content_disk_")


class ReferenceTest(unittest.TestCase):

    def test_pages_equal_the_code(self):
        found = reference.differences(_ROOT, os.path.abspath("docs/reference/config_keys"))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_supervisors_know_the_metrics_of_executors(self):
        texts = reference.sources(_ROOT)
        table = texts["gpu_worker/supervisor/metrics/executor_families.cc"]
        kinds = {"Counter": "counter", "Gauge": "gauge"}
        known = {name: (kinds.get(kind, "histogram"), reference.literal(text))
                 for kind, name, text in re.findall(
                     r'(Counter|Gauge|Durations|Counts|Sizes)\(\s*"(\w+)",'
                     r'((?:\s*"(?:[^"\\]|\\.)*")+)', table)}
        counted = reference.metrics({
            path: text for path, text in texts.items()
            if path.startswith(("gpu_worker/", "common/"))
            and not path.startswith(_SUPERVISOR)})
        self.assertEqual(known, {
            name: (kind, text) for name, (kind, text, *_) in counted.items()
            if not name.startswith(_NO_EXECUTOR)})

    def test_help_of_each_metric_can_be_read_alone(self):
        unclear = {name: text
                   for name, (_, text, *_) in reference.metrics(reference.sources(_ROOT)).items()
                   if re.match(r"(What|How|Their|From|Those)\b", text) or len(text.split()) < 3}
        self.assertEqual(unclear, {}, "a help begins with its subject and has 3 words or more")

    def test_finds_each_form_of_a_metric(self):
        texts = {
            "coordinator/a.h": 'LabelledCounter a_{"djinn_a_total",\n "A" " b.", {"x", "y"}};',
            "gpu_worker/b.cc": 'constexpr char kName[] = "djinn_b";\n'
                               'out->Gauge(kName, "Bees.", f(1, 2), {{"tenant", t(a)}});\n'
                               'out->Histogram("djinn_c_seconds", "Sees.", d);',
            "common/d.cc": 'const auto g = [&](const char* name, const char* help, double v) {\n'
                           '  out->Gauge(name, help, v, {{"k", r}}); };\n g("djinn_d", "Dee.", 1);',
        }
        self.assertEqual(reference.metrics(texts), {
            "djinn_a_total": ["counter", "A b.", {"x", "y"}, {"coordinator"}],
            "djinn_b": ["gauge", "Bees.", {"tenant"}, {"worker"}],
            "djinn_c_seconds": ["histogram", "Sees.", set(), {"worker"}],
            "djinn_d": ["gauge", "Dee.", {"k"}, {"coordinator", "worker"}],
        })

    def test_finds_reasons_with_their_codes(self):
        texts = {"common/a.cc": 'return MakeError(absl::StatusCode::kNotFound, "NO_A",\n'
                                ' absl::StrCat("no such a ", 1));\n'
                                'return LimitExceeded("A_MEMORY", "many as", 1, 2, 3);\n'
                                'getenv("SOME_VARIABLE");\n'
                                'SystemError("SO_RCVTIMEO");\n'
                                'SystemError("RLIMIT_CORE");\n'
                                'SystemError("PR_SET_DUMPABLE");\n'
                                'Has("PYTORCH_CUDA_ALLOC_CONF");\n'}
        self.assertEqual(reference.reasons(texts), {
            "NO_A": ({"NOT_FOUND"}, {"common"}, ["no such a…"]),
            "A_MEMORY": ({"RESOURCE_EXHAUSTED"}, {"common"}, ["many as"]),
        })

    def test_keeps_explanations_and_names_missing_ones(self):
        page, missing = reference.configuration_page(
            [("worker", "a", "size", "`1GiB`"), ("worker", "b.c", "text", "none")],
            reference.means_of("## Worker\n| `a` | x | y | the a, `1` \\| 2 |\n"))
        self.assertIn("| `a` | size | `1GiB` | the a, `1` \\| 2 |", page)
        self.assertEqual(missing, ["worker: b.c"])


if __name__ == "__main__":
    unittest.main()

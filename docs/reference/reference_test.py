"""The pages of docs/reference are what the code says."""

import glob
import os
import re
import unittest

from docs.reference import reference


_ROOT = os.path.dirname(os.path.realpath("djinn"))


# Reasons of servers that no operator has to act on: what broken or foreign peers sent, and
# faults of Djinn's own. Their text says all that there is to know.
_OF_PEERS = {
    "BAD_SCALED_OBJECT", "CHANGE_MALFORMED", "CONTENT_MISMATCH", "GRAPHS_QUEUED",
    "GRAPH_MALFORMED", "INVALID_GENERATOR", "INVALID_VIEW", "LEASE_RETURNED", "LEASE_SUPERSEDED",
    "MALFORMED_GRAPH", "MALFORMED_KEY", "MALFORMED_LEASE", "MALFORMED_NOTES", "METRIC_UNKNOWN",
    "NO_PEERS", "NO_SUCH_SESSION", "OFFER_REPLACED", "OLD_REVISION", "PAGE_SIZE_NEGATIVE",
    "PAGE_TOKEN_MALFORMED", "TIME_MALFORMED", "TOO_MANY_OFFERS", "TOO_MANY_STREAMS",
    "WRONG_WORKER",
}
_OF_FAULTS = {
    "DEVICE_COPY_FAILED", "DEVICE_FAILED", "DEVICE_FULL", "GRAPH_FAILED", "INVALID_CONFIG",
    "NODE_FAILED", "NOT_DIVISIBLE", "NOT_IN_STAGES", "NOT_RECORDING", "STORE_BAD_KEY",
    "STORE_CONFLICT", "STORE_LEASE_HELD", "UNSUPPORTED_RESULT",
}
# Reasons that only one command or page shows. Their text says everything.
_OF_COMMANDS = {"DRAWING_TOO_LARGE", "NOTHING_SEEN", "SESSION_ENDED", "TOO_MANY_OBJECTS"}


class ReferenceTest(unittest.TestCase):

    def test_pages_explain_the_reasons_of_servers(self):
        text = ""
        for path in glob.glob("docs/**/*.md", root_dir=_ROOT, recursive=True):
            if not path.startswith("docs/reference/"):
                with open(os.path.join(_ROOT, path), encoding="utf-8") as file:
                    text += file.read()
        explained = set(re.findall("[A-Z][A-Z0-9_]+", text))
        found = {reason for reason, (_, folders, _) in reference.reasons(
            reference.sources(_ROOT)).items() if folders & {"common", "coordinator", "gpu_worker"}}
        excepted = _OF_PEERS | _OF_FAULTS | _OF_COMMANDS
        self.assertEqual(found - explained - excepted, set())
        self.assertEqual(excepted - (found - explained), set(), "they need no exception")

    def test_pages_equal_the_code(self):
        found = reference.differences(_ROOT, os.path.abspath("docs/reference/config_keys"))
        self.assertEqual(found, [], "\n" + "\n".join(found))

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
            "coordinator/e.cc": 'Values all = out->Gauges(\n"djinn_e", "Ease.", {"x", "y"});\n'
                                'all.Add(1, {"a", b});\n'
                                'out->Counters("djinn_f_total", "Effs.", {"z"});',
        }
        self.assertEqual(reference.metrics(texts), {
            "djinn_a_total": ["counter", "A b.", {"x", "y"}, {"coordinator"}],
            "djinn_b": ["gauge", "Bees.", {"tenant"}, {"worker"}],
            "djinn_c_seconds": ["histogram", "Sees.", set(), {"worker"}],
            "djinn_d": ["gauge", "Dee.", {"k"}, {"coordinator", "worker"}],
            "djinn_e": ["gauge", "Ease.", {"x", "y"}, {"coordinator"}],
            "djinn_f_total": ["counter", "Effs.", {"z"}, {"coordinator"}],
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

"""Graphs of a program's own calls."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


def _operators(piece):
    graph = piece["graph"]
    names = [operator["name"] for operator in graph["operators"]]
    return [names[node.get("operator_index", 0)] for node in graph["nodes"]]


class ExportGraphTest(RemoteCase):
    def test_an_export_has_only_the_calls_of_the_function(self):
        x = torch.ones(2, 3).to(self.device)
        before = x + 1
        found = djinn.export_graph(lambda a, b: torch.relu(a @ b), before, x.t())
        [piece] = found["pieces"]
        self.assertEqual(_operators(piece), ["aten::matmul", "aten::relu"])
        self.assertEqual(piece["run_count"], "1")
        self.assertRegex(piece["fingerprint"], "^[0-9a-f]{64}$")
        self.assertNotIn("notes", piece)

    def test_an_export_includes_graphs_that_were_used_before(self):
        x = torch.ones(2, 3).to(self.device)

        def use():
            return torch.sigmoid(x).cpu()

        use()
        [piece] = djinn.export_graph(use)["pieces"]
        self.assertEqual(_operators(piece), ["aten::sigmoid"])
        [twice] = djinn.export_graph(lambda: [use() for _ in range(2)])["pieces"]
        self.assertEqual(twice["run_count"], "2")
        self.assertEqual(twice["fingerprint"], piece["fingerprint"])

    def test_says_where_calls_were_made(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2)).to(self.device)
        x = torch.ones(2, 3).to(self.device)
        djinn.set_call_sites(True)
        self.addCleanup(djinn.set_call_sites, False)
        [piece] = djinn.export_graph(model, x)["pieces"]
        [note] = piece["notes"]["notes"]
        self.assertEqual(note["module_path"], "Sequential.0")

    def test_exceptions_pass_and_end_it(self):
        x = torch.ones(2).to(self.device)

        def fails():
            torch.relu(x)
            raise ZeroDivisionError("mine")

        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            djinn.export_graph(fails)
        [piece] = djinn.export_graph(torch.neg, x)["pieces"]
        self.assertEqual(_operators(piece), ["aten::neg"])

    def test_an_export_within_another_is_refused(self):
        with self.assertRaisesRegex(djinn.Error, "being exported already"):
            djinn.export_graph(lambda: djinn.export_graph(lambda: None))

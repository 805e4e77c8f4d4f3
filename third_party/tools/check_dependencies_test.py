import unittest

from third_party.tools import check_dependencies


def broken(*edges):
    graph = "\n".join('  "%s" -> "%s"' % edge for edge in edges)
    return check_dependencies.broken_rules(check_dependencies.read_graph(graph))


class CheckDependenciesTest(unittest.TestCase):
    def test_allowed_directions_pass(self):
        self.assertEqual(broken(("//coordinator:main", "//scheduler/placement:placement"),
                                ("//scheduler/placement:placement", "//common:error"),
                                ("//common/net:server", "@sys//:grpc"),
                                ("//client_lib/capture:capture", "@torch//:torch")), [])

    def test_a_path_through_others_is_found_and_shown(self):
        self.assertEqual(
            broken(("//coordinator:main", "//common:thing"), ("//common:thing", "@torch//:headers")),
            ["coordinator knows common and scheduler, and no torch: "
             "//coordinator:main -> //common:thing -> @torch//:headers",
             "in common, torch is known to common/torch alone: "
             "//common:thing -> @torch//:headers"])

    def test_sideways_and_backwards_fail(self):
        self.assertEqual(len(broken(("//gpu_worker:w", "//coordinator:c"))), 1)
        self.assertEqual(len(broken(("//common:e", "//client_lib/session/model:call"))), 1)
        self.assertEqual(len(broken(("//gpu_worker/plan:executor", "@sys//:grpc"))), 1)

    def test_names_are_not_prefixes(self):
        self.assertEqual(broken(("//common_tools:x", "//coordinator:c")), [])


if __name__ == "__main__":
    unittest.main()

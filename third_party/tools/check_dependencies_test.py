import pathlib
import tempfile
import unittest

from third_party.tools import check_dependencies


def graph(*edges):
    text = "\n".join('  "%s" -> "%s"' % edge for edge in edges)
    return check_dependencies.read_graph(text)


def broken(*edges):
    return check_dependencies.broken_rules(graph(*edges))


class CheckDependenciesTest(unittest.TestCase):
    def test_allowed_directions_pass(self):
        self.assertEqual(broken(("//coordinator:main", "//scheduler/placement:placement"),
                                ("//scheduler/placement:placement", "//common/base:error"),
                                ("//common/net:server", "@sys//:grpc"),
                                ("//client_lib/capture:capture", "@torch//:torch")), [])

    def test_a_path_through_others_is_found_and_shown(self):
        self.assertEqual(
            broken(("//coordinator:main", "//common:thing"), ("//common:thing", "@torch//:headers")),
            ["coordinator knows common and scheduler, and no torch: "
             "//coordinator:main -> //common:thing -> @torch//:headers",
             "in common, torch is known to common/torch alone: "
             "//common:thing -> @torch//:headers"])

    def test_sideways_and_backward_dependencies_fail(self):
        self.assertEqual(len(broken(("//gpu_worker:w", "//coordinator:c"))), 1)
        self.assertEqual(len(broken(("//common:e", "//client_lib/session/model:call"))), 1)
        self.assertEqual(len(broken(("//gpu_worker/plan:executor", "@sys//:grpc"))), 1)

    def test_a_worker_folder_depends_on_lower_folders_only(self):
        self.assertEqual(broken(("//gpu_worker/executor:executor", "//gpu_worker/session:session"),
                                ("//gpu_worker/session:runs_test", "//gpu_worker/core:core")), [])
        self.assertEqual(broken(("//gpu_worker/store:memory", "//gpu_worker/plan:plan")),
                         ["//gpu_worker/store knows the rooms below it: "
                          "//gpu_worker/store:memory -> //gpu_worker/plan:plan"])

    def test_imports_between_the_subpackages_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder)
            (package / "_registered").mkdir()
            (package / "_registered/a.py").write_text("from djinn import _session, _b\n")
            (package / "_b.py").write_text("def f():\n    from djinn._dynamo import backend\n")
            imports = check_dependencies.read_imports(package)
        self.assertEqual(check_dependencies.broken_rules(imports), [
            "Python's _registered knows nothing of Dynamo: //client_lib/python/djinn/_registered:a"
            " -> //client_lib/python/djinn:_b -> //client_lib/python/djinn/_dynamo:backend"])

    def test_names_are_not_prefixes(self):
        self.assertEqual(broken(("//common_tools:x", "//coordinator:c")), [])

    def test_a_cycle_of_subfolders_is_found_and_shown(self):
        edges = graph(("//coordinator/rpc:a", "//coordinator/tables:b"),
                      ("//coordinator/tables:c", "//coordinator/leases:d"),
                      ("//coordinator/leases:d", "//coordinator/rpc:e"))
        self.assertEqual(check_dependencies.package_cycles(edges, set()),
                         ["subfolders of coordinator form no cycle: //coordinator/leases -> "
                          "//coordinator/rpc -> //coordinator/tables -> //coordinator/leases"])

    def test_a_target_for_tests_may_depend_on_anything(self):
        edges = graph(("//common/net:server", "//common/base:error"),
                      ("//common/base:error_test", "//common/net:server"))
        self.assertEqual(
            check_dependencies.package_cycles(edges, {"//common/base:error_test"}), [])

    def test_a_cycle_by_include_of_folders_without_build_files_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            sources = {
                "common/net/server.h": '#include <string>\n#include "common/net/tls/tls.h"\n',
                "common/net/tls/tls.h": '#include "absl/time/time.h"\n',
                "common/net/tls/tls.cc": '#include "common/net/tls/tls.h"\n',
                "common/net/tls/tls_test.cc": '#include "common/net/server.h"\n',
                "common/net/testing/authority.h": '#include "common/net/server.h"\n',
            }
            for path, text in sources.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            includes = check_dependencies.read_includes(root)
            self.assertEqual(includes["//common/net:server.h"], ["//common/net/tls:tls.h"])
            self.assertEqual(check_dependencies.package_cycles(includes, set()), [])
            (root / "common/net/tls/tls.cc").write_text('#include "common/net/server.h"\n')
            includes = check_dependencies.read_includes(root)
        self.assertEqual(check_dependencies.package_cycles(includes, set()),
                         ["subfolders of common form no cycle: //common/net -> "
                          "//common/net/tls -> //common/net"])

    def test_targets_of_one_package_may_depend_on_each_other(self):
        edges = graph(("//common/base:error", "//common/base:clock"))
        self.assertEqual(check_dependencies.package_cycles(edges, set()), [])


if __name__ == "__main__":
    unittest.main()

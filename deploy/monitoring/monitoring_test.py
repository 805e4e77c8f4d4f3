"""Alerts fire when they must, and nothing asks for a metric or label that does not exist."""

import json
import os
import re
import subprocess
import tempfile
import unittest

from deploy.monitoring import dashboards
from deploy.testing.tools import ROOT, promtool, yaml

_ALERTS = os.path.join(ROOT, "deploy/helm/djinn/files/alerts.yaml")
_TESTS = os.path.join(ROOT, "deploy/monitoring/alerts_test.yaml")
_RUNBOOKS = "docs/operator/runbooks.md"
_ROW = re.compile(r"^\| `(\w+)(?:\{([\w,]*)\})?` \| (\w+) \|", re.MULTILINE)
# Labels that a scrape adds to every sample; the namespace by the Prometheus operator.
_OF_SCRAPES = {"instance", "job", "namespace"}
_LABEL_LISTS = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"(\b(?:djinn|grpc|process)_\w+)(?:\{([^}]*)\})?")
_TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)|\{\{(\w+)\}\}")


def _read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def documented():
    """name -> labels, of every sample that the reference's metrics make."""
    found = {}
    for name, labels, kind in _ROW.findall(_read("docs/reference/metrics.md")):
        labels = set(filter(None, labels.split(","))) | _OF_SCRAPES
        if kind == "histogram":
            found[name + "_bucket"] = labels | {"le"}
            found[name + "_sum"] = found[name + "_count"] = labels
        else:
            found[name] = labels
    return found


def complaints(expression, metrics, templates=""):
    """Returns the names in an expression and its texts that do not exist."""
    found, labels = [], set(_OF_SCRAPES)
    for name, matchers in _SELECTOR.findall(_LABEL_LISTS.sub("", expression)):
        if name not in metrics:
            found.append("no metric " + name)
            continue
        labels |= metrics[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in metrics[name]:
                found.append(f"{name} has no label {label}")
    for listed in _LABEL_LISTS.findall(expression):
        found += ["no label " + label for label in re.findall(r"\w+", listed)
                  if label not in labels]
    for groups in _TEMPLATE_LABEL.findall(templates):
        label = "".join(groups)
        if label not in labels:
            found.append("no label %s for the text" % label)
    return found


def rules():
    return [rule for group in yaml.safe_load(_read(_ALERTS))["groups"] for rule in group["rules"]]


class CheckerTest(unittest.TestCase):
    """Shows that the checker finds faults."""

    METRICS = {"djinn_x_total": {"tenant", "instance"}, "djinn_y_bucket": {"le", "instance"}}

    def test_existing_names_cause_no_complaint(self):
        self.assertEqual(complaints(
            'sum by (tenant) (rate(djinn_x_total{tenant="a",instance=~"b"}[5m]))',
            self.METRICS, "{{ $labels.tenant }}"), [])
        self.assertEqual(complaints("sum by (le) (rate(djinn_y_bucket[5m]))", self.METRICS), [])

    def test_a_missing_metric_or_label_is_named(self):
        self.assertEqual(complaints("djinn_z", self.METRICS), ["no metric djinn_z"])
        self.assertEqual(complaints('djinn_x_total{phase="a"}', self.METRICS),
                         ["djinn_x_total has no label phase"])
        self.assertEqual(complaints("sum by (le) (djinn_x_total)", self.METRICS),
                         ["no label le"])
        self.assertEqual(complaints("djinn_x_total", self.METRICS, "{{phase}}"),
                         ["no label phase for the text"])


class AlertsTest(unittest.TestCase):

    def promtool(self, *arguments):
        done = subprocess.run([promtool(), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_promtool_accepts_the_rules(self):
        self.promtool("check", "rules", _ALERTS)

    def test_series_make_them_fire_or_not(self):
        self.promtool("test", "rules", _TESTS)

    def test_each_alert_is_seen_firing_and_silent(self):
        fires, silent = set(), set()
        for test in yaml.safe_load(_read(_TESTS))["tests"]:
            for one in test["alert_rule_test"]:
                (fires if one.get("exp_alerts") else silent).add(one["alertname"])
        names = {rule["alert"] for rule in rules()}
        self.assertEqual(fires, names)
        self.assertEqual(silent, names)

    def test_alerts_name_existing_metrics_and_labels(self):
        metrics = documented()
        for rule in rules():
            with self.subTest(rule["alert"]):
                self.assertEqual(
                    complaints(rule["expr"], metrics, rule["annotations"]["summary"]), [])
                self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))

    def test_no_list_of_labels_mixes_clusters(self):
        for rule in rules():
            expression = rule["expr"]
            for listed in _LABEL_LISTS.findall(expression):
                self.assertIn("namespace", listed, rule["alert"])
            for aggregation in re.findall(r"\b(?:sum|max|min|avg|count)\b(?! by )", expression):
                self.fail(f"{rule['alert']}: {aggregation} over all clusters")

    def test_absence_of_a_release_fires(self):
        """The chart's rule fires for its namespace, of which Prometheus has nothing."""
        with open(_ALERTS, encoding="utf-8") as file:
            text = file.read().replace(
                "absent(djinn_build_info)", 'absent(djinn_build_info{namespace="b"})')
        series = ['djinn_coordinator_leader{namespace="a"}',
                  'djinn_build_info{namespace="a",version="1"}']
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "alerts.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
            path = os.path.join(folder, "test.yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "10s", "tests": [{
                    "interval": "10s",
                    "input_series": [{"series": one, "values": "1x60"} for one in series],
                    "alert_rule_test": [{
                        "eval_time": "1m", "alertname": "DjinnCoordinatorAbsent",
                        "exp_alerts": [{
                            "exp_labels": {"severity": "critical", "namespace": "b"},
                            "exp_annotations": rules()[0]["annotations"]}]}]}]}, file)
            self.promtool("test", "rules", path)

    def test_each_has_a_runbook_and_each_runbook_an_alert(self):
        sections = re.findall(r"^## (Djinn\w+)$", _read(_RUNBOOKS), re.MULTILINE)
        self.assertEqual(sections, [rule["alert"] for rule in rules()])
        for rule in rules():
            self.assertEqual(rule["annotations"]["runbook"],
                             f"{_RUNBOOKS}#{rule['alert'].lower()}")


class CapacityTest(unittest.TestCase):
    """The queries of docs/operator/capacity.md ask for what exists."""

    def test_queries_name_what_exists(self):
        blocks = re.findall(r"```promql\n(.*?)```", _read("docs/operator/capacity.md"), re.DOTALL)
        queries = "".join(blocks).splitlines()
        self.assertGreater(len(queries), 5)
        metrics = documented()
        for query in queries:
            with self.subTest(query):
                self.assertEqual(complaints(query, metrics), [])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump({"groups": [{"name": "queries", "rules": [
                {"record": f"query:{number}", "expr": query}
                for number, query in enumerate(queries)]}]}, file)
            file.flush()
            done = subprocess.run(
                [promtool(), "check", "rules", file.name], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, universal_newlines=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)


class DashboardsTest(unittest.TestCase):

    def targets(self):
        for name in dashboards.DASHBOARDS:
            for panel in json.loads(_read(dashboards.path(name)))["panels"]:
                for target in panel.get("targets", []):
                    yield name, panel["title"], target

    def test_the_files_are_those_of_the_generator(self):
        for name in dashboards.DASHBOARDS:
            self.assertEqual(_read(dashboards.path(name)), dashboards.text(name), name)
        self.assertEqual(sorted(os.listdir(dashboards.FOLDER)),
                         sorted(name + ".json" for name in dashboards.DASHBOARDS))

    def test_promtool_accepts_every_query(self):
        groups = [{"name": "queries", "rules": [
            {"record": f"query:{number}", "expr": target["expr"].replace("$__rate_interval", "5m")
             .replace("$namespace", ".*")}
            for number, (_, _, target) in enumerate(self.targets())]}]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump({"groups": groups}, file)
            file.flush()
            done = subprocess.run(
                [promtool(), "check", "rules", file.name], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, universal_newlines=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_dashboards_name_existing_metrics_and_labels(self):
        metrics = documented()
        for name, title, target in self.targets():
            with self.subTest((name, title)):
                self.assertEqual(
                    complaints(target["expr"], metrics, target["legendFormat"]), [])

    def test_each_selector_is_of_the_namespace(self):
        for name, title, target in self.targets():
            for metric, matchers in _SELECTOR.findall(_LABEL_LISTS.sub("", target["expr"])):
                self.assertRegex(matchers, r'^namespace=~"\$namespace"', (name, title, metric))
        for name in dashboards.DASHBOARDS:
            variables = dashboards.dashboard(name)["templating"]["list"]
            self.assertEqual([one["name"] for one in variables], ["source", "namespace"])

    def test_panels_have_ids_of_their_own_and_do_not_overlap(self):
        for name in dashboards.DASHBOARDS:
            panels = dashboards.dashboard(name)["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
            cells = [(x, y) for at in (panel["gridPos"] for panel in panels)
                     for x in range(at["x"], at["x"] + at["w"])
                     for y in range(at["y"], at["y"] + at["h"])]
            self.assertEqual(len(set(cells)), len(cells), name)
            self.assertLess(max(x for x, _ in cells), 24)

    def test_key_metrics_are_shown_or_alerted_on(self):
        used = set()
        for _, _, target in self.targets():
            used |= {one for one, _ in _SELECTOR.findall(target["expr"])}
        for rule in rules():
            used |= {one for one, _ in _SELECTOR.findall(rule["expr"])}
        # The families that matter for what operators decide.
        for name in ("djinn_requests_total", "djinn_pending_leases", "djinn_tenant_usage",
                     "djinn_worker_device_memory_bytes", "djinn_store_writes_total",
                     "djinn_migrations_total", "djinn_ready"):
            self.assertIn(name, used)


if __name__ == "__main__":
    unittest.main()

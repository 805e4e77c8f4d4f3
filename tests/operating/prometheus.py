"""A real Prometheus with the rules and the dashboards that the chart ships."""

import glob
import json
import math
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from tests.operating.cluster import PATIENCE, eventually

_FILES = "deploy/helm/djinn/files"
# Seconds between scrapes and between evaluations of rules.
_SCRAPES = 2
# An alert may be later than its `for` by this, as the issue of the alerts has it.
_MARGIN = 30


def _prometheus():
    path = os.environ.get("DJINN_PROMETHEUS_PROGRAM") or os.path.join(
        os.path.dirname(os.getcwd()), "prometheus", "prometheus")
    if not os.path.exists(path):
        raise AssertionError("prometheus is missing: `./djinn test --full //tests/operating/...` "
                             "unpacks it")
    return path


def get(url):
    # No proxy of the environment is meant for the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PATIENCE) as answer:
        return answer.read()


def _seconds(text):
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit]
               for number, unit in re.findall(r"(\d+)([smh])", text))


def hurried(rules, hurry):
    """The rules with each `for` and each range so many times shorter; no threshold changes."""
    def shorten(found):
        return f"{found[1]}{_seconds(found[2]) // hurry}s{found[3]}"

    return re.sub(r"(for: |\[)(\d+[smh])(\n|\])", shorten, rules)


class Prometheus:
    """A server that scrapes these addresses and evaluates the chart's rules.

    With `hurry`, the rules' own times are so many times shorter.
    """

    def __init__(self, folder, targets, hurry=1):
        with open(os.path.join(_FILES, "alerts.yaml"), encoding="utf-8") as file:
            rules = hurried(file.read(), hurry)
        rules_path = os.path.join(folder, "alerts.yaml")
        with open(rules_path, "w", encoding="utf-8") as file:
            file.write(rules)
        self.waits = {}
        for rule in rules.split("- alert: ")[1:]:
            found = re.search(r"\n +for: (\S+)\n", rule)
            self.waits[rule.split("\n")[0]] = _seconds(found[1]) if found else 0
        config = {
            "global": {"scrape_interval": f"{_SCRAPES}s", "evaluation_interval": f"{_SCRAPES}s"},
            "rule_files": [rules_path],
            "scrape_configs": [{"job_name": "djinn",
                                "static_configs": [{"targets": sorted(targets)}]}]}
        path = os.path.join(folder, "prometheus.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self._log = open(os.path.join(folder, "prometheus.log"), "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [_prometheus(), "--config.file=" + path,
             "--storage.tsdb.path=" + os.path.join(folder, "series"),
             "--web.listen-address=127.0.0.1:0"], stderr=self._log, stdout=self._log)
        self._address = eventually(self._find, "prometheus listens")
        eventually(self._serves, "prometheus serves")

    def _find(self):
        """The address at which it listens, by its log."""
        with open(self._log.name, encoding="utf-8") as file:
            text = file.read()
        if self._process.poll() is not None:
            raise AssertionError(text)
        found = re.search(r'"Listening on" address=(127\.0\.0\.1:\d+)', text)
        return found and found[1]

    def _serves(self):
        try:
            return self.ask("query", query="vector(1)")
        except urllib.error.HTTPError:
            return None

    def ask(self, path, **parameters):
        return json.loads(get(
            f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def alerts(self):
        """{(name, state)} of those that are pending or firing."""
        return {(one["labels"]["alertname"], one["state"]) for one in self.ask("alerts")["alerts"]}

    def empty_panels(self):
        """The queries of dashboards for which there is no series, or no number in any."""
        found = []
        for path in glob.glob(os.path.join(_FILES, "dashboards", "*.json")):
            with open(path, encoding="utf-8") as file:
                panels = json.load(file)["panels"]
            for target in (target for panel in panels for target in panel.get("targets", [])):
                query = target["expr"].replace("$__rate_interval", "1m").replace(
                    "$namespace", ".*")
                # A quantile of a histogram that nothing moved is a series, too.
                if all(math.isnan(float(one["value"][1]))
                       for one in self.ask("query", query=query)["result"]):
                    found.append(query)
        return found

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()


class Faults:
    """Faults, and the alerts that they make fire."""

    def __init__(self, case, prometheus):
        self._case = case
        self._prometheus = prometheus
        # Times at which alerts fired for the first time, and at which their faults began.
        self.fired, self.at = {}, {}

    def assert_silent(self, seconds):
        """No alert is pending for so long, once all is scraped."""
        # The first evaluation may have come before the first scrape.
        eventually(lambda: self._prometheus.alerts() == set(), "no alert is pending")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._case.assertEqual(self._prometheus.alerts(), set())
            time.sleep(1)

    def note(self):
        """Notes when alerts fired for the first time in the last hour."""
        for one in self._prometheus.ask("query", query=(
                'min by (alertname) (min_over_time(timestamp(ALERTS{alertstate="firing"})'
                f'[1h:{_SCRAPES}s]))'))["result"]:
            self.fired[one["metric"]["alertname"]] = float(one["value"][1])

    def begin(self, *names):
        """The condition of these alerts begins now."""
        for name in names:
            self.at.setdefault(name, time.time())

    def expect(self, *names, first=None):
        """Waits until these fire, each within its time after its fault.

        The rule's expression holds `first[name]` seconds after the fault, or at once.
        """
        def wait(name):
            return (first or {}).get(name, 0) + self._prometheus.waits[name]

        def due(name):
            return self.at[name] + wait(name) + _MARGIN

        self.note()
        while any(name not in self.fired and time.time() < due(name) for name in names):
            time.sleep(0.5)
            self.note()
        for name in names:
            self._case.assertIn(name, self.fired, "in time")
            print("%s fired %.0f s after its fault; its time is %d s" % (
                name, self.fired[name] - self.at[name], wait(name)), flush=True)
            self._case.assertLess(self.fired[name], due(name), name)

    def assert_no_others(self):
        """Checks that no alert without a fault has fired."""
        self.note()
        self._case.assertEqual(set(self.fired), set(self.at))

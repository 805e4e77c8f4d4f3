"""A real Prometheus with the rules and the dashboards that the chart ships."""

import glob
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from tests.operating.cluster import PATIENCE, eventually

_FILES = "deploy/helm/djinn/files"
# Seconds between scrapes and between evaluations of rules.
_SCRAPES = 2


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


class Prometheus:
    """A server that scrapes these addresses and evaluates the chart's rules."""

    def __init__(self, folder, targets):
        with open(os.path.join(_FILES, "alerts.yaml"), encoding="utf-8") as file:
            rules = file.read()
        self.waits = {}
        for rule in rules.split("- alert: ")[1:]:
            found = re.search(r"\n +for: (\S+)\n", rule)
            self.waits[rule.split("\n")[0]] = _seconds(found[1]) if found else 0
        config = {
            "global": {"scrape_interval": f"{_SCRAPES}s", "evaluation_interval": f"{_SCRAPES}s"},
            "rule_files": [os.path.abspath(os.path.join(_FILES, "alerts.yaml"))],
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

    def empty_panels(self, between):
        """The queries of dashboards for which there is no series.

        Calls `between` before each query.
        """
        found = []
        for path in glob.glob(os.path.join(_FILES, "dashboards", "*.json")):
            with open(path, encoding="utf-8") as file:
                panels = json.load(file)["panels"]
            for target in (target for panel in panels for target in panel.get("targets", [])):
                query = target["expr"].replace("$__rate_interval", "1m")
                between()
                if not self.ask("query", query=query)["result"]:
                    found.append(query)
        return found

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()

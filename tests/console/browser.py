"""A headless Chromium, driven over WebDriver, which is HTTP and JSON."""

import base64
import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

_PATIENCE = 120
# WebDriver's codes of keys.
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Home": "\ue011", "ArrowLeft": "\ue012",
        "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Escape": "\ue00c"}


class Browser:
    """Ends with close()."""

    def __init__(self, width=1280, height=900):
        self._folder = tempfile.TemporaryDirectory()
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0", "--log-level=SEVERE"], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, HOME=self._folder.name))
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                self._address = "http://127.0.0.1:" + line.rsplit(" ", 1)[1].strip(" .\n")
                break
        else:
            raise AssertionError("chromedriver did not start")
        options = {"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=%d,%d" % (width, height), "--user-data-dir=" + self._folder.name + "/user",
            "--disable-background-networking", "--disable-component-update", "--no-first-run"]}
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self._session = "/session/" + answer["sessionId"]

    def close(self):
        try:
            self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(_PATIENCE)
            self._driver.stdout.close()
            self._folder.cleanup()

    def _ask(self, method, path, body=None):
        request = urllib.request.Request(
            self._address + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        # No proxy of the environment is meant for the loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_PATIENCE) as reply:
                return json.loads(reply.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.loads(error.read())["value"]["message"]) from None

    def open(self, url):
        self._ask("POST", self._session + "/url", {"url": url})

    def reload(self):
        self._ask("POST", self._session + "/refresh", {})

    def run(self, script, *arguments):
        """Returns what the body of a function returns."""
        return self._ask("POST", self._session + "/execute/sync",
                         {"script": script, "args": list(arguments)})

    def until(self, script, *arguments):
        """Returns the first true result of a script."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            result = self.run(script, *arguments)
            if result:
                return result
            time.sleep(0.05)
        raise AssertionError("in vain: " + script)

    def press(self, *keys):
        """Presses keys one after another, where the focus is."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._ask("POST", self._session + "/actions",
                  {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._ask("GET", self._session + "/screenshot")))

    def messages(self):
        """Returns the errors in the browser's console since the last call."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] == "SEVERE"]

    def requested(self):
        """URLs that the page asked for since the last call."""
        urls = []
        for entry in self._log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                urls.append(event["params"]["request"]["url"])
        return urls

    def heap_bytes(self):
        """Bytes that scripts hold, after a collection of garbage."""
        self._command("Performance.enable")
        self._command("HeapProfiler.collectGarbage")
        metrics = self._command("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}["JSHeapUsedSize"]

    def _command(self, name, **parameters):
        return self._ask("POST", self._session + "/goog/cdp/execute",
                         {"cmd": name, "params": parameters})

    def _log(self, kind):
        return self._ask("POST", self._session + "/se/log", {"type": kind})

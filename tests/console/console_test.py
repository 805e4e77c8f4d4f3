"""The console of a live cluster shows each picture's data in Chromium, and keeps its secrets.

Screenshots are among the test's undeclared outputs.
"""

import os
import re
import shlex
import signal
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from tests.console.browser import Browser
from tests.operating.cluster import PATIENCE, eventually, start_cluster

_PICTURES = ("graph", "time", "shares", "memory", "lineage")
# The text of the page, fields and drawings left out.
_TEXT = "return document.querySelector('main').innerText"
# More than the page has places for the focus.
_MOST_TABS = 40
_TENANTS = """
tenants:
  - name: dev
    token_file: dev.token
    cohort: lab
    quota: {memory_bytes: {nominalQuota: 64GiB, borrowingLimit: 1GiB}}
"""


def _documented_command():
    with open("docs/operator/console.md", encoding="utf-8") as file:
        return shlex.split(re.search(r"```sh\n(djinnctl console.*?)```", file.read(), re.DOTALL)[1])


class ConsoleTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = start_cluster(
            cls, ("w0", "w1"), tenants=_TENANTS, tokens=("vera",),
            coordinator_extra="operators:\n  - {name: vera, role: viewer, token_file: vera.token}\n")
        vera = cls.cluster.path("vera.token")
        environment = dict(os.environ, DJINN_COORDINATOR=cls.cluster.coordinator)
        cls.programs = []
        for _ in range(2):
            program = subprocess.Popen(
                ["tests/operating/hold_session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, env=dict(environment, DJINN_TOKEN_FILE=cls.cluster.path("dev.token")))
            cls.addClassCleanup(program.stdout.close)
            cls.addClassCleanup(program.wait, PATIENCE)
            cls.addClassCleanup(program.stdin.close)
            assert program.stdout.readline() == "ready\n"
        command = _documented_command()
        assert command[0] == "djinnctl"
        command = ["coordinator/ctl/djinnctl"] + [
            argument.replace("127.0.0.1:7070", cls.cluster.coordinator).replace("vera.token", vera)
            for argument in command[1:]]
        cls.errors = cls.enterClassContext(tempfile.TemporaryFile("w+"))
        cls.console = subprocess.Popen(
            command + ["--listen=127.0.0.1:0", "--interval=200ms"], stdout=subprocess.PIPE,
            stderr=cls.errors, text=True)
        cls.addClassCleanup(cls.console.stdout.close)
        cls.addClassCleanup(cls.console.wait, PATIENCE)
        cls.addClassCleanup(cls.console.terminate)
        cls.url = re.fullmatch(r"console on (\S+)\n", cls.console.stdout.readline())[1]
        cls.code = re.fullmatch(r"access code ([0-9a-f]{32})\n", cls.console.stdout.readline())[1]
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def show(self, picture):
        """Opens a picture by its key, and waits until it has data."""
        self.browser.press(str(_PICTURES.index(picture) + 1))
        self.browser.until("return document.title.endsWith(arguments[0])", picture)
        seen = self.browser.run("return Number(document.body.dataset.updates || 0)")
        self.browser.until("return Number(document.body.dataset.updates || 0) > arguments[0]", seen)

    def tab_to(self, selector):
        """Moves the focus by the Tab key alone."""
        for _ in range(_MOST_TABS):
            if self.browser.run("return document.activeElement.matches(arguments[0])", selector):
                return
            self.browser.press("Tab")
        self.fail(f"{selector} has no focus after {_MOST_TABS} presses of Tab")

    def text(self):
        return self.browser.run(_TEXT)

    def drawn(self, colour):
        """Waits until the drawing has an area of this colour."""
        self.browser.until("""
            const canvas = document.querySelector('canvas');
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const wanted = [1, 3, 5].map((at) => parseInt(arguments[0].slice(at, at + 2), 16));
            let area = 0;
            for (let i = 0; i < data.length; i += 4) {
              area += wanted.every((value, at) => data[i + at] === value);
            }
            return area > 20;""", colour)

    def shoot(self, name):
        folder = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", tempfile.gettempdir())
        self.browser.screenshot(os.path.join(folder, name + ".png"))

    # The stages follow each other: the cluster loses a worker and its coordinator meanwhile.
    def test_console(self):
        self.sign_in()
        self.see_runs()
        self.see_graph()
        self.see_shares()
        self.see_memory()
        self.see_lineage()
        self.keep_secrets()
        self.refuse_changes()
        self.outlive_the_coordinator()

    def sign_in(self):
        self.browser.open(self.url)
        self.browser.until("return !document.getElementById('login').hidden")
        self.shoot("login")
        self.browser.press(*"0" * 32, "Enter")
        self.browser.until("return document.getElementById('refused').textContent")
        self.assertTrue(self.browser.run("return document.querySelector('main').hidden"))
        # The refusal of the wrong code is the only error that the browser may report.
        self.assertEqual(len(self.browser.messages()), 1)
        self.browser.press(*self.code, "Enter")
        self.browser.until("return document.body.dataset.firstPaint")

    def see_runs(self):
        self.show("time")
        self.browser.until("return document.querySelector('main').innerText.match(/completed\\s+[1-9]/)")
        self.tab_to(".scroll")
        self.browser.press("n")
        self.browser.until("return document.querySelector('aside').innerText.includes('device time')")
        self.browser.press("Enter")
        self.browser.until("return location.hash.includes('to=')")
        self.drawn("#999999")  # No phase.
        self.shoot("time")
        text = self.text()
        self.assertRegex(text, r"worker\s+w[01]\b")
        self.assertRegex(text, r"tenant\s+dev\b")
        self.assertRegex(text, r"state\s+completed")
        link = self.browser.run("return location.hash")
        self.browser.press("-", "ArrowLeft")
        self.assertNotEqual(self.browser.run("return location.hash"), link)
        self.browser.press("Home")
        self.assertNotIn("to=", self.browser.run("return location.hash"))

    def see_graph(self):
        self.show("graph")
        self.browser.until("return document.querySelector('select').options.length > 0")
        self.tab_to(".scroll")
        self.browser.press("n")
        self.browser.until("return document.querySelector('main').innerText.includes('aten::')")
        self.shoot("graph")
        text = self.text()
        self.assertRegex(text, r"predicted on w[01]: ")
        self.assertIn("measured device time, mean of ", text)
        self.drawn("#999999")

    def see_shares(self):
        self.show("shares")
        self.assertRegex(self.text(), r"dev\s+1\s+100.0 %\s+100.0 %")
        self.tab_to("select")
        for _ in range(self.browser.run("return document.querySelector('select').options.length")):
            if self.browser.run("return document.querySelector('select').value") == "memory_bytes":
                break
            self.browser.press("ArrowDown")
        self.browser.until("return document.querySelector('main').innerText.includes('Cohort lab')")
        # The focus leaves the select again, and comes back to the page's beginning.
        self.browser.press("Tab")
        self.tab_to("nav a")
        self.shoot("shares")
        self.assertRegex(self.text(), r"dev\s+64.0 GiB\s+\d")
        self.assertIn("Nothing waits.", self.text())

    def see_memory(self):
        self.show("memory")
        self.tab_to(".scroll")
        self.browser.press("ArrowRight")
        self.browser.until("return document.querySelector('aside').innerText.includes('By tenant')")
        self.shoot("memory")
        text = self.text()
        self.assertRegex(text, r"w[01]")
        self.assertRegex(text, r"memory\s+1.0 GiB")
        # Each hold_session uploads the same 4 MiB as a content.
        self.assertRegex(text, r"dev\s+[48].0 MiB")
        self.drawn("#f2f2f2")  # Free.
        self.assertIn("worker=w", self.browser.run("return location.hash"))

    def see_lineage(self):
        self.show("lineage")
        self.assertIn("No virtual device lost a lease", self.text())
        lost = self.browser.run("""
            const code = sessionStorage.getItem('djinn-console-code');
            return fetch('/api/memory', {headers: {Authorization: 'Bearer ' + code}})
                .then((reply) => reply.json()).then((memory) => memory.names[memory.worker_rows[memory.rows[0][0]][0]]);""")
        self.assertIn(lost, ("w0", "w1"))
        self.cluster.end(lost, signal.SIGKILL)
        self.browser.until("return document.querySelector('main').innerText.includes('WORKER_LOST')")
        self.shoot("lineage")
        self.assertRegex(self.text(), r"lease on %s\s+ended [\d:.]+\s+WORKER_LOST\s+lost [\d.]+ \S+ of device time" % lost)
        self.browser.until("return document.getElementById('state').textContent.includes('1 lost')")

    def keep_secrets(self):
        secrets = [self.code, "vera-0123456789abcdef"]
        for picture in _PICTURES:
            self.show(picture)
            for secret in secrets:
                self.assertNotIn(secret, self.browser.run("return document.documentElement.outerHTML + location.href"))
        self.assertEqual(self.browser.run("return document.cookie + JSON.stringify(localStorage)"), "{}")
        requested = self.browser.requested()
        self.assertGreater(len(requested), 20)
        for url in requested:
            # Chromium's own pages ask nobody.
            if not url.startswith(("data:", "chrome:", "about:")):
                self.assertTrue(url.startswith(self.url), url)
            self.assertNotIn(self.code, url)
        self.errors.seek(0)
        said = self.errors.read()
        for secret in secrets:
            self.assertNotIn(secret, said)
        self.assertEqual(self.browser.messages(), [])

    def refuse_changes(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            request = urllib.request.Request(
                self.url + "api/overview", method=method,
                headers={"Authorization": "Bearer " + self.code})
            with self.assertRaises(urllib.error.HTTPError) as refused:
                opener.open(request, timeout=PATIENCE)
            self.assertEqual(refused.exception.code, 405)
            refused.exception.close()

    def outlive_the_coordinator(self):
        self.show("memory")
        self.cluster.end("coordinator", signal.SIGKILL)
        self.browser.until("return document.getElementById('problem').innerText.includes('does not answer since')")
        self.shoot("away")
        self.browser.until("return document.querySelector('main').innerText.includes('1.0 GiB')")
        self.console.send_signal(signal.SIGTERM)
        self.assertEqual(self.console.wait(PATIENCE), 0)
        eventually(lambda: "Is it still running?" in self.browser.run(
            "return document.getElementById('problem').innerText"), "the page misses its console")


if __name__ == "__main__":
    unittest.main()

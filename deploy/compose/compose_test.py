"""The compose file starts what its images and configurations offer."""

import os
import pathlib
import re
import unittest

from deploy.images import build_images
from deploy.testing import programs
from deploy.testing.tools import yaml

FOLDER = pathlib.Path(os.path.dirname(os.path.realpath(__file__)))


class ComposeTest(unittest.TestCase):

    def setUp(self):
        self.services = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))[
            "services"]

    def mounts(self, name):
        """{place in the container: file beside the compose file}"""
        return {place: source for source, place, *_ in (
            one.split(":") for one in self.services[name]["volumes"])}

    def config(self, name):
        return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")

    def test_images_are_built_and_of_this_version(self):
        for service in self.services.values():
            image, version = re.fullmatch(r"localhost/djinn/(.*):(.*)", service["image"]).groups()
            self.assertIn(image, build_images.IMAGES)
            self.assertEqual(version, build_images.version())

    def test_programs_take_their_configurations(self):
        for name in ("coordinator", "worker"):
            self.assertEqual(programs.refusal(name, self.config(name)), "")

    def test_files_of_the_configurations_are_mounted(self):
        for name in ("coordinator", "worker"):
            mounts = self.mounts(name)
            (command,) = self.services[name]["command"]
            self.assertIn(command.removeprefix("--config="), mounts)
            for file in re.findall(r"tokens/\S+\.token", self.config(name)):
                place = "/etc/djinn/" + file
                self.assertTrue(place in mounts or os.path.dirname(place) in mounts, place)

    def test_services_are_dialled_by_their_names(self):
        worker = yaml.safe_load(self.config("worker"))
        self.assertEqual(worker["coordinator"], "coordinator:7070")
        self.assertEqual(worker["advertise"].split(":")[0], "worker")
        self.assertIn("--coordinator=coordinator:7070", self.services["ctl"]["entrypoint"])

    def test_health_is_asked_at_the_monitoring_port(self):
        for name in ("coordinator", "worker"):
            port = yaml.safe_load(self.config(name))["monitoring"]["listen"].split(":")[1]
            self.assertEqual(self.services[name]["healthcheck"]["test"][-1],
                             f"http://127.0.0.1:{port}/readyz")

    def test_services_are_hardened(self):
        for name in ("coordinator", "worker"):
            service = self.services[name]
            self.assertIs(service["read_only"], True)
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertEqual(service["security_opt"], ["no-new-privileges:true"])
            self.assertRegex(service["user"], r"10001:10001")
            self.assertGreater(int(service["stop_grace_period"].rstrip("s")), 20)

    def test_worker_has_no_token_but_its_own(self):
        self.assertNotIn("admin", str(self.services["worker"]))


if __name__ == "__main__":
    unittest.main()

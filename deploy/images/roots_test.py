"""The built images, unpacked: what is in them, and that their programs run there.

Needs root: programs run in a changed root.
"""

import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

from deploy.images import build_images
from deploy.images import built
from deploy.images import oci

PROGRAMS = {"coordinator": ["usr/bin/djinn-coordinator"],
            "worker": ["usr/bin/djinn-worker"],
            "tools": ["usr/bin/djinnctl", "usr/bin/grpcurl"]}


def setUpModule():  # pylint: disable=invalid-name
    if os.getuid():
        raise AssertionError("run this as root: programs run in a changed root")
    global archives, roots  # pylint: disable=global-variable-undefined
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    archives = built.archives(os.path.join(temporary.name, "images"))
    roots = {}
    for image in PROGRAMS:
        roots[image] = pathlib.Path(temporary.name, image)
        roots[image].mkdir()
        oci.unpack(archives[image], roots[image])


def run(image, *command, environment=()):
    """Runs a program of an image as the image's user, in the unpacked root."""
    return subprocess.run(
        ["/usr/sbin/chroot", f"--userspec={build_images.USER}:{build_images.USER}", roots[image],
         "/usr/bin/busybox", "env", "-i", "PATH=/usr/bin", *environment, *command],
        capture_output=True, text=True, check=False)


class RootsTest(unittest.TestCase):

    def test_programs_say_what_they_are(self):
        for image, command, said in (
                ("coordinator", ["/usr/bin/djinn-coordinator", "--help"], "--config=FILE"),
                ("worker", ["/usr/bin/djinn-worker", "--help"], "--config=FILE"),
                ("tools", ["/usr/bin/djinnctl", "--help"], "Subcommands"),
                ("tools", ["/usr/bin/grpcurl", "-help"], "grpcurl"),
                ("tools", ["/bin/sh", "-c", "echo a | sed s/a/b/"], "b")):
            done = run(image, *command)
            self.assertIn(said, done.stdout + done.stderr, image)

    def test_programs_find_every_library_in_the_image(self):
        for image, paths in PROGRAMS.items():
            for path in paths:
                if "grpcurl" in path:  # It is linked statically.
                    continue
                done = run(image, "/lib64/ld-linux-x86-64.so.2", "--list", "/" + path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("not found", done.stdout)

    def test_entry_points_are_those_of_the_configuration(self):
        for image in PROGRAMS:
            config = oci.read_archive(archives[image])[1]["config"]
            self.assertEqual(config["User"], "10001:10001")
            path = roots[image] / config["Entrypoint"][0].lstrip("/")
            self.assertTrue(os.access(path, os.X_OK), path)

    def test_wrong_command_line_is_refused_by_the_program_itself(self):
        for image in ("coordinator", "worker"):
            done = run(image, f"/usr/bin/djinn-{image}")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--config=FILE is required", done.stderr)

    def test_user_has_a_name_and_owns_its_state_alone(self):
        for image in ("coordinator", "worker"):
            self.assertIn("uid=10001(djinn)", run(image, "/usr/bin/busybox", "id").stdout)
            one = os.stat(roots[image] / "var/lib/djinn")
            self.assertEqual((one.st_uid, stat.S_IMODE(one.st_mode)), (10001, 0o700))

    def test_no_file_gives_rights_and_none_is_for_all_to_write(self):
        for root in roots.values():
            for place, folders, names in os.walk(root):
                for name in folders + names:
                    one = os.lstat(os.path.join(place, name))
                    if stat.S_ISLNK(one.st_mode):
                        continue
                    self.assertFalse(one.st_mode & (stat.S_ISUID | stat.S_ISGID), name)
                    self.assertTrue(one.st_mode & stat.S_ISVTX or not one.st_mode & stat.S_IWOTH,
                                    os.path.join(place, name))

    def test_programs_know_no_path_of_the_machine_that_built_them(self):
        for image, paths in PROGRAMS.items():
            for path in paths:
                done = subprocess.run(["readelf", "-d", os.path.realpath(roots[image] / path)],
                                      capture_output=True, text=True, check=True)
                for line in done.stdout.splitlines():
                    if "RUNPATH" in line or "RPATH" in line:
                        self.assertIn("[/usr/lib/djinn/", line)

    def test_there_is_no_compiler_and_no_package_manager(self):
        for root in roots.values():
            for name in ("gcc", "cc", "python3", "perl", "apt-get", "dpkg", "bash", "dash"):
                self.assertFalse((root / "usr/bin" / name).exists(), name)

    def test_sboms_describe_the_images(self):
        for image in PROGRAMS:
            digest = oci.read_archive(archives[image])[0]
            with open(archives[image].with_name(f"{image}.spdx.json"), encoding="utf-8") as file:
                document = json.load(file)
            self.assertEqual(document["packages"][0]["checksums"][0]["checksumValue"],
                             digest.split(":")[1])
            status = (roots[image] / "var/lib/dpkg/status").read_text(encoding="utf-8")
            for package in document["packages"]:
                if package["SPDXID"].startswith("SPDXRef-deb-"):
                    self.assertIn(f"Package: {package['name']}\n", status)

    def test_same_programs_make_the_same_digests(self):
        with tempfile.TemporaryDirectory() as other:
            built.build(other, "coordinator", "tools")
            for image in ("coordinator", "tools"):
                self.assertEqual(oci.read_archive(f"{other}/{image}.oci.tar")[0],
                                 oci.read_archive(archives[image])[0])


if __name__ == "__main__":
    unittest.main()

"""Layers, archives, the list of packages and SBOMs, on small inputs."""

import hashlib
import os
import pathlib
import re
import tempfile
import unittest

from deploy.images import build_images
from deploy.images import oci


def _layer():
    layer = oci.Layer()
    layer.text("etc/a", "a")
    layer.text("bin/tool", "tool", 0o755)
    layer.link("usr/bin/other", "tool")
    layer.folder("var/lib/x", 0o700, 10001)
    return layer


class ImagesTest(unittest.TestCase):

    def setUp(self):
        self._temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self._temporary.cleanup)
        self.folder = pathlib.Path(self._temporary.name)

    def archive(self, name="a", layers=(), created="1970-01-01T00:00:00Z"):
        blobs = self.folder / "blobs"
        blobs.mkdir(exist_ok=True)
        written = [oci.write_layer(layer, blobs, 0) for layer in layers or (_layer(),)]
        path = self.folder / f"{name}.tar"
        digest = oci.write_archive(path, written, blobs, {"User": "1:1"}, created,
                                   "localhost/a:1")
        return path, digest

    def test_same_files_make_the_same_bytes(self):
        first, digest = self.archive("a")
        second, again = self.archive("b")
        self.assertEqual(digest, again)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_other_files_make_another_digest(self):
        other = _layer()
        other.text("etc/a", "b")
        self.assertNotEqual(self.archive("a")[1], self.archive("b", [other])[1])

    def test_archive_is_read_back(self):
        path, digest = self.archive()
        read, image, layers = oci.read_archive(path)
        self.assertEqual(read, digest)
        self.assertEqual(image["config"]["User"], "1:1")
        self.assertEqual(len(layers), len(image["rootfs"]["diff_ids"]))

    def test_changed_blob_is_found(self):
        path, _ = self.archive()
        path.write_bytes(path.read_bytes().replace(b'"User":"1:1"', b'"User":"0:0"'))
        with self.assertRaises(ValueError):
            oci.read_archive(path)

    def test_layers_unpack_over_each_other_under_a_merged_usr(self):
        base = oci.Layer()
        base.folder("usr/bin")
        base.entries["bin"] = oci.Entry("link", 0o777, target="usr/bin")
        base.text("etc/a", "old")
        path, _ = self.archive(layers=[base, _layer()])
        root = self.folder / "root"
        root.mkdir()
        oci.unpack(path, root)
        self.assertEqual((root / "etc/a").read_text(encoding="utf-8"), "a")
        self.assertEqual((root / "bin/tool").read_text(encoding="utf-8"), "tool")
        self.assertEqual(os.stat(root / "usr/bin/tool").st_mode & 0o777, 0o755)
        self.assertEqual(os.stat(root / "var/lib/x").st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(root / "etc/a").st_mtime, 0)

    def test_paths_of_packages_go_below_usr(self):
        self.assertEqual(oci.merged("./lib/x/y.so".removeprefix("./")), "usr/lib/x/y.so")
        self.assertEqual(oci.merged("lib64"), "lib64")
        self.assertEqual(oci.merged("library/a"), "library/a")

    def test_packages_are_pinned_by_their_bytes(self):
        names = [name for name, _, _ in build_images.locked()]
        self.assertEqual(len(names), len(set(names)))
        for _, version, digest in build_images.locked():
            self.assertRegex(version, r"\d")
            self.assertRegex(digest, "^[0-9a-f]{64}$")

    def test_sbom_names_the_image_and_all_its_parts(self):
        deb = self.folder / "a.deb"
        deb.write_bytes(b"deb")
        digest = "sha256:" + "0" * 64
        document = build_images.spdx("worker", digest, "1970-01-01T00:00:00Z",
                                     [("libx++1", "1:2+b1", deb)], [("torch", "2.11.0")],
                                     {"usr/bin/grpcurl": deb})
        packages = {one["name"]: one for one in document["packages"]}
        self.assertEqual(list(packages), ["djinn-worker", "libx++1", "torch", "grpcurl"])
        self.assertEqual(packages["libx++1"]["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libx%2B%2B1@1%3A2%2Bb1?arch=amd64&distro=debian-12")
        self.assertEqual(packages["grpcurl"]["checksums"][0]["checksumValue"],
                         hashlib.sha256(b"deb").hexdigest())
        contained = {one["relatedSpdxElement"] for one in document["relationships"]}
        identities = [one["SPDXID"] for one in document["packages"]]
        self.assertEqual(contained, set(identities))
        for identity in identities:
            self.assertRegex(identity, r"^SPDXRef-[A-Za-z0-9.-]+$")

    def test_versions_are_those_of_the_tree(self):
        self.assertRegex(build_images.version(), r"^\d+\.\d+\.\d+$")
        self.assertTrue(re.fullmatch(r"v\d+\.\d+\.\d+", build_images.grpcurl_version()))
        self.assertIn("torch", dict(build_images.wheels_of("worker")))
        self.assertEqual(build_images.wheels_of("tools"), [])


if __name__ == "__main__":
    unittest.main()

"""Writes and reads OCI image archives, byte for byte the same for the same input.

A Layer maps paths to entries. `write_archive` makes an OCI image layout in a tar file,
which `podman load`, `skopeo copy oci-archive:FILE` and `ctr images import` take.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import posixpath
import tarfile

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# Debian's merged /usr: packages still ship files below these.
_MERGED = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}


@dataclasses.dataclass
class Entry:
    """A folder, a symbolic link or a file, whose bytes are `data` or those of `source`."""
    kind: str
    mode: int = 0o644
    data: bytes = b""
    source: str = ""
    target: str = ""
    owner: int = 0


class Layer:
    """The files of one layer. Paths have no leading slash."""

    def __init__(self):
        self.entries = {}

    def add(self, path, entry):
        path = merged(path)
        parent = posixpath.dirname(path)
        if parent and parent not in self.entries:
            self.add(parent, Entry("folder", 0o755))
        self.entries[path] = entry

    def folder(self, path, mode=0o755, owner=0):
        self.add(path, Entry("folder", mode, owner=owner))

    def text(self, path, text, mode=0o644):
        self.add(path, Entry("file", mode, data=text.encode()))

    def copy(self, path, source, mode=0o644):
        self.add(path, Entry("file", mode, source=str(source)))

    def link(self, path, target):
        self.add(path, Entry("link", 0o777, target=target))

    def write(self, stream, seconds):
        """Writes the layer as a tar stream; every entry has the time `seconds`."""
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(self.entries):
                _write_entry(tar, path, self.entries[path], seconds)


def merged(path):
    """Returns a path as it is under a merged /usr."""
    first, slash, rest = path.strip("/").partition("/")
    return _MERGED.get(first, first) + slash + rest if slash else first


def _write_entry(tar, path, entry, seconds):
    info = tarfile.TarInfo(path)
    info.mtime, info.mode, info.uid, info.gid = seconds, entry.mode, entry.owner, entry.owner
    if entry.kind == "folder":
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif entry.kind == "link":
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(info)
    elif entry.source:
        info.size = os.path.getsize(entry.source)
        with open(entry.source, "rb") as file:
            tar.addfile(info, file)
    else:
        info.size = len(entry.data)
        tar.addfile(info, io.BytesIO(entry.data))


class _Digest:
    """A stream that passes on what is written to it, and hashes it."""

    def __init__(self, stream):
        self._stream, self._sha256, self.size = stream, hashlib.sha256(), 0

    def write(self, data):
        self._sha256.update(data)
        self.size += len(data)
        return self._stream.write(data)

    def flush(self):
        self._stream.flush()

    def digest(self):
        return "sha256:" + self._sha256.hexdigest()


def write_layer(layer, folder, seconds, level=6):
    """Writes a compressed layer into `folder`; returns its descriptor and its diff id."""
    draft = os.path.join(folder, "draft")
    with open(draft, "wb") as file:
        outer = _Digest(file)
        # Level, no name and no time: the rest of the header is constant.
        with gzip.GzipFile("", "wb", level, outer, mtime=0) as packed:
            inner = _Digest(packed)
            layer.write(inner, seconds)
    os.rename(draft, os.path.join(folder, outer.digest().split(":")[1]))
    return ({"mediaType": _LAYER, "digest": outer.digest(), "size": outer.size}, inner.digest())


def _json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _described(kind, data):
    return {"mediaType": kind, "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
            "size": len(data)}


def write_archive(path, layers, blobs, config, created, name):
    """Writes an image of layers that write_layer() left in the folder `blobs`.

    `config` is the "config" object of the image, `created` a time in RFC 3339, `name`
    the reference by which tools load it. Returns the manifest's digest.
    """
    image = _json({
        "architecture": "amd64", "os": "linux", "created": created, "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff for _, diff in layers]},
        "history": [{"created": created, "created_by": "deploy/images"} for _ in layers]})
    manifest = _json({
        "schemaVersion": 2, "mediaType": _MANIFEST, "config": _described(_CONFIG, image),
        "layers": [descriptor for descriptor, _ in layers]})
    described = _described(_MANIFEST, manifest)
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{
        **described, "platform": {"architecture": "amd64", "os": "linux"},
        # The first is what tools for OCI layouts read, the second what containerd reads.
        "annotations": {"org.opencontainers.image.ref.name": name.rpartition(":")[2],
                        "io.containerd.image.name": name}}]})
    archive = Layer()
    archive.text("oci-layout", '{"imageLayoutVersion":"1.0.0"}')
    archive.add("index.json", Entry("file", data=index))
    for data in (image, manifest):
        archive.add("blobs/sha256/" + hashlib.sha256(data).hexdigest(), Entry("file", data=data))
    for descriptor, _ in layers:
        blob = descriptor["digest"].split(":")[1]
        archive.copy("blobs/sha256/" + blob, os.path.join(blobs, blob))
    draft = f"{path}.draft"
    with open(draft, "wb") as file:
        archive.write(file, 0)
    os.rename(draft, path)
    return described["digest"]


def read_archive(path):
    """Returns (manifest digest, image configuration, layer digests), all verified."""
    with tarfile.open(path) as tar:
        def blob(digest):
            data = tar.extractfile("blobs/sha256/" + digest.split(":")[1]).read()
            if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{path}: {digest} has other bytes")
            return data

        (described,) = json.load(tar.extractfile("index.json"))["manifests"]
        manifest = json.loads(blob(described["digest"]))
        image = json.loads(blob(manifest["config"]["digest"]))
        digests = [one["digest"] for one in manifest["layers"]]
        return described["digest"], image, digests


def unpack(path, folder):
    """Unpacks the layers of an image, in order, into an empty folder."""
    _, _, digests = read_archive(path)
    with tarfile.open(path) as tar:
        for digest in digests:
            packed = tar.extractfile("blobs/sha256/" + digest.split(":")[1])
            with gzip.GzipFile(fileobj=packed) as plain, \
                    tarfile.open(fileobj=plain, mode="r|") as layer:
                layer.extractall(folder, numeric_owner=True)

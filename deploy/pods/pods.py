"""Runs pods, as their manifests say, from unpacked images: a small kubelet for tests.

Each pod has a network namespace with an address of its own on a bridge, and each container
a mount and a process namespace. Init containers run first, probes and preStop hooks as they
are written, and volumes are made as Kubernetes makes them. Names of Services are in
/etc/hosts. Needs root, and a process of its own: `isolate()`.
"""

import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from deploy.images import oci

USER = 10001
_PATIENCE = 120
_ISOLATED = "DJINN_TEST_ISOLATED"
_LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")


def isolate():
    """Starts the program again with processes, a network and mounts of its own.

    Whatever it starts ends with it. Returns in the new process.
    """
    if os.getuid():
        sys.exit("run this as root: pods have namespaces")
    if _ISOLATED not in os.environ:
        os.environ[_ISOLATED] = "yes"
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                              "--net", sys.executable, *sys.argv])
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "pods", "type", "bridge")
    _run("ip", "address", "add", "10.88.0.1/24", "dev", "pods")
    _run("ip", "link", "set", "pods", "up")


def _run(*command):
    subprocess.run(command, check=True)


def eventually(condition, what, patience=_PATIENCE):
    """Returns the first true result of `condition`; `what` may be a function."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError("in vain: " + (what() if callable(what) else what))


class Node:
    """Images, Secrets, ConfigMaps and Services that pods refer to."""

    def __init__(self, folder, archives):
        """`archives` maps the last part of an image's repository to its file."""
        self.folder = pathlib.Path(folder)
        self.objects = []
        self._images = {}
        self._addresses = 1
        for name, archive in archives.items():
            root = self.folder / "images" / name
            root.mkdir(parents=True)
            oci.unpack(archive, root)
            self._images[name] = (root, oci.read_archive(archive)[1]["config"])
            # A runtime makes the places of mounts.
            for place in ("etc/djinn/config", "etc/djinn/scripts", "etc/djinn/tokens",
                          "etc/djinn/tls", "etc/djinn/etcd-tls", "run/djinn", "var/lib/djinn", "dev/shm"):
                (root / place).mkdir(parents=True, exist_ok=True)
            for place in ("etc/hosts", "etc/resolv.conf", "dev/null", "dev/zero", "dev/urandom",
                          "dev/random"):
                (root / place).touch()

    def image(self, reference):
        return self._images[reference.rsplit("/", 1)[1].split(":")[0].split("@")[0]]

    def find(self, kind, name):
        for one in self.objects:
            if one["kind"] == kind and one["metadata"]["name"] == name:
                return one
        raise AssertionError(f"no {kind} {name}")

    def address(self):
        self._addresses += 1
        return f"10.88.0.{self._addresses}"


class Pod:
    """One pod of a workload; `start` returns when it is ready."""

    def __init__(self, node, name, template, hosts):
        self.node, self.name, self.spec = node, name, template["spec"]
        self.address = node.address()
        self.folder = node.folder / "pods" / f"{name}-{self.address}"
        self.folder.mkdir(parents=True)
        self._hosts = self.folder / "hosts"
        self._names = hosts
        (self.folder / "resolv.conf").write_text("", encoding="utf-8")
        self._processes, self._volumes, self._tmpfs = {}, {}, []
        self.hook_ends, self.marks = {}, {}
        self._make_network()
        for volume in self.spec.get("volumes", []):
            self._volumes[volume["name"]] = self._make_volume(volume)

    # --- network and volumes ---

    def _make_network(self):
        """Starts a process that holds the namespace, and joins that to the bridge."""
        self._pause = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        eventually(lambda: os.readlink(f"/proc/{self._pause.pid}/ns/net")
                   != os.readlink("/proc/self/ns/net"), "a network")
        here = "p" + self.address.rsplit(".", 1)[1]
        _run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0",
             "netns", str(self._pause.pid))
        _run("ip", "link", "set", here, "master", "pods", "up")
        for command in (("link", "set", "lo", "up"), ("link", "set", "eth0", "up"),
                        ("address", "add", self.address + "/24", "dev", "eth0")):
            _run("nsenter", f"--net=/proc/{self._pause.pid}/ns/net", "ip", *command)

    def add_claim(self, name, folder):
        """A volume of a claim, which outlives the pod."""
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, 0, USER)
        folder.chmod(0o2775)
        self._volumes[name] = folder

    def _make_volume(self, volume):
        folder = self.folder / "volumes" / volume["name"]
        folder.mkdir(parents=True)
        if "emptyDir" in volume:
            if volume["emptyDir"].get("medium") == "Memory":
                size = volume["emptyDir"]["sizeLimit"].removesuffix("i").lower()
                _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
                self._tmpfs.append(folder)
            os.chown(folder, 0, USER)
            folder.chmod(0o2777)
            return folder
        for key in self._write_files(volume, folder):
            (folder / key).symlink_to(f"..data/{key}")
        return folder

    def _write_files(self, volume, folder):
        """Writes the contents of a volume's source; returns the files' names."""
        if "secret" in volume:
            source = self.node.find("Secret", volume["secret"]["secretName"])
            data = {key: base64.b64decode(value) for key, value in source["data"].items()}
            mode = volume["secret"]["defaultMode"]
            items = volume["secret"].get("items")
            data = {item["path"]: data[item["key"]] for item in items} if items else data
        else:
            source = self.node.find("ConfigMap", volume["configMap"]["name"])
            data, mode = {key: text.encode() for key, text in source["data"].items()}, 0o644
        real = pathlib.Path(tempfile.mkdtemp(prefix="..", dir=folder))
        real.chmod(0o755)
        for key, content in data.items():
            (real / key).write_bytes(content)
            os.chown(real / key, 0, USER)
            (real / key).chmod(mode)
        # Kubernetes replaces the files of a volume at once, through this link.
        draft = folder / "..data_tmp"
        draft.symlink_to(real.name)
        draft.rename(folder / "..data")
        return list(data)

    def renew(self, name):
        """Replaces the files of a volume by what its source has by now, as the kubelet does."""
        (volume,) = [one for one in self.spec["volumes"] if one["name"] == name]
        self._write_files(volume, self._volumes[name])

    def _write_hosts(self):
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {host}\n" for host, address in self._names.items()), encoding="utf-8")

    # --- containers ---

    def _environment(self, container):
        fields = {"metadata.name": self.name, "status.podIP": self.address,
                  "spec.nodeName": "node-1"}
        found = {}
        for one in container.get("env", []):
            text = one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            # A text may name the variables before it.
            for name, value in found.items():
                text = text.replace(f"$({name})", value)
            found[one["name"]] = text
        return found

    def _specification(self, container, command, enter, name):
        root, image = self.node.image(container["image"])
        environment = dict(one.split("=", 1) for one in image["Env"])
        environment.update(self._environment(container))
        user = {**self.spec["securityContext"], **container["securityContext"]}["runAsUser"]
        mounts = [(str(self._volumes[mount["name"]]), mount["mountPath"],
                   "ro" if mount.get("readOnly") else "rw") for mount in container["volumeMounts"]]
        mounts += [(str(self._hosts), "/etc/hosts", "ro"),
                   (str(self.folder / "resolv.conf"), "/etc/resolv.conf", "ro")]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({
            "root": str(root), "mounts": mounts, "user": user, "environment": environment,
            "command": command, "enter": enter}), encoding="utf-8")
        return str(path)

    def _command(self, container):
        image = self.node.image(container["image"])[1]
        arguments = container.get("args", [] if "command" in container else image.get("Cmd", []))
        for name, value in self._environment(container).items():
            arguments = [one.replace(f"$({name})", value) for one in arguments]
        return container.get("command", image["Entrypoint"]) + arguments

    def _start(self, container):
        name = container["name"]
        log = open(self.folder / f"{name}.log", "ab")
        specification = self._specification(container, self._command(container), False, name)
        self._processes[name] = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self._pause.pid}/ns/net", "unshare", "--mount", "--pid",
             "--fork", "--kill-child", "--propagation", "private", sys.executable, _LAUNCH,
             specification], stdout=log, stderr=log)
        log.close()
        return self._processes[name]

    def _first(self, name):
        """The process id, here, of a container's first process."""
        pid = self._processes[name].pid

        def child():
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return file.read().split()

        return int(eventually(child, f"{name} starts")[0])

    def execute(self, name, command, **options):
        """Runs a command in a container, as `kubectl exec` does."""
        (container,) = [one for one in self.spec["containers"] if one["name"] == name]
        specification = self._specification(container, command, True,
                                            f"exec-{threading.get_ident()}")
        return subprocess.run(
            ["nsenter", f"--target={self._first(name)}", "--mount", "--net", "--pid",
             sys.executable, _LAUNCH, specification],
            capture_output=True, text=True, check=False, **options)

    def volume(self, name):
        """The folder of a volume, here."""
        return self._volumes[name]

    def start_here(self, command, environment):
        """Starts a program of this host in the pod's network, with the names of the pod."""
        self._write_hosts()
        return subprocess.Popen(
            ["nsenter", f"--net=/proc/{self._pause.pid}/ns/net", "unshare", "--mount",
             "--propagation", "private", "sh", "-c",
             'mount --bind "$0" /etc/hosts && exec "$@"', self._hosts, *command],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def run(self):
        """Runs a pod whose containers end by themselves; returns their exit statuses."""
        self._write_hosts()
        return [self._start(one).wait(_PATIENCE) for one in self.spec["containers"]]

    def start(self):
        """Starts the containers, which find the names that `hosts` has by now."""
        self._write_hosts()
        for container in self.spec.get("initContainers", []):
            if self._start(container).wait(_PATIENCE):
                raise AssertionError(f"{container['name']}: {self.log(container['name'])}")
        for container in self.spec["containers"]:
            self._start(container)

    def await_ready(self):
        for container in self.spec["containers"]:
            if "readinessProbe" in container:
                eventually(lambda one=container: self.probe(one["name"], "startup")
                           and self.probe(one["name"], "liveness")
                           and self.probe(one["name"], "readiness"),
                           lambda one=container: f"{self.name} is ready: {self.why(one)}")

    def why(self, container):
        """Why a container is not ready: its checks, and the end of its log."""
        (port,) = [one["containerPort"] for one in container["ports"]
                   if one["name"] == "monitoring"]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{port}/readyz?verbose",
                                        timeout=5) as answer:
                said = answer.read().decode()
        except urllib.error.HTTPError as error:
            said = error.read().decode()
        except OSError as error:
            said = str(error)
        return f"{said}\n{self.log(container['name'])[-2000:]}"

    def probe(self, name, kind):
        """Whether a probe of a container succeeds now."""
        (container,) = [one for one in self.spec["containers"] if one["name"] == name]
        if self._processes[name].poll() is not None:
            raise AssertionError(f"{name} ended: {self.log(name)}")
        get = container[kind + "Probe"]["httpGet"]
        (port,) = [one["containerPort"] for one in container["ports"]
                   if one["name"] == get["port"]]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{port}{get['path']}",
                                        timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        """Stops as the kubelet does: hooks together, then SIGTERM, then SIGKILL in the end.

        Returns the seconds it took, and the exit status of each container. `hook_ends` has
        the time at which each hook returned, `marks` when each file of the volume `run` was
        written.
        """
        begin = time.monotonic()
        deadline = begin + self.spec["terminationGracePeriodSeconds"]
        statuses = {}

        def end(container):
            name = container["name"]
            hook = container.get("lifecycle", {}).get("preStop")
            if hook:
                done = self.execute(name, hook["exec"]["command"])
                if done.returncode:
                    raise AssertionError(f"preStop of {name}: {done.stdout}{done.stderr}")
                if "not found" in done.stderr:
                    raise AssertionError(f"preStop of {name}: {done.stderr}")
                self.hook_ends[name] = time.time()
            os.kill(self._first(name), signal.SIGTERM)
            try:
                statuses[name] = self._processes[name].wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                statuses[name] = "killed"
        threads = [threading.Thread(target=end, args=(one,)) for one in self.spec["containers"]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begin
        if "run" in self._volumes:
            self.marks = {file.name: file.stat().st_mtime
                          for file in self._volumes["run"].iterdir()}
        self.remove()
        return took, statuses

    def remove(self):
        """Kills all at once, as the loss of a node does."""
        for name, process in self._processes.items():
            if process.poll() is None:
                # A change of user made it forget that it should end with its parent.
                os.kill(self._first(name), signal.SIGKILL)
                process.wait()
        if self._pause.poll() is None:
            self._pause.kill()
            self._pause.wait()
        for folder in self._tmpfs:
            _run("umount", "--lazy", str(folder))
        self._tmpfs = []
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    def listening(self):
        """The TCP ports on which the pod's processes listen for other hosts."""
        found = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self._pause.pid}/net/{table}", encoding="ascii") as file:
                for line in file.readlines()[1:]:
                    _, local, _, state = line.split()[:4]
                    if state == "0A" and not local.startswith("0100007F"):
                        found.add(int(local.rsplit(":", 1)[1], 16))
        return found

    def connected(self):
        """The ports of other pods to which this one has connections."""
        found = set()
        own = self.listening()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{self._pause.pid}/net/{table}", encoding="ascii") as file:
                for line in file.readlines()[1:]:
                    _, local, remote, state = line.split()[:4]
                    if state == "01" and int(local.rsplit(":", 1)[1], 16) not in own:
                        found.add(int(remote.rsplit(":", 1)[1], 16))
        return found

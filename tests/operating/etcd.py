"""etcd as a process, for coordinators that share a store."""

import os
import signal
import socket
import subprocess

from tests.operating.cluster import PATIENCE, eventually


def _program():
    path = os.path.join(os.path.dirname(os.getcwd()), "etcd", "etcd")
    if not os.path.exists(path):
        raise AssertionError("etcd is missing: `./djinn test` unpacks it")
    return path


def _free_address():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:%d" % listener.getsockname()[1]


class Etcd:
    """A server of one member, whose data lie in the folder."""

    def __init__(self, folder):
        # Another process may take a port before etcd does.
        for attempt in range(3):
            self.address, self._peer = _free_address(), _free_address()
            self._data = os.path.join(folder, "etcd-%d" % attempt)
            if self.start():
                return
        raise AssertionError("etcd does not start")

    def start(self):
        """Starts the server, with the data it had; returns whether it serves."""
        self._process = subprocess.Popen([
            _program(), "--name=test", "--data-dir=" + self._data,
            "--listen-client-urls=http://" + self.address,
            "--advertise-client-urls=http://" + self.address,
            "--listen-peer-urls=http://" + self._peer,
            "--initial-advertise-peer-urls=http://" + self._peer,
            "--initial-cluster=test=http://" + self._peer,
            "--logger=zap", "--log-level=warn"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def serves():
            if self._process.poll() is not None:
                return True
            try:
                socket.create_connection(self.address.split(":"), PATIENCE).close()
            except OSError:
                return False
            return True

        eventually(serves, "etcd serves")
        return self._process.poll() is None

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

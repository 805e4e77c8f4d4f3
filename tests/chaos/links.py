"""Networks before workers, which tests cut and freeze.

They run in a process of their own, so that they never wait for the program under test.
"""

import socket
import subprocess
import sys
import threading

# The directions of a link: to the worker, and to its clients.
UP, DOWN = "up", "down"


class Links:
    """A link for each name, in another process."""

    def __init__(self, names):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.links", *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = {name: self._process.stdout.readline().strip() for name in names}

    def lead(self, name, address):
        """Lets new connections lead to this address."""
        self._order("lead", name, address)

    def cut(self, name):
        """Ends all connections, and ends new ones until heal()."""
        self._order("cut", name)

    def freeze(self, name, *directions):
        """Holds what comes from these directions back until heal(), and says nothing."""
        self._order("freeze", name, *directions)

    def heal(self, name):
        self._order("heal", name)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _order(self, *words):
        print(*words, file=self._process.stdin, flush=True)
        # The answer says that it is so.
        if self._process.stdout.readline() != "done\n":
            raise AssertionError("the links ended")


class _Link:
    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._target = None
        self._open = set()
        self._cut = False
        self._flows = {UP: threading.Event(), DOWN: threading.Event()}
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead(self, address):
        host, port = address.rsplit(":", 1)
        self._target = host, int(port)

    def cut(self):
        with self._lock:
            self._cut = True
            for end in self._open:
                _shut(end)

    def freeze(self, *directions):
        for direction in directions:
            self._flows[direction].clear()

    def heal(self):
        with self._lock:
            self._cut = False
        for flow in self._flows.values():
            flow.set()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                server = socket.create_connection(self._target)
            except OSError:
                return
            with server:
                pair = {client, server}
                for end in pair:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    if self._cut:
                        return
                    self._open |= pair
                back = threading.Thread(
                    target=_pump, args=(server, client, self._flows[DOWN]), daemon=True)
                back.start()
                _pump(client, server, self._flows[UP])
                back.join()
                with self._lock:
                    self._open -= pair


def _shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _pump(source, target, flows):
    """Forwards bytes while they may flow; ends both connections when either end does."""
    try:
        while data := source.recv(1 << 16):
            flows.wait()
            target.sendall(data)
        flows.wait()
    except OSError:
        pass
    _shut(source)
    _shut(target)


def main(names):
    links = {name: _Link() for name in names}
    for name in names:
        print(links[name].address, flush=True)
    for line in sys.stdin:
        order, name, *rest = line.split()
        getattr(links[name], order)(*rest)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

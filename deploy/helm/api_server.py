"""A real kube-apiserver on a real etcd, and a client for it.

The server has no controllers, so nothing runs. It does what it does in a cluster with each
request: authentication, RBAC, admission with pod security, validation, field ownership.
"""

import http.client
import json
import os
import socket
import ssl
import subprocess
import time

from deploy.testing import tools

PATIENCE = 180
ADMIN = "admin-0123456789abcdef"
# The path of each kind's collection, below its API group.
_PATHS = {
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "DaemonSet": "apis/apps/v1/namespaces/{}/daemonsets",
    "Namespace": "api/v1/namespaces",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Pod": "api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Secret": "api/v1/namespaces/{}/secrets",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
}
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def collection(an_object, namespace):
    return "/" + _PATHS[an_object["kind"]].format(namespace)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Answer:
    """The answer to a request. `warnings` are those that kubectl would print."""

    def __init__(self, response):
        self.status = response.status
        self.warnings = response.headers.get_all("Warning") or []
        text = response.read()
        try:
            self.body = json.loads(text)
        except ValueError:
            self.body = {"message": text.decode(errors="replace")}

    @property
    def message(self):
        return self.body.get("message", "")


class ApiServer:
    """The servers as processes with a folder.

    `add_cleanup` is a test's function of that name, by which they end. `users` are bearer
    tokens by name, besides ADMIN, which may do everything.
    """

    def __init__(self, add_cleanup, folder, users):
        self._add_cleanup = add_cleanup
        self._folder = folder
        with open(os.path.join(folder, "tokens.csv"), "w", encoding="utf-8") as file:
            file.write('%s,admin,admin,"system:masters"\n' % ADMIN)
            for name, token in users.items():
                file.write("%s,%s,%s\n" % (token, name, name))
        subprocess.run(["openssl", "genrsa", "-out", folder + "/accounts.key", "2048"],
                       check=True, capture_output=True)
        # Another process may take a port before a server does.
        for attempt in range(3):
            etcd = self._start_etcd(attempt)
            self._port = _free_port()
            process = self._start([
                tools.kube_apiserver(), "--etcd-servers=http://" + etcd,
                "--bind-address=127.0.0.1", "--secure-port=%d" % self._port,
                # As in most clusters. Pod security is then what refuses such pods.
                "--allow-privileged=true",
                # Otherwise it looks for the address of a default route. Nobody dials this one,
                # which is for documentation, and no Service leads to it.
                "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
                "--cert-dir=%s/certificates-%d" % (folder, attempt),
                "--authorization-mode=RBAC", "--token-auth-file=" + folder + "/tokens.csv",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=" + folder + "/accounts.key",
                "--service-account-signing-key-file=" + folder + "/accounts.key",
                "--service-cluster-ip-range=10.96.0.0/16"], "kube-apiserver")
            self._authority = folder + "/certificates-%d/apiserver.crt" % attempt
            if self._becomes_ready(process):
                return
        raise AssertionError("kube-apiserver does not start:\n" + self._log("kube-apiserver"))

    def _log(self, name):
        with open(os.path.join(self._folder, name + ".log"), encoding="utf-8") as file:
            return file.read()[-4000:]

    def _start(self, command, name):
        with open(os.path.join(self._folder, name + ".log"), "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._add_cleanup(process.wait, PATIENCE)
        self._add_cleanup(process.kill)
        return process

    def _start_etcd(self, attempt):
        client, peer = ("127.0.0.1:%d" % _free_port() for _ in range(2))
        self._start([
            tools.etcd(), "--name=test", "--data-dir=%s/etcd-%d" % (self._folder, attempt),
            "--listen-client-urls=http://" + client, "--advertise-client-urls=http://" + client,
            "--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=http://" + peer,
            "--initial-cluster=test=http://" + peer, "--logger=zap", "--log-level=warn"], "etcd")
        return client

    def _becomes_ready(self, process):
        """Whether the server answers and knows its own roles; false if it has ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if all(self.request("GET", path).status == 200 for path in (
                        "/readyz", _BINDINGS + "/system:basic-user")):
                    return True
            except OSError:
                pass
            time.sleep(0.2)
        return False

    def request(self, method, path, body=None, token=ADMIN,
                content_type="application/json"):
        """Makes one request; returns its Answer."""
        # The server's own certificate is its authority. It names 127.0.0.1.
        context = ssl.create_default_context(cafile=self._authority)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=PATIENCE, context=context)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {
                "Authorization": "Bearer " + token, "Content-Type": content_type})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def write_kubeconfig(self, path, token=ADMIN):
        """Writes a file by which kubectl and helm find the server, as the token's owner."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": {
                    "server": "https://127.0.0.1:%d" % self._port,
                    "certificate-authority": self._authority}}],
                "users": [{"name": "test", "user": {"token": token}}]}, file)

    def get(self, kind, name, namespace):
        """Returns an object; the status of its Answer is 404 if there is none."""
        return self.request("GET", "%s/%s" % (collection({"kind": kind}, namespace), name))

    def create(self, an_object, namespace="", token=ADMIN, dry=False):
        return self.request("POST", collection(an_object, namespace) + "?fieldValidation=Strict" +
                            ("&dryRun=All" if dry else ""), an_object, token)

    def apply(self, an_object, namespace, token=ADMIN):
        """Applies an object as `kubectl apply --server-side` does."""
        return self.request(
            "PATCH", "%s/%s?fieldManager=test&fieldValidation=Strict" % (
                collection(an_object, namespace), an_object["metadata"]["name"]),
            an_object, token, "application/apply-patch+yaml")

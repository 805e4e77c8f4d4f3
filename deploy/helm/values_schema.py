"""Generates values.schema.json: every key of values.yaml, and those of the configuration.

usage: values_schema.py [--check]

The keys below `config`, `operators`, `tenants` and `cohorts` are those of
docs/reference/configuration.md, less those that the chart sets itself.
"""

import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SCHEMA = os.path.join(ROOT, "deploy/helm/djinn/values.schema.json")
_REFERENCE = os.path.join(ROOT, "docs/reference/configuration.md")

# Keys and groups that the chart sets in each role's configuration. A worker's `drain_timeout` is
# not among them: a template refuses it and names the value that replaces it.
SET = {
    "coordinator": ("listen", "insecure", "monitoring", "scaler.listen", "scaler.insecure",
                    "state_file", "etcd", "advertise", "join_token_file", "admin_token_file",
                    "operators", "tls", "tenants", "cohorts", "tracing"),
    "worker": ("worker_id", "listen", "advertise", "insecure", "monitoring", "coordinator",
               "join_token_file", "admin_token_file", "device.kind", "content_disk", "isolation.ports",
               "shared_memory_socket", "tls", "coordinator_tls", "peer_tls", "tracing"),
}

_TEXT = {"type": "string"}
_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_WORD = {"type": "string", "minLength": 1}
_BOOL = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_MAP = {"type": "object"}
_LIST = {"type": "array", "items": _MAP}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_SIZE = {"anyOf": [{"type": "integer", "minimum": 0},
                   {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([kKMGTP](i?B)?|B)?$"}]}
_DURATION = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"}
_QUANTITY = {"anyOf": [{"type": "integer", "minimum": 0},
                       {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|[kMGTP]i?|Ki)?$"}]}


def _object(**properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _nullable(schema):
    return {**schema, "type": [schema["type"], "null"]}


def _of_type(kind):
    """The schema of a type of configuration.md."""
    limit = re.fullmatch(r"quota \((.*)\)", kind)
    if limit:
        one = _of_type(limit.group(1))
        return _object(nominalQuota=one, borrowingLimit=one, lendingLimit=one)
    return {"text": _TEXT, "size": _SIZE, "duration": _DURATION, "number": {"type": "number"},
            "whole number": _COUNT, "true or false": _BOOL, "file or folder": _WORD,
            "file with a token": _WORD, "list of words": {"type": "array", "items": _WORD}}[kind]


def reference():
    """{role: [(key, type, means)]} of docs/reference/configuration.md."""
    found, role = {}, ""
    with open(_REFERENCE, encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                role = line[3:].strip().lower()
            match = re.match(r"\| `([^`]+)` \| ([^|]*) \| [^|]* \| (.*) \|$", line)
            if match:
                found.setdefault(role, []).append(match.groups())
    return found


def is_set(role, key):
    """Whether the chart sets a key itself."""
    return any(key == one or key.startswith((one + ".", one + "[")) for one in SET[role])


def _plain(text):
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def _tree(keys):
    """The schema of an object with these (path, type, means), `[]` marking lists."""
    root = _object()
    for path, kind, means in keys:
        at = root
        *parents, last = path.split(".")
        for name in parents:
            if name.endswith("[]"):
                at = at["properties"].setdefault(
                    name[:-2], {"type": "array", "items": _object()})["items"]
            else:
                at = at["properties"].setdefault(name, _object())
        at["properties"][last] = {"description": _plain(means), **_of_type(kind)}
    return root


def _config(role):
    return _tree([one for one in reference()[role] if not is_set(role, one[0])])


def _named(prefix, *left_out):
    """The schema of a map from names to objects in a list of the coordinator's keys."""
    keys = [(path[len(prefix):], kind, means)
            for path, kind, means in reference()["coordinator"]
            if path.startswith(prefix) and path[len(prefix):] not in left_out]
    return _nullable(_tree(keys))


def _operators():
    one = _named("operators[].", "name", "token_file")
    one["type"] = "object"
    one["required"] = ["role"]
    one["properties"]["role"]["enum"] = ["viewer", "operator", "admin"]
    # The bearer of the admin token has the name "admin".
    return {"type": "object", "propertyNames": {**_NAME, "not": {"const": "admin"}},
            "additionalProperties": one}


def schema():
    image = _object(repository=_TEXT, tag=_TEXT,
                    digest={"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"})
    resources = _object(requests={"type": "object", "additionalProperties": _QUANTITY},
                        limits={"type": "object", "additionalProperties": _QUANTITY})
    pod = {"podAnnotations": _TEXTS, "podLabels": _TEXTS, "nodeSelector": _TEXTS,
           "tolerations": _LIST, "affinity": _MAP, "priorityClassName": _TEXT}
    peers = _LIST
    worker = _object(
        kind={"enum": ["StatefulSet", "DaemonSet"]}, replicas=_COUNT,
        device={"enum": ["cpu", "cuda", "fake"]}, image=image,
        gpu=_object(resource=_WORD, resourceClaimTemplateName=_TEXT, runtimeClassName=_TEXT),
        config=_config("worker"), ports=_object(grpc=_PORT, monitoring=_PORT, executors={
            "type": "string", "pattern": "^[0-9]+-[0-9]+$"}),
        sharedMemory=_QUANTITY,
        contentDisk=_object(enabled=_BOOL, limit=_SIZE, size=_QUANTITY, storageClassName=_TEXT),
        resources=resources,
        drain=_object(enabled=_BOOL, timeoutSeconds={"type": "integer", "minimum": 1},
                      resources=resources),
        podDisruptionBudget=_object(enabled=_BOOL, maxUnavailable={
            "anyOf": [_COUNT, {"type": "string", "pattern": "^[0-9]+%$"}]}),
        autoscaling=_object(
            enabled=_BOOL, minReplicas=_COUNT, maxReplicas=_COUNT, phase=_TEXT,
            targetUtilisation={"type": "number", "minimum": 0.01, "maximum": 1},
            pollingInterval=_COUNT, cooldownPeriod=_COUNT, fallbackReplicas=_COUNT),
        startupTimeoutSeconds={"type": "integer", "minimum": 1},
        topologySpreadConstraints=_LIST, **pod)
    coordinator = _object(
        image=image, replicas={"type": "integer", "minimum": 1},
        etcd=_object(
            endpoints={"type": "array", "items": {"type": "string", "pattern": "^.+:[0-9]+$"}},
            prefix=_WORD, lease={"type": "string", "pattern": "^[0-9]+[sm]$"},
            tls=_object(secret=_TEXT, serverName=_TEXT), insecure=_BOOL),
        config=_config("coordinator"),
        ports=_object(grpc=_PORT, scaler=_PORT, monitoring=_PORT),
        service=_object(type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
                        annotations=_TEXTS),
        persistence=_object(enabled=_BOOL, size=_QUANTITY, storageClassName=_TEXT, accessModes={
            "type": "array", "items": {"enum": ["ReadWriteOnce", "ReadWriteOncePod"]}}),
        resources=resources, scaler=_object(enabled=_BOOL),
        podDisruptionBudget=_object(enabled=_BOOL), topologySpreadConstraints=_LIST,
        terminationGracePeriodSeconds={"type": "integer", "minimum": 20}, **pod)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart djinn",
        **_object(
            # Helm adds it to each chart.
            **{"global": _MAP}, nameOverride=_TEXT, fullnameOverride=_TEXT, commonLabels=_TEXTS,
            listenHost={"enum": ["0.0.0.0", "[::]"]},
            image=_object(registry=_TEXT, pullPolicy={
                "enum": ["Always", "IfNotPresent", "Never"]},
                pullSecrets={"type": "array", "items": _WORD}),
            tokens=_object(existingSecret=_TEXT),
            tls=_object(
                mode={"enum": ["none", "secrets", "certManager"]}, mutual=_BOOL,
                secrets=_object(coordinator=_TEXT, worker=_TEXT, operator=_TEXT),
                workerServerName=_WORD,
                certManager=_object(issuerRef=_object(name=_WORD, kind=_WORD, group=_WORD),
                                    duration=_DURATION, renewBefore=_DURATION)),
            operators=_operators(),
            tenants={"type": "object", "minProperties": 1, "propertyNames": _NAME,
                     "additionalProperties": _named("tenants[].", "name", "token_file")},
            cohorts={"type": "object", "additionalProperties": _named("cohorts[].", "name")},
            coordinator=coordinator, worker=worker,
            workerGroups={"type": "object", "minProperties": 1, "propertyNames": _NAME,
                          "additionalProperties": _nullable(worker)},
            tools=_object(image=image),
            networkPolicy=_object(enabled=_BOOL, clients=peers, monitoring=peers, scaler=peers,
                                  etcd=peers, tracing=peers, dns=_object(
                                      # Without a peer or a port, a rule would allow all.
                                      peers={**peers, "minItems": 1},
                                      ports={"type": "array", "minItems": 1, "items": {
                                          **_object(port=_PORT, protocol={"enum": ["TCP", "UDP"]}),
                                          "required": ["port", "protocol"]}})),
            tracing=_object(
                endpoint={"type": "string", "pattern": "^$|^.+:[0-9]+$"},
                sampleRatio={"type": "number", "minimum": 0, "maximum": 1},
                tls=_object(secret=_TEXT, serverName=_TEXT), insecure=_BOOL),
            monitoring=_object(
                enabled=_BOOL, interval=_DURATION, labels=_TEXTS,
                alerts=_object(enabled=_BOOL, labels=_TEXTS),
                dashboards=_object(enabled=_BOOL, labels=_TEXTS, annotations=_TEXTS))),
    }


def text():
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def main(given):
    if given == ["--check"]:
        with open(SCHEMA, encoding="utf-8") as file:
            return 0 if file.read() == text() else "values.schema.json is not current: run ./djinn reference"
    with open(SCHEMA, "w", encoding="utf-8") as file:
        file.write(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

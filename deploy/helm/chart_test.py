"""Unit tests of the chart: what helm makes of values."""

import functools
import json
import re
import unittest

from deploy.testing import manifests

COORDINATOR = "djinn-coordinator"
WORKER = "djinn-worker-cpu"


@functools.lru_cache(maxsize=None)
def _rendered(text):
    return manifests.render(json.loads(text))


def render(**values):
    return _rendered(json.dumps(values, sort_keys=True))


def worker(**values):
    """What the chart makes of one group with these values."""
    return render(workerGroups={"cpu": values})


def kinds(objects):
    return sorted({one["kind"] for one in objects})


class Case(unittest.TestCase):

    def refuses(self, pattern, **values):
        with self.assertRaises(manifests.RenderError) as caught:
            render(**values)
        self.assertRegex(str(caught.exception), pattern)

    def pod(self, objects, name=WORKER, kind="StatefulSet"):
        return manifests.pod_of(manifests.named(objects, kind, name))


class DefaultsTest(Case):

    def test_defaults_make_one_coordinator_and_one_group(self):
        self.assertEqual(kinds(render()), [
            "ConfigMap", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Secret", "Service",
            "StatefulSet"])
        self.assertEqual([one["metadata"]["name"] for one in render()
                          if one["kind"] == "StatefulSet"], [COORDINATOR, WORKER])

    def test_every_object_has_a_namespace_and_labels(self):
        for one in render():
            self.assertEqual(one["metadata"]["namespace"], "lab")
            labels = one["metadata"]["labels"]
            self.assertEqual(labels["app.kubernetes.io/instance"], "djinn")
            self.assertEqual(labels["app.kubernetes.io/part-of"], "djinn")

    def test_no_object_grants_rights_or_spans_namespaces(self):
        for one in render():
            self.assertNotRegex(one["kind"], "Role|Binding|ServiceAccount|Webhook|Namespace")

    def test_no_two_objects_have_one_name(self):
        names = [(one["kind"], one["metadata"]["name"]) for one in render()]
        self.assertEqual(len(names), len(set(names)))

    def test_release_name_stands_in_front(self):
        objects = manifests.render(release="blue")
        self.assertEqual(manifests.named(objects, "Service", "blue-djinn-coordinator")
                         ["spec"]["selector"]["app.kubernetes.io/instance"], "blue")

    def test_full_name_override_wins(self):
        manifests.named(render(fullnameOverride="x"), "Service", "x-coordinator")

    def test_name_override_changes_the_name_label(self):
        one = manifests.named(render(nameOverride="y"), "StatefulSet", "djinn-y-coordinator")
        self.assertEqual(one["metadata"]["labels"]["app.kubernetes.io/name"], "y")

    def test_common_labels_reach_pods(self):
        one = manifests.named(render(commonLabels={"team": "ml"}), "StatefulSet", WORKER)
        self.assertEqual(one["spec"]["template"]["metadata"]["labels"]["team"], "ml")

    def test_common_labels_stay_out_of_selectors(self):
        one = manifests.named(render(commonLabels={"team": "ml"}), "StatefulSet", WORKER)
        self.assertNotIn("team", one["spec"]["selector"]["matchLabels"])

    def test_selectors_match_their_pods_alone(self):
        objects = worker()
        sets = [one for one in objects if one["kind"] == "StatefulSet"]
        for one in sets:
            matched = [other["metadata"]["name"] for other in sets
                       if one["spec"]["selector"]["matchLabels"].items()
                       <= other["spec"]["template"]["metadata"]["labels"].items()]
            self.assertEqual(matched, [one["metadata"]["name"]])


class ImageTest(Case):

    def image(self, objects, kind="StatefulSet", name=WORKER, of="worker"):
        return manifests.container(manifests.named(objects, kind, name), of)["image"]

    def test_tag_is_the_version_of_the_chart(self):
        self.assertEqual(self.image(render()), "localhost/djinn/worker:0.1.0")

    def test_registry_stands_in_front(self):
        self.assertEqual(self.image(render(image={"registry": "r.example/ml"})),
                         "r.example/ml/djinn/worker:0.1.0")

    def test_empty_registry_leaves_the_repository(self):
        self.assertEqual(self.image(render(image={"registry": ""})), "djinn/worker:0.1.0")

    def test_digest_wins_over_tag(self):
        digest = "sha256:" + "0" * 64
        self.assertEqual(self.image(worker(image={"tag": "x", "digest": digest})),
                         "localhost/djinn/worker@" + digest)

    def test_refuses_a_digest_of_another_form(self):
        self.refuses("digest", worker={"image": {"digest": "abc"}})

    def test_gpu_worker_has_the_gpu_image(self):
        self.assertEqual(self.image(worker(device="cuda")), "localhost/djinn/worker-cuda:0.1.0")

    def test_group_may_name_its_image(self):
        self.assertEqual(self.image(worker(device="cuda", image={"repository": "a/b", "tag": "c"})),
                         "localhost/a/b:c")

    def test_pull_secrets_reach_every_pod(self):
        for one in render(image={"pullSecrets": ["p"]}):
            pod = manifests.pod_of(one)
            if pod:
                self.assertEqual(pod["imagePullSecrets"], [{"name": "p"}])

    def test_pull_policy_reaches_every_container(self):
        for one in render(image={"pullPolicy": "Always"}):
            for each in (manifests.pod_of(one) or {"containers": []})["containers"]:
                self.assertEqual(each["imagePullPolicy"], "Always")


class ConfigurationTest(Case):

    def coordinator(self, **values):
        return manifests.configuration(render(**values), COORDINATOR, "coordinator.yaml")

    def worker(self, objects):
        return manifests.configuration(objects, WORKER, "worker.yaml")

    def test_coordinator_listens_where_its_service_points(self):
        config = self.coordinator()
        self.assertEqual(config["listen"], "0.0.0.0:7070")
        self.assertEqual(config["monitoring"], {"listen": "0.0.0.0:7080", "insecure": True})

    def test_ipv6_hosts_listen_on_all_addresses(self):
        self.assertEqual(self.coordinator(listenHost="[::]")["listen"], "[::]:7070")

    def test_keys_go_into_the_coordinators_configuration(self):
        config = self.coordinator(coordinator={"config": {"lease_valid_for": "2m"}})
        self.assertEqual(config["lease_valid_for"], "2m")

    def test_keys_go_into_the_workers_configuration(self):
        config = self.worker(worker(config={"device": {"memory": "4GiB"}, "phases": ["forward"]}))
        self.assertEqual(config["device"], {"kind": "cpu", "memory": "4GiB"})
        self.assertEqual(config["phases"], ["forward"])

    def test_group_overrides_the_default_of_workers(self):
        objects = render(worker={"config": {"max_batch_runs": 4, "tokens_first": False}},
                         workerGroups={"cpu": {"config": {"max_batch_runs": 8}}})
        config = self.worker(objects)
        self.assertEqual((config["max_batch_runs"], config["tokens_first"]), (8, False))

    def test_refuses_keys_that_the_chart_sets(self):
        self.refuses("listen", coordinator={"config": {"listen": "0.0.0.0:1"}})
        self.refuses("worker_id", worker={"config": {"worker_id": "w"}})

    def test_refuses_unknown_keys(self):
        self.refuses("coordinater", coordinater={})
        self.refuses("hartbeat", worker={"config": {"hartbeat_interval": "1s"}})
        self.refuses("replica", workerGroups={"cpu": {"replica": 1}})

    def test_refuses_values_of_another_type(self):
        self.refuses("lease_valid_for", coordinator={"config": {"lease_valid_for": "soon"}})
        self.refuses("memory", worker={"config": {"device": {"memory": "much"}}})
        self.refuses("port", coordinator={"ports": {"grpc": 70000}})

    def test_tenants_have_their_tokens(self):
        config = self.coordinator(tenants={"red": {"max_sessions": 4}, "blue": None})
        self.assertEqual(config["tenants"], [
            {"name": "blue", "token_file": "/etc/djinn/tokens/tenant-blue"},
            {"name": "default", "token_file": "/etc/djinn/tokens/tenant-default"},
            {"name": "red", "token_file": "/etc/djinn/tokens/tenant-red", "max_sessions": 4}])

    def test_refuses_a_tenant_that_is_no_key_of_a_secret(self):
        self.refuses("Red", tenants={"Red": {}})

    def test_cohorts_have_their_names(self):
        quota = {"memory_bytes": {"nominalQuota": "8GiB"}}
        config = self.coordinator(cohorts={"lab/vision": {"quota": quota}})
        self.assertEqual(config["cohorts"], [{"name": "lab/vision", "quota": quota}])

    def test_worker_has_placeholders_for_what_pods_differ_in(self):
        config = self.worker(render())
        self.assertEqual(config["worker_id"], "@WORKER_ID@")
        self.assertEqual(config["advertise"], "@HOST@:7072")

    def test_worker_dials_the_coordinators_service(self):
        self.assertEqual(self.worker(render())["coordinator"], "djinn-coordinator.lab.svc:7070")

    def test_ports_may_be_others(self):
        objects = render(coordinator={"ports": {"grpc": 1070}},
                         worker={"ports": {"grpc": 1072}})
        config = self.worker(objects)
        self.assertEqual(config["coordinator"].split(":")[1], "1070")
        self.assertEqual(config["listen"].split(":")[1], "1072")

    def test_content_disk_has_a_folder_of_its_volume(self):
        config = self.worker(worker(contentDisk={"enabled": True, "limit": "1GiB"}))
        self.assertEqual(config["content_disk"],
                         {"directory": "/var/lib/djinn/contents", "limit": "1GiB"})

    def test_changed_configuration_restarts_its_pods_alone(self):
        def checksums(objects):
            return [one["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
                    for one in objects if one["kind"] == "StatefulSet"]

        before = checksums(render())
        after = checksums(worker(config={"max_batch_runs": 2}))
        self.assertEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])

    def test_changed_tenants_restart_nothing(self):
        def checksum(objects):
            one = manifests.named(objects, "StatefulSet", COORDINATOR)
            return one["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

        self.assertEqual(checksum(render()), checksum(render(tenants={"red": {}})))


class TlsTest(Case):
    SECRETS = {"mode": "secrets",
               "secrets": {"coordinator": "c", "worker": "w", "operator": "o"}}

    def test_without_tls_all_say_insecure(self):
        for name, key in ((COORDINATOR, "coordinator.yaml"), (WORKER, "worker.yaml")):
            self.assertIs(manifests.configuration(render(), name, key)["insecure"], True)
        drain = manifests.container(manifests.named(render(), "StatefulSet", WORKER), "drain")
        self.assertIn({"name": "DJINNCTL_FLAGS", "value": "--insecure"}, drain["env"])

    def test_with_tls_none_says_insecure(self):
        objects = render(tls=self.SECRETS)
        for name, key in ((COORDINATOR, "coordinator.yaml"), (WORKER, "worker.yaml")):
            self.assertNotIn("insecure", manifests.configuration(objects, name, key))
        drain = manifests.container(manifests.named(objects, "StatefulSet", WORKER), "drain")
        self.assertNotIn("DJINNCTL_FLAGS", [one["name"] for one in drain["env"]])

    def test_servers_demand_certificates(self):
        config = manifests.configuration(render(tls=self.SECRETS), COORDINATOR, "coordinator.yaml")
        self.assertEqual(config["tls"]["client_ca_file"], "/etc/djinn/tls/ca.crt")

    def test_servers_demand_none_without_mutual(self):
        objects = render(tls={**self.SECRETS, "mutual": False})
        config = manifests.configuration(objects, WORKER, "worker.yaml")
        self.assertEqual(config["tls"], {"certificate_file": "/etc/djinn/tls/tls.crt",
                                         "private_key_file": "/etc/djinn/tls/tls.key"})
        self.assertEqual(config["coordinator_tls"], {"ca_file": "/etc/djinn/tls/ca.crt"})

    def test_workers_expect_the_name_of_workers(self):
        config = manifests.configuration(render(tls=self.SECRETS), WORKER, "worker.yaml")
        self.assertEqual(config["peer_tls"]["server_name"], "djinn-worker")
        self.assertNotIn("server_name", config["coordinator_tls"])

    def test_each_role_mounts_its_own_secret(self):
        objects = render(tls=self.SECRETS)

        def secrets(name):
            return {one["name"]: one["secret"]["secretName"]
                    for one in self.pod(objects, name)["volumes"] if "tls" in one["name"]}

        self.assertEqual(secrets(COORDINATOR), {"tls": "c"})
        self.assertEqual(secrets(WORKER), {"tls": "w", "operator-tls": "o"})

    def test_names_the_secret_that_is_missing(self):
        self.refuses("set tls.secrets.worker",
                     tls={"mode": "secrets", "secrets": {"coordinator": "c", "operator": "o"}})

    def test_cert_manager_issues_three_certificates_by_its_own_authority(self):
        objects = render(tls={"mode": "certManager"})
        names = {one["metadata"]["name"]: one["spec"]["issuerRef"]["name"]
                 for one in objects if one["kind"] == "Certificate"}
        self.assertEqual(names, {
            "djinn-ca": "djinn-self-signed", "djinn-coordinator": "djinn-ca",
            "djinn-worker": "djinn-ca", "djinn-operator": "djinn-ca"})

    def test_cert_manager_uses_a_given_issuer(self):
        objects = render(tls={"mode": "certManager", "certManager": {
            "issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}})
        self.assertNotIn("Issuer", kinds(objects))
        self.assertEqual(manifests.named(objects, "Certificate", "djinn-worker")
                         ["spec"]["issuerRef"], {"name": "corp", "kind": "ClusterIssuer"})

    def test_certificates_have_the_names_that_are_dialled(self):
        objects = render(tls={"mode": "certManager"})
        dns = manifests.named(objects, "Certificate", "djinn-coordinator")["spec"]["dnsNames"]
        dialled = manifests.configuration(objects, WORKER, "worker.yaml")["coordinator"]
        self.assertIn(dialled.split(":")[0], dns)
        self.assertEqual(manifests.named(objects, "Certificate", "djinn-worker")
                         ["spec"]["dnsNames"], ["djinn-worker"])

    def test_pods_mount_what_cert_manager_writes(self):
        objects = render(tls={"mode": "certManager"})
        written = {one["spec"]["secretName"] for one in objects if one["kind"] == "Certificate"}
        for name in (COORDINATOR, WORKER):
            for one in self.pod(objects, name)["volumes"]:
                if "tls" in one["name"]:
                    self.assertIn(one["secret"]["secretName"], written)


class TokenTest(Case):

    def test_makes_a_token_for_each_peer(self):
        secret = manifests.named(render(tenants={"red": {}}), "Secret", "djinn-tokens")
        self.assertEqual(sorted(secret["data"]), ["admin", "join", "tenant-default", "tenant-red"])
        self.assertEqual(len(set(secret["data"].values())), 4)

    def test_tokens_outlive_the_release(self):
        secret = manifests.named(render(), "Secret", "djinn-tokens")
        self.assertEqual(secret["metadata"]["annotations"]["helm.sh/resource-policy"], "keep")

    def test_existing_secret_takes_its_place(self):
        objects = render(tokens={"existingSecret": "mine"})
        self.assertNotIn("Secret", kinds(objects))
        for name in (COORDINATOR, WORKER):
            tokens = [one for one in self.pod(objects, name)["volumes"] if "token" in one["name"]]
            self.assertEqual({one["secret"]["secretName"] for one in tokens}, {"mine"})

    def test_worker_sees_the_join_token_alone(self):
        pod = self.pod(render())
        volumes = {one["name"]: one for one in pod["volumes"]}
        self.assertEqual(volumes["tokens"]["secret"]["items"], [{"key": "join", "path": "join"}])
        (own,) = [one for one in pod["containers"] if one["name"] == "worker"]
        self.assertNotIn("admin-token", [one["name"] for one in own["volumeMounts"]])

    def test_token_files_are_not_for_every_user(self):
        for name in (COORDINATOR, WORKER):
            for one in self.pod(render(), name)["volumes"]:
                if "secret" in one:
                    self.assertEqual(one["secret"]["defaultMode"], 0o440)


class PodTest(Case):
    CASES = ({}, {"tls": TlsTest.SECRETS}, {"workerGroups": {"cpu": {"device": "cuda"}}},
             {"workerGroups": {"cpu": {"kind": "DaemonSet", "contentDisk": {"enabled": True}}}})

    def test_every_pod_passes_the_restricted_standard(self):
        for values in self.CASES:
            for one in render(**values):
                if manifests.pod_of(one):
                    self.assertEqual(manifests.insecurities(manifests.pod_of(one)), [])

    def test_every_container_has_a_read_only_root(self):
        for one in render():
            pod = manifests.pod_of(one) or {"containers": []}
            for each in pod["containers"] + pod.get("initContainers", []):
                self.assertIs(each["securityContext"]["readOnlyRootFilesystem"], True)

    def test_no_pod_has_credentials_of_the_cluster(self):
        for one in render():
            if manifests.pod_of(one):
                self.assertIs(manifests.pod_of(one)["automountServiceAccountToken"], False)

    def test_every_container_has_resources(self):
        for one in render():
            pod = manifests.pod_of(one) or {"containers": []}
            for each in pod["containers"] + pod.get("initContainers", []):
                self.assertIn("memory", each["resources"]["limits"])

    def test_every_mount_has_its_volume_and_every_volume_a_mount(self):
        for values in self.CASES:
            for one in render(**values):
                pod = manifests.pod_of(one)
                if not pod:
                    continue
                volumes = [each["name"] for each in pod.get("volumes", [])]
                volumes += [each["metadata"]["name"]
                            for each in one["spec"].get("volumeClaimTemplates", [])]
                mounts = {mount["name"] for each in pod["containers"]
                          + pod.get("initContainers", []) for mount in each["volumeMounts"]}
                self.assertEqual(mounts, set(volumes))

    def test_state_is_on_a_claimed_volume(self):
        one = manifests.named(render(), "StatefulSet", COORDINATOR)
        (claim,) = one["spec"]["volumeClaimTemplates"]
        self.assertEqual(claim["spec"]["resources"]["requests"]["storage"], "1Gi")
        self.assertNotIn("storageClassName", claim["spec"])

    def test_state_may_be_on_the_node(self):
        one = manifests.named(render(coordinator={"persistence": {"enabled": False}}),
                              "StatefulSet", COORDINATOR)
        self.assertNotIn("volumeClaimTemplates", one["spec"])
        self.assertIn({"name": "state", "emptyDir": {}}, manifests.pod_of(one)["volumes"])

    def test_state_may_have_a_storage_class(self):
        one = manifests.named(render(coordinator={"persistence": {"storageClassName": "fast"}}),
                              "StatefulSet", COORDINATOR)
        self.assertEqual(one["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"], "fast")

    def test_there_is_one_coordinator(self):
        self.assertEqual(manifests.named(render(), "StatefulSet", COORDINATOR)
                         ["spec"]["replicas"], 1)
        self.refuses("replicas", coordinator={"replicas": 2})

    def test_scheduling_keys_reach_the_pod(self):
        given = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
                 "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"}
        for objects, name in ((worker(**given), WORKER), (render(coordinator=given), COORDINATOR)):
            self.assertLessEqual(given.items(), self.pod(objects, name).items())

    def test_annotations_and_labels_reach_the_pod(self):
        one = manifests.named(worker(podAnnotations={"a": "1"}, podLabels={"b": "2"}),
                              "StatefulSet", WORKER)
        self.assertEqual(one["spec"]["template"]["metadata"]["annotations"]["a"], "1")
        self.assertEqual(one["spec"]["template"]["metadata"]["labels"]["b"], "2")


class WorkerTest(Case):

    def test_shared_memory_is_in_memory(self):
        pod = self.pod(worker(sharedMemory="2Gi"))
        self.assertIn({"name": "shared-memory",
                       "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}, pod["volumes"])
        own = manifests.container(manifests.named(worker(), "StatefulSet", WORKER), "worker")
        self.assertIn({"name": "shared-memory", "mountPath": "/dev/shm"}, own["volumeMounts"])

    def test_workers_start_in_any_order(self):
        one = manifests.named(worker(replicas=3), "StatefulSet", WORKER)
        self.assertEqual(one["spec"]["podManagementPolicy"], "Parallel")
        self.assertEqual(one["spec"]["replicas"], 3)

    def test_workers_spread_over_nodes(self):
        (spread,) = self.pod(render())["topologySpreadConstraints"]
        self.assertEqual(spread["topologyKey"], "kubernetes.io/hostname")
        self.assertEqual(spread["whenUnsatisfiable"], "ScheduleAnyway")

    def test_spread_may_be_another(self):
        given = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
        self.assertEqual(self.pod(worker(topologySpreadConstraints=given))
                         ["topologySpreadConstraints"], given)

    def test_daemon_set_names_workers_after_nodes(self):
        one = manifests.named(worker(kind="DaemonSet"), "DaemonSet", WORKER)
        self.assertNotIn("replicas", one["spec"])
        for name in ("configure", "drain"):
            self.assertIn({"name": "WORKER_ID",
                           "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                          manifests.container(one, name)["env"])

    def test_stateful_set_names_workers_after_pods(self):
        one = manifests.named(render(), "StatefulSet", WORKER)
        self.assertIn({"name": "WORKER_ID",
                       "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                      manifests.container(one, "configure")["env"])

    def test_gpu_comes_from_a_device_plugin(self):
        own = manifests.container(manifests.named(worker(device="cuda"), "StatefulSet", WORKER),
                                  "worker")
        self.assertEqual(own["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertNotIn("claims", own["resources"])

    def test_gpu_comes_from_a_claim(self):
        one = manifests.named(worker(device="cuda", gpu={"resourceClaimTemplateName": "h100"}),
                              "StatefulSet", WORKER)
        self.assertEqual(manifests.pod_of(one)["resourceClaims"],
                         [{"name": "gpu", "resourceClaimTemplateName": "h100"}])
        own = manifests.container(one, "worker")["resources"]
        self.assertEqual(own["claims"], [{"name": "gpu"}])
        self.assertNotIn("nvidia.com/gpu", own["limits"])

    def test_gpu_worker_uses_the_first_device_that_it_sees(self):
        config = manifests.configuration(worker(device="cuda"), WORKER, "worker.yaml")
        self.assertEqual(config["device"]["kind"], "cuda:0")

    def test_gpu_may_need_a_runtime_class(self):
        gpu = {"runtimeClassName": "nvidia"}
        self.assertEqual(self.pod(worker(device="cuda", gpu=gpu))["runtimeClassName"], "nvidia")
        self.assertNotIn("runtimeClassName", self.pod(worker(gpu=gpu)))

    def test_cpu_worker_asks_for_no_gpu(self):
        own = manifests.container(manifests.named(render(), "StatefulSet", WORKER), "worker")
        self.assertNotIn("nvidia.com/gpu", own["resources"]["limits"])

    def test_content_disk_claims_a_volume(self):
        one = manifests.named(worker(contentDisk={"enabled": True, "size": "5Gi",
                                                  "storageClassName": "fast"}),
                              "StatefulSet", WORKER)
        (claim,) = one["spec"]["volumeClaimTemplates"]
        self.assertEqual(claim["spec"]["storageClassName"], "fast")
        self.assertEqual(claim["spec"]["resources"]["requests"]["storage"], "5Gi")

    def test_content_disk_of_a_daemon_set_is_the_nodes(self):
        one = manifests.named(worker(kind="DaemonSet", contentDisk={"enabled": True}),
                              "DaemonSet", WORKER)
        self.assertNotIn("volumeClaimTemplates", one["spec"])
        self.assertIn({"name": "contents", "emptyDir": {"sizeLimit": "100Gi"}},
                      manifests.pod_of(one)["volumes"])

    def test_groups_stand_beside_each_other(self):
        objects = render(workerGroups={"gpu": {"device": "cuda", "replicas": 4}})
        self.assertEqual(manifests.named(objects, "StatefulSet", "djinn-worker-gpu")
                         ["spec"]["replicas"], 4)
        self.assertEqual(manifests.named(objects, "StatefulSet", WORKER)["spec"]["replicas"], 1)

    def test_null_removes_the_group_of_the_defaults(self):
        objects = render(workerGroups={"cpu": None, "gpu": {"device": "cuda"}})
        self.assertNotIn(WORKER, [one["metadata"]["name"] for one in objects])
        self.refuses("workerGroups", workerGroups={"cpu": None})

    def test_refuses_a_group_that_is_no_name(self):
        self.refuses("GPU", workerGroups={"GPU": {}})


class LifeTest(Case):

    def probes(self, objects, name, of):
        own = manifests.container(manifests.named(objects, "StatefulSet", name), of)
        return {key: own[key + "Probe"] for key in ("startup", "liveness", "readiness")}

    def test_probes_ask_the_monitoring_port(self):
        for name, of in ((COORDINATOR, "coordinator"), (WORKER, "worker")):
            probes = self.probes(render(), name, of)
            self.assertEqual({key: probe["httpGet"]["path"] for key, probe in probes.items()},
                             {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"})
            self.assertEqual({probe["httpGet"]["port"] for probe in probes.values()},
                             {"monitoring"})

    def test_start_has_the_time_that_is_given(self):
        probe = self.probes(worker(startupTimeoutSeconds=61), WORKER, "worker")["startup"]
        self.assertEqual(probe["periodSeconds"] * probe["failureThreshold"], 62)

    def test_grace_period_exceeds_the_drain_and_the_stop(self):
        pod = self.pod(worker(drain={"timeoutSeconds": 100}))
        self.assertEqual(pod["terminationGracePeriodSeconds"], 130)
        for name in ("worker", "drain"):
            (own,) = [one for one in pod["containers"] if one["name"] == name]
            self.assertIn({"name": "DRAIN_TIMEOUT", "value": "100"}, own["env"])

    def test_worker_waits_for_its_drain(self):
        one = manifests.named(render(), "StatefulSet", WORKER)
        self.assertEqual(
            manifests.container(one, "worker")["lifecycle"]["preStop"]["exec"]["command"][-2:],
            ["wait", "/run/djinn"])
        self.assertEqual(
            manifests.container(one, "drain")["lifecycle"]["preStop"]["exec"]["command"][-2:],
            ["drain", "/run/djinn"])

    def test_without_drain_there_is_no_admin_token(self):
        one = manifests.named(worker(drain={"enabled": False}), "StatefulSet", WORKER)
        pod = manifests.pod_of(one)
        self.assertEqual([each["name"] for each in pod["containers"]], ["worker"])
        self.assertNotIn("lifecycle", pod["containers"][0])
        self.assertEqual(pod["terminationGracePeriodSeconds"], 30)
        self.assertNotIn("admin", json.dumps(pod))

    def test_coordinator_has_more_than_the_20_seconds_of_its_stop(self):
        self.assertGreaterEqual(
            self.pod(render(), COORDINATOR)["terminationGracePeriodSeconds"], 20)
        self.refuses("terminationGracePeriodSeconds",
                     coordinator={"terminationGracePeriodSeconds": 5})

    def test_one_worker_of_a_group_may_be_away(self):
        budget = manifests.named(render(), "PodDisruptionBudget", WORKER)
        self.assertEqual(budget["spec"]["maxUnavailable"], 1)
        self.assertEqual(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow")

    def test_disruption_budgets_may_be_left_out_or_added(self):
        objects = render(worker={"podDisruptionBudget": {"enabled": False}},
                         coordinator={"podDisruptionBudget": {"enabled": True}})
        budgets = [one["metadata"]["name"] for one in objects
                   if one["kind"] == "PodDisruptionBudget"]
        self.assertEqual(budgets, [COORDINATOR])

    def test_budget_may_be_a_percentage(self):
        budget = manifests.named(worker(podDisruptionBudget={"maxUnavailable": "25%"}),
                                 "PodDisruptionBudget", WORKER)
        self.assertEqual(budget["spec"]["maxUnavailable"], "25%")

    def test_a_coordinator_that_is_not_ready_is_reached(self):
        service = manifests.named(render(), "Service", COORDINATOR)
        self.assertIs(service["spec"]["publishNotReadyAddresses"], True)


class ScalingTest(Case):
    ON = {"enabled": True, "phase": "llm_decode", "maxReplicas": 9}

    def test_there_is_no_scaler_port_without_scaling(self):
        config = manifests.configuration(render(), COORDINATOR, "coordinator.yaml")
        self.assertNotIn("scaler", config)
        service = manifests.named(render(), "Service", COORDINATOR)
        self.assertEqual([port["name"] for port in service["spec"]["ports"]],
                         ["grpc", "monitoring"])

    def test_scaling_opens_the_scaler_port(self):
        objects = worker(autoscaling=self.ON)
        config = manifests.configuration(objects, COORDINATOR, "coordinator.yaml")
        self.assertEqual(config["scaler"], {"listen": "0.0.0.0:7071", "insecure": True})
        service = manifests.named(objects, "Service", COORDINATOR)
        self.assertIn(7071, [port["port"] for port in service["spec"]["ports"]])

    def test_scaled_object_asks_the_coordinator(self):
        objects = worker(autoscaling=self.ON)
        one = manifests.named(objects, "ScaledObject", WORKER)["spec"]
        self.assertEqual(one["triggers"][0]["type"], "external-push")
        self.assertEqual(one["triggers"][0]["metadata"], {
            "scalerAddress": "djinn-coordinator.lab.svc:7071", "phase": "llm_decode",
            "targetUtilisation": "0.7"})
        self.assertEqual((one["minReplicaCount"], one["maxReplicaCount"]), (1, 9))

    def test_scaled_object_scales_its_set(self):
        objects = worker(autoscaling=self.ON)
        target = manifests.named(objects, "ScaledObject", WORKER)["spec"]["scaleTargetRef"]
        scaled = manifests.named(objects, target["kind"], target["name"])
        self.assertNotIn("replicas", scaled["spec"])

    def test_scaler_uses_tls(self):
        objects = render(tls=TlsTest.SECRETS, workerGroups={"cpu": {"autoscaling": self.ON}})
        trigger = manifests.named(objects, "ScaledObject", WORKER)["spec"]["triggers"][0]
        self.assertEqual(trigger["metadata"]["enableTLS"], "true")
        authentication = manifests.named(objects, "TriggerAuthentication",
                                         trigger["authenticationRef"]["name"])
        self.assertEqual({one["parameter"]: one["key"]
                          for one in authentication["spec"]["secretTargetRef"]},
                         {"caCert": "ca.crt", "tlsClientCert": "tls.crt",
                          "tlsClientKey": "tls.key"})
        config = manifests.configuration(objects, COORDINATOR, "coordinator.yaml")
        self.assertNotIn("insecure", config["scaler"])

    def test_scaler_has_its_target(self):
        objects = render(coordinator={"scaler": {"enabled": True},
                                      "config": {"scaler": {"target_utilisation": 0.5}}})
        config = manifests.configuration(objects, COORDINATOR, "coordinator.yaml")
        self.assertEqual(config["scaler"]["target_utilisation"], 0.5)

    def test_refuses_a_target_without_a_scaler(self):
        self.refuses("needs coordinator.scaler.enabled",
                     coordinator={"config": {"scaler": {"target_utilisation": 0.5}}})

    def test_refuses_to_scale_a_daemon_set(self):
        self.refuses("a DaemonSet has no autoscaling",
                     workerGroups={"cpu": {"kind": "DaemonSet", "autoscaling": {"enabled": True}}})

    def test_monitors_scrape_the_monitoring_ports(self):
        objects = render(monitoring={"enabled": True, "interval": "15s", "labels": {"a": "b"}})
        service = manifests.named(objects, "ServiceMonitor", COORDINATOR)
        pods = manifests.named(objects, "PodMonitor", "djinn-workers")
        endpoint = {"port": "monitoring", "path": "/metrics", "interval": "15s"}
        self.assertEqual(service["spec"]["endpoints"], [endpoint])
        self.assertEqual(pods["spec"]["podMetricsEndpoints"], [endpoint])
        self.assertEqual(service["metadata"]["labels"]["a"], "b")

    def test_service_monitor_selects_one_service(self):
        objects = render(monitoring={"enabled": True})
        wanted = manifests.named(objects, "ServiceMonitor", COORDINATOR)["spec"]["selector"]
        matched = [one["metadata"]["name"] for one in objects if one["kind"] == "Service"
                   and wanted["matchLabels"].items() <= one["metadata"]["labels"].items()]
        self.assertEqual(matched, [COORDINATOR])


class NetworkTest(Case):
    PEER = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]

    def ports(self, objects, name, way="ingress"):
        policy = manifests.named(objects, "NetworkPolicy", name)
        return {port["port"] for rule in policy["spec"][way] for port in rule["ports"]}

    def test_policies_deny_what_they_do_not_name(self):
        for one in render():
            if one["kind"] == "NetworkPolicy":
                self.assertEqual(one["spec"]["policyTypes"], ["Ingress", "Egress"])

    def test_ports_are_those_of_the_services_that_somebody_may_use(self):
        self.assertEqual(self.ports(render(), COORDINATOR), {7070})
        self.assertEqual(self.ports(render(), "djinn-workers"), {7072})

    def test_monitoring_and_scaler_have_peers_of_their_own(self):
        objects = render(networkPolicy={"monitoring": self.PEER, "scaler": self.PEER},
                         coordinator={"scaler": {"enabled": True}})
        self.assertEqual(self.ports(objects, COORDINATOR), {7070, 7071, 7080})
        self.assertEqual(self.ports(objects, "djinn-workers"), {7072, 7080})
        rules = manifests.named(objects, "NetworkPolicy", COORDINATOR)["spec"]["ingress"]
        self.assertEqual([rule["from"] for rule in rules[1:]], [self.PEER, self.PEER])

    def test_coordinator_dials_nobody(self):
        self.assertEqual(self.ports(render(), COORDINATOR, "egress"), set())

    def test_workers_dial_the_coordinator_each_other_and_dns(self):
        self.assertEqual(self.ports(render(), "djinn-workers", "egress"), {7070, 7072, 53})

    def test_ports_of_every_group_are_named(self):
        objects = render(workerGroups={"cpu": {}, "b": {"ports": {"grpc": 9}}})
        self.assertEqual(self.ports(objects, "djinn-workers"), {7072, 9})

    def test_policies_select_the_pods(self):
        objects = render()
        for name, pod in ((COORDINATOR, COORDINATOR), ("djinn-workers", WORKER)):
            selector = manifests.named(objects, "NetworkPolicy", name)["spec"]["podSelector"]
            labels = manifests.named(objects, "StatefulSet", pod)["spec"]["template"]["metadata"][
                "labels"]
            self.assertLessEqual(selector["matchLabels"].items(), labels.items())

    def test_clients_may_be_others(self):
        objects = render(networkPolicy={"clients": self.PEER})
        rule = manifests.named(objects, "NetworkPolicy", "djinn-workers")["spec"]["ingress"][0]
        self.assertEqual(rule["from"][1:], self.PEER)

    def test_policies_may_be_left_out(self):
        self.assertNotIn("NetworkPolicy", kinds(render(networkPolicy={"enabled": False})))


class NotesTest(Case):

    def notes(self, **values):
        return manifests.notes(values)

    def test_notes_say_how_programs_connect(self):
        self.assertIn("DJINN_COORDINATOR=djinn-coordinator.lab.svc:7070", self.notes())

    def test_notes_warn_without_encryption_and_policies(self):
        self.assertIn("Nothing is encrypted", self.notes())
        self.assertIn("no NetworkPolicy", self.notes(networkPolicy={"enabled": False}))

    def test_notes_name_the_certificates(self):
        notes = self.notes(tls=TlsTest.SECRETS)
        self.assertNotIn("Nothing is encrypted", notes)
        self.assertIn("DJINN_TLS_WORKER_SERVER_NAME=djinn-worker", notes)

    def test_notes_name_a_set_that_exists(self):
        match = re.search(r"(statefulset|daemonset)/(\S+)", self.notes())
        manifests.named(render(), "StatefulSet", match.group(2))

    def test_helm_test_asks_the_coordinator(self):
        one = manifests.named(render(), "Pod", "djinn-test")
        self.assertEqual(one["metadata"]["annotations"]["helm.sh/hook"], "test")
        self.assertIn({"name": "DJINN_COORDINATOR", "value": "djinn-coordinator.lab.svc:7070"},
                      manifests.container(one, "test")["env"])


if __name__ == "__main__":
    unittest.main()

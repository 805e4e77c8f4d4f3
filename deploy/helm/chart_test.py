"""Unit tests of the chart: names, images, configurations, encryption, tokens."""

import unittest

from deploy.helm.chart_case import (
    Case, COORDINATOR, INTERNAL, SECRETS, WORKER, kinds, render, worker)
from deploy.testing import manifests


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

    def test_cpu_worker_uses_half_of_its_memory_limit(self):
        for limit, memory in (("8Gi", "4096MiB"), ("600Mi", "300MiB")):
            config = self.worker(worker(resources={"limits": {"memory": limit}}))
            self.assertEqual(config["device"]["memory"], memory)

    def test_cpu_worker_without_a_limit_needs_its_memory(self):
        for limit in (None, "8G"):
            self.refuses("config.device.memory",
                         worker={"resources": {"limits": {"memory": limit}}})
        config = self.worker(worker(resources={"limits": {"memory": "8G"}},
                                    config={"device": {"memory": "4GB"}}))
        self.assertEqual(config["device"]["memory"], "4GB")

    def test_cpu_worker_has_a_thread_for_each_core_of_its_limit(self):
        config = self.worker(worker(resources={"limits": {"cpu": "4"}}))
        self.assertEqual(config["device"]["threads"], 4)
        self.assertNotIn("threads", self.worker(render())["device"])

    def test_gpu_worker_decides_about_its_memory(self):
        config = self.worker(worker(device="cuda"))
        self.assertEqual(config["device"], {"kind": "cuda:0"})

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

    def test_operators_have_their_roles_and_tokens(self):
        self.assertNotIn("operators", self.coordinator())
        config = self.coordinator(
            operators={"olga": {"role": "operator"}, "vera": {"role": "viewer"}})
        self.assertEqual(config["operators"], [
            {"name": "olga", "role": "operator", "token_file": "/etc/djinn/tokens/operator-olga"},
            {"name": "vera", "role": "viewer", "token_file": "/etc/djinn/tokens/operator-vera"}])

    def test_refuses_an_operator_without_a_role_that_exists(self):
        self.refuses("role", operators={"olga": {}})
        self.refuses("role", operators={"olga": {"role": "root"}})
        self.refuses("admin", operators={"admin": {"role": "admin"}})

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

    def test_tenants_of_a_cpu_have_processes_of_their_own(self):
        self.assertEqual(self.worker(render())["isolation"],
                         {"mode": "process", "ports": "7100-7163"})
        given = worker(config={"isolation": {"executors": 2}}, ports={"executors": "9000-9009"})
        self.assertEqual(self.worker(given)["isolation"],
                         {"mode": "process", "executors": 2, "ports": "9000-9009"})
        shared = worker(config={"isolation": {"mode": "shared"}})
        self.assertEqual(self.worker(shared)["isolation"], {"mode": "shared"})

    def test_gpus_say_that_tenants_share(self):
        self.assertEqual(self.worker(worker(device="cuda"))["isolation"], {"mode": "shared"})

    def test_disks_leave_tenants_their_processes(self):
        kept = worker(contentDisk={"enabled": True, "limit": "1GiB"})
        self.assertEqual(self.worker(kept)["isolation"]["mode"], "process")

    def test_executor_ports_are_the_charts(self):
        self.refuses("ports", worker={"config": {"isolation": {"ports": "1-9"}}})
        self.refuses("executors", worker={"ports": {"executors": "7100"}})

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
        self.assertEqual(checksum(render()),
                         checksum(render(operators={"olga": {"role": "operator"}})))


class TlsTest(Case):
    def test_without_tls_all_say_insecure(self):
        for name, key in ((COORDINATOR, "coordinator.yaml"), (WORKER, "worker.yaml")):
            self.assertIs(manifests.configuration(render(), name, key)["insecure"], True)
        drain = manifests.container(manifests.named(render(), "StatefulSet", WORKER), "drain")
        self.assertIn({"name": "DJINN_INSECURE", "value": "1"}, drain["env"])

    def test_with_tls_none_says_insecure(self):
        objects = render(tls=SECRETS)
        for name, key in ((COORDINATOR, "coordinator.yaml"), (WORKER, "worker.yaml")):
            self.assertNotIn("insecure", manifests.configuration(objects, name, key))
        drain = manifests.container(manifests.named(objects, "StatefulSet", WORKER), "drain")
        self.assertNotIn("DJINN_INSECURE", [one["name"] for one in drain["env"]])

    def test_servers_demand_certificates(self):
        config = manifests.configuration(render(tls=SECRETS), COORDINATOR, "coordinator.yaml")
        self.assertEqual(config["tls"]["client_ca_file"], "/etc/djinn/tls/ca.crt")

    def test_servers_demand_none_without_mutual(self):
        objects = render(tls={**SECRETS, "mutual": False})
        config = manifests.configuration(objects, WORKER, "worker.yaml")
        self.assertEqual(config["tls"], {"certificate_file": "/etc/djinn/tls/tls.crt",
                                         "private_key_file": "/etc/djinn/tls/tls.key"})
        self.assertEqual(config["coordinator_tls"], {"ca_file": "/etc/djinn/tls/ca.crt"})

    def test_workers_expect_the_name_of_workers(self):
        config = manifests.configuration(render(tls=SECRETS), WORKER, "worker.yaml")
        self.assertEqual(config["peer_tls"]["server_name"], "djinn-worker")
        self.assertNotIn("server_name", config["coordinator_tls"])

    def test_each_role_mounts_its_own_secret(self):
        objects = render(tls=SECRETS)

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
        self.assertIn(INTERNAL + ".lab.svc", dns)
        self.assertEqual(manifests.named(objects, "Certificate", "djinn-worker")
                         ["spec"]["dnsNames"], ["djinn-worker"])

    def test_pods_mount_what_cert_manager_writes(self):
        objects = render(tls={"mode": "certManager"})
        written = {one["spec"]["secretName"] for one in objects if one["kind"] == "Certificate"}
        for name in (COORDINATOR, WORKER):
            for one in self.pod(objects, name)["volumes"]:
                if "tls" in one["name"]:
                    self.assertIn(one["secret"]["secretName"], written)


class TracingTest(Case):
    PEER = [{"podSelector": {"matchLabels": {"app": "otel"}}}]
    ON = {"tracing": {"endpoint": "otel:4317", "sampleRatio": 0.5,
                      "tls": {"secret": "o", "serverName": "collector"}},
          "networkPolicy": {"tracing": PEER}}

    def configurations(self, objects):
        return (manifests.configuration(objects, COORDINATOR, "coordinator.yaml"),
                manifests.configuration(objects, WORKER, "worker.yaml"))

    def test_is_off_by_default(self):
        for one in self.configurations(render()):
            self.assertNotIn("tracing", one)

    def test_reaches_both_configurations_with_the_collectors_authority(self):
        objects = render(**self.ON)
        for one in self.configurations(objects):
            self.assertEqual(one["tracing"], {
                "endpoint": "otel:4317", "sample_ratio": 0.5,
                "tls": {"ca_file": "/etc/djinn/tracing-tls/ca.crt", "server_name": "collector"}})
        for name in (COORDINATOR, WORKER):
            volumes = {one["name"]: one for one in self.pod(objects, name)["volumes"]}
            self.assertEqual(volumes["tracing-tls"]["secret"], {
                "secretName": "o", "defaultMode": 0o440,
                "items": [{"key": "ca.crt", "path": "ca.crt"}]})

    def test_without_tls_must_be_asked_for(self):
        values = {"tracing": {"endpoint": "otel:4317"}, "networkPolicy": {"tracing": self.PEER}}
        self.refuses("tracing: set tls.secret, or insecure", **values)
        values["tracing"]["insecure"] = True
        for one in self.configurations(render(**values)):
            self.assertIs(one["tracing"]["insecure"], True)

    def test_network_policies_let_both_reach_the_collector_alone(self):
        self.refuses("networkPolicy.tracing", tracing=self.ON["tracing"])
        for one in render(**self.ON):
            if one["kind"] == "NetworkPolicy":
                self.assertIn({"ports": [{"port": 4317, "protocol": "TCP"}], "to": self.PEER},
                              one["spec"]["egress"])

    def test_refuses_an_endpoint_without_a_port(self):
        self.refuses("endpoint", tracing={"endpoint": "otel"})


class TokenTest(Case):

    def test_makes_a_token_for_each_peer(self):
        secret = manifests.named(
            render(tenants={"red": {}}, operators={"olga": {"role": "operator"}}),
            "Secret", "djinn-tokens")
        self.assertEqual(sorted(secret["data"]), [
            "admin", "join", "operator-olga", "tenant-default", "tenant-red"])
        self.assertEqual(len(set(secret["data"].values())), 5)

    def test_programs_of_a_tenant_find_its_token_alone(self):
        objects = render(tenants={"red": {}})
        tokens = manifests.named(objects, "Secret", "djinn-tokens")["data"]
        for name in ("default", "red"):
            secret = manifests.named(objects, "Secret", f"djinn-tenant-{name}")
            self.assertEqual(secret["data"], {"token": tokens[f"tenant-{name}"]})

    def test_tokens_outlive_the_release(self):
        for name in ("djinn-tokens", "djinn-tenant-default"):
            secret = manifests.named(render(), "Secret", name)
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


if __name__ == "__main__":
    unittest.main()

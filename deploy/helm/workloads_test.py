"""Unit tests of the chart: pods, workers, their life, scaling, networks, notes."""

import json
import os
import re
import unittest

from deploy.helm.chart_case import (
    Case, COORDINATOR, INTERNAL, SECRETS, SEVERAL, WORKER, kinds, render, worker)
from deploy.testing import manifests
from deploy.testing.tools import ROOT, yaml


class PodTest(Case):
    CASES = ({}, {"tls": SECRETS}, {"workerGroups": {"cpu": {"device": "cuda"}}},
             {"workerGroups": {"cpu": {"kind": "DaemonSet", "contentDisk": {"enabled": True}}}},
             SEVERAL)

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

    def test_daemon_set_names_workers_after_the_group_and_the_node(self):
        daemon = {"kind": "DaemonSet"}
        objects = render(workerGroups={"cpu": daemon, "gpu": {**daemon, "device": "cuda"}})
        for group in ("cpu", "gpu"):
            one = manifests.named(objects, "DaemonSet", "djinn-worker-" + group)
            self.assertNotIn("replicas", one["spec"])
            for name in ("configure", "drain"):
                # Kubernetes replaces a variable that stands before.
                self.assertEqual(manifests.container(one, name)["env"][:2], [
                    {"name": "NODE_NAME",
                     "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "WORKER_ID", "value": group + ".$(NODE_NAME)"}])

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

    def test_a_failed_probe_does_not_wait_for_a_drain(self):
        for objects, name, of in ((render(), COORDINATOR, "coordinator"),
                                  (worker(drain={"timeoutSeconds": 3600}), WORKER, "worker")):
            probes = self.probes(objects, name, of)
            for key in ("startup", "liveness"):
                self.assertEqual(probes[key]["terminationGracePeriodSeconds"], 30)
            # Kubernetes refuses the key there: a pod that is not ready is not restarted.
            self.assertNotIn("terminationGracePeriodSeconds", probes["readiness"])

    def test_grace_period_exceeds_the_drain_and_the_stop(self):
        pod = self.pod(worker(drain={"timeoutSeconds": 100}))
        # The worker's own drain takes 10 s, and its stop 20 s.
        self.assertEqual(pod["terminationGracePeriodSeconds"], 140)
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
        self.assertNotIn("admin", json.dumps(pod))

    def test_without_the_container_the_worker_drains_itself_in_that_time(self):
        for enabled, own in ((True, "10s"), (False, "100s")):
            objects = worker(drain={"enabled": enabled, "timeoutSeconds": 100})
            config = manifests.configuration(objects, WORKER, "worker.yaml")
            self.assertEqual(config["drain_timeout"], own)
            self.assertEqual(self.pod(objects)["terminationGracePeriodSeconds"], 140)

    def test_refuses_a_drain_timeout_that_the_grace_period_would_not_know(self):
        for values in ({"worker": {"config": {"drain_timeout": "5m"}}},
                       {"workerGroups": {"cpu": {"config": {"drain_timeout": "5m"}}}}):
            self.refuses("set worker.drain.timeoutSeconds", **values)

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
        for name in (COORDINATOR, INTERNAL):
            service = manifests.named(render(), "Service", name)
            self.assertIs(service["spec"]["publishNotReadyAddresses"], True)


class ServiceTest(Case):

    def test_only_the_port_of_programs_leaves_the_cluster(self):
        for kind in ("ClusterIP", "NodePort", "LoadBalancer"):
            objects = render(coordinator={"service": {"type": kind, "annotations": {"a": "b"}},
                                          "scaler": {"enabled": True}})
            service = manifests.named(objects, "Service", COORDINATOR)
            self.assertEqual(service["spec"]["type"], kind)
            self.assertEqual([port["name"] for port in service["spec"]["ports"]], ["grpc"])
            internal = manifests.named(objects, "Service", INTERNAL)
            self.assertEqual(internal["spec"]["type"], "ClusterIP")
            self.assertEqual([port["name"] for port in internal["spec"]["ports"]],
                             ["scaler", "monitoring"])
            # Annotations, such as those of a cloud's load balancer, are for the other one.
            self.assertNotIn("annotations", internal["metadata"])

    def test_both_services_select_the_coordinator(self):
        objects = render()
        labels = manifests.named(objects, "StatefulSet", COORDINATOR)["spec"]["template"][
            "metadata"]["labels"]
        for name in (COORDINATOR, INTERNAL):
            selector = manifests.named(objects, "Service", name)["spec"]["selector"]
            self.assertLessEqual(selector.items(), labels.items())


class ScalingTest(Case):
    ON = {"enabled": True, "phase": "llm_decode", "maxReplicas": 9}

    def test_there_is_no_scaler_port_without_scaling(self):
        config = manifests.configuration(render(), COORDINATOR, "coordinator.yaml")
        self.assertNotIn("scaler", config)
        service = manifests.named(render(), "Service", INTERNAL)
        self.assertEqual([port["name"] for port in service["spec"]["ports"]], ["monitoring"])

    def test_scaling_opens_the_scaler_port(self):
        objects = worker(autoscaling=self.ON)
        config = manifests.configuration(objects, COORDINATOR, "coordinator.yaml")
        self.assertEqual(config["scaler"], {"listen": "0.0.0.0:7071", "insecure": True})
        service = manifests.named(objects, "Service", INTERNAL)
        self.assertEqual([port["port"] for port in service["spec"]["ports"]], [7071, 7080])

    def test_scaled_object_asks_the_coordinator(self):
        objects = worker(autoscaling=self.ON)
        one = manifests.named(objects, "ScaledObject", WORKER)["spec"]
        self.assertEqual(one["triggers"][0]["type"], "external-push")
        self.assertEqual(one["triggers"][0]["metadata"], {
            "scalerAddress": "djinn-coordinator-internal.lab.svc:7071", "phase": "llm_decode",
            "targetUtilisation": "0.7"})
        self.assertEqual((one["minReplicaCount"], one["maxReplicaCount"]), (1, 9))

    def test_scaled_object_scales_its_set(self):
        objects = worker(autoscaling=self.ON)
        target = manifests.named(objects, "ScaledObject", WORKER)["spec"]["scaleTargetRef"]
        scaled = manifests.named(objects, target["kind"], target["name"])
        self.assertNotIn("replicas", scaled["spec"])

    def test_scaler_uses_tls(self):
        objects = render(tls=SECRETS, workerGroups={"cpu": {"autoscaling": self.ON}})
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
        self.assertEqual(matched, [INTERNAL])
        self.assertIn("monitoring", [port["name"] for port in manifests.named(
            objects, "Service", INTERNAL)["spec"]["ports"]])

    def test_alerts_and_dashboards_are_off_unless_asked_for(self):
        objects = render(monitoring={"enabled": True})
        self.assertNotIn("PrometheusRule", kinds(objects))
        self.assertEqual([one for one in objects if "dashboard" in one["metadata"]["name"]], [])

    def test_alerts_are_those_of_the_file(self):
        objects = render(monitoring={"alerts": {"enabled": True, "labels": {"release": "p"}}})
        rule = manifests.named(objects, "PrometheusRule", "djinn")
        with open(os.path.join(ROOT, "deploy/helm/djinn/files/alerts.yaml"),
                  encoding="utf-8") as file:
            self.assertEqual(rule["spec"], yaml.safe_load(file))
        self.assertEqual(rule["metadata"]["labels"]["release"], "p")
        self.assertNotIn("ServiceMonitor", kinds(objects))

    def test_alert_of_an_absent_coordinator_asks_for_the_release(self):
        objects = render(monitoring={"enabled": True, "alerts": {"enabled": True}})
        rule = manifests.named(objects, "PrometheusRule", "djinn")["spec"]["groups"][0]["rules"][0]
        self.assertEqual(rule["alert"], "DjinnCoordinatorAbsent")
        self.assertEqual(" ".join(rule["expr"].split()), (
            "(count by (namespace) (djinn_build_info)"
            ' or absent(djinn_build_info{namespace="lab"}))'
            " unless on (namespace) (djinn_coordinator_leader == 1)"))

    def test_dashboards_are_those_of_the_files(self):
        objects = render(monitoring={"dashboards": {
            "enabled": True, "labels": {"mine": "1"}, "annotations": {"folder": "Djinn"}}})
        folder = os.path.join(ROOT, "deploy/helm/djinn/files/dashboards")
        names = [name[:-len(".json")] for name in sorted(os.listdir(folder))]
        self.assertGreater(len(names), 3)
        for name in names:
            one = manifests.named(objects, "ConfigMap", "djinn-dashboard-" + name)
            self.assertEqual(one["metadata"]["labels"]["mine"], "1")
            self.assertEqual(one["metadata"]["labels"]["grafana_dashboard"], "1")
            self.assertEqual(one["metadata"]["annotations"], {"folder": "Djinn"})
            with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
                self.assertEqual(one["data"], {"djinn-%s.json" % name: file.read()})

    def test_refuses_unknown_keys_of_alerts(self):
        self.refuses("alert", monitoring={"alerts": {"enable": True}})


class NetworkTest(Case):
    PEER = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]

    def ports(self, objects, name, way="ingress"):
        policy = manifests.named(objects, "NetworkPolicy", name)
        return {port["port"] for rule in policy["spec"].get(way, []) for port in rule["ports"]}

    def test_policies_deny_what_they_do_not_name(self):
        for one in render():
            if one["kind"] == "NetworkPolicy":
                self.assertEqual(one["spec"]["policyTypes"], ["Ingress", "Egress"])

    def test_ports_are_those_of_the_services_that_somebody_may_use(self):
        self.assertEqual(self.ports(render(), COORDINATOR), {7070})
        self.assertEqual(self.ports(render(), "djinn-workers"), {7072, 7100})

    def test_monitoring_and_scaler_have_peers_of_their_own(self):
        objects = render(networkPolicy={"monitoring": self.PEER, "scaler": self.PEER},
                         coordinator={"scaler": {"enabled": True}})
        self.assertEqual(self.ports(objects, COORDINATOR), {7070, 7071, 7080})
        self.assertEqual(self.ports(objects, "djinn-workers"), {7072, 7080, 7100})
        rules = manifests.named(objects, "NetworkPolicy", COORDINATOR)["spec"]["ingress"]
        self.assertEqual([rule["from"] for rule in rules[1:]], [self.PEER, self.PEER])

    def test_coordinator_dials_nothing(self):
        self.assertEqual(self.ports(render(), COORDINATOR, "egress"), set())

    def test_workers_dial_the_coordinator_each_other_and_dns(self):
        self.assertEqual(self.ports(render(), "djinn-workers", "egress"), {7070, 7072, 7100, 53})

    def test_dns_may_be_elsewhere(self):
        ports = [{"port": 5353, "protocol": "UDP"}]
        values = {"networkPolicy": {"dns": {"peers": self.PEER, "ports": ports},
                                    "etcd": SEVERAL["networkPolicy"]["etcd"]},
                  "coordinator": SEVERAL["coordinator"]}
        objects = render(**values)
        for name in (COORDINATOR, "djinn-workers"):
            egress = manifests.named(objects, "NetworkPolicy", name)["spec"]["egress"]
            self.assertEqual(egress[-1], {"ports": ports, "to": self.PEER})

    def test_dns_is_that_of_the_cluster_by_default(self):
        egress = manifests.named(render(), "NetworkPolicy", "djinn-workers")["spec"]["egress"]
        self.assertEqual(egress[-1], {
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
            "to": [{"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]})

    def test_refuses_dns_that_would_allow_all(self):
        self.refuses("peers", networkPolicy={"dns": {"peers": []}})
        self.refuses("ports", networkPolicy={"dns": {"ports": []}})
        self.refuses("protocol", networkPolicy={"dns": {"ports": [{"port": 53}]}})

    def test_ports_of_every_group_are_named(self):
        objects = render(workerGroups={"cpu": {}, "b": {"ports": {"grpc": 9}}})
        self.assertEqual(self.ports(objects, "djinn-workers"), {7072, 9, 7100})

    def test_executors_have_a_range_of_ports(self):
        policy = manifests.named(worker(ports={"executors": "9000-9009"}), "NetworkPolicy",
                                 "djinn-workers")
        self.assertIn({"port": 9000, "endPort": 9009, "protocol": "TCP"},
                      policy["spec"]["ingress"][0]["ports"])

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

    def test_notes_say_where_the_token_of_a_program_is(self):
        self.assertIn("a file with the key `token` of the Secret djinn-tenant-NAME\n",
                      self.notes())
        self.assertIn("a file with the tenant's token, which the Secret mine has as `tenant-NAME`\n",
                      self.notes(tokens={"existingSecret": "mine"}))

    def test_notes_warn_without_encryption_and_policies(self):
        self.assertIn("Nothing is encrypted", self.notes())
        self.assertIn("DJINN_INSECURE=1\n", self.notes())
        self.assertIn("no NetworkPolicy", self.notes(networkPolicy={"enabled": False}))

    def test_notes_name_the_certificates(self):
        notes = self.notes(tls=SECRETS)
        self.assertNotIn("Nothing is encrypted", notes)
        self.assertNotIn("DJINN_INSECURE", notes)
        self.assertIn("DJINN_TLS_WORKER_SERVER_NAME=djinn-worker", notes)

    def test_notes_name_a_container_that_exists(self):
        gpu = {"cpu": {"drain": {"enabled": False}}, "gpu": {"kind": "DaemonSet"}}
        for values in ({}, {"workerGroups": gpu}):
            kind, name, container = re.search(
                r"(statefulset|daemonset)/(\S+) -c (\S+)", self.notes(**values)).groups()
            of = {"statefulset": "StatefulSet", "daemonset": "DaemonSet"}[kind]
            manifests.container(manifests.named(render(**values), of, name), container)

    def test_without_such_a_container_notes_forward_the_port(self):
        off = {"worker": {"drain": {"enabled": False}}}
        notes = self.notes(**off)
        self.assertNotIn("kubectl exec", notes)
        name, local, port, address = re.search(
            r"port-forward -n lab service/(\S+) (\d+):(\d+) &\n  djinnctl --coordinator=(\S+)",
            notes).groups()
        service = manifests.named(render(**off), "Service", name)
        self.assertIn(int(port), [one["port"] for one in service["spec"]["ports"]])
        self.assertEqual(address, "127.0.0.1:" + local)
        secret = re.search(r"get secret -n lab (\S+) ", notes).group(1)
        self.assertIn("admin", manifests.named(render(**off), "Secret", secret)["data"])
        self.assertIn("DJINN_TLS_SERVER_NAME=djinn-coordinator.lab.svc",
                      self.notes(**off, tls=SECRETS))

    def test_notes_forward_a_port_of_each_coordinator(self):
        notes = self.notes(worker={"drain": {"enabled": False}}, **SEVERAL)
        self.assertEqual(re.findall(r"pod/(\S+) (\d+):7070", notes), [
            (f"djinn-coordinator-{index}", str(7070 + index)) for index in range(3)])
        self.assertIn("--coordinator=127.0.0.1:7070,127.0.0.1:7071,127.0.0.1:7072 ", notes)


class HelmTestTest(Case):

    def test_asks_the_coordinator(self):
        one = manifests.named(render(), "Pod", "djinn-test")
        self.assertEqual(one["metadata"]["annotations"]["helm.sh/hook"], "test")
        self.assertIn({"name": "DJINN_COORDINATOR", "value": "djinn-coordinator.lab.svc:7070"},
                      manifests.container(one, "test")["env"])

    def test_runs_the_script_of_the_chart_for_a_minute(self):
        own = manifests.container(manifests.named(render(), "Pod", "djinn-test"), "test")
        self.assertEqual(own["command"], ["/bin/sh", "-c"])
        with open(os.path.join(manifests.CHART, "files/tests/workers.sh"),
                  encoding="utf-8") as file:
            self.assertEqual(own["args"], [file.read(), "workers.sh", "60"])

    def test_expects_the_name_in_the_certificates_of_workers(self):
        for tls, expected in (({}, None), ({**SECRETS, "workerServerName": "w"}, "w")):
            own = manifests.container(
                manifests.named(render(tls=tls), "Pod", "djinn-test"), "test")
            environment = {one["name"]: one["value"] for one in own["env"]}
            self.assertEqual(environment.get("DJINN_TLS_WORKER_SERVER_NAME"), expected)

    def test_policies_let_it_reach_the_coordinator_and_each_worker(self):
        objects = render(workerGroups={"cpu": {}, "b": {"ports": {"grpc": 9}}})
        labels = manifests.named(objects, "Pod", "djinn-test")["metadata"]["labels"]
        for name, expected in ((COORDINATOR, {7070}), ("djinn-workers", {7072, 9})):
            policy = manifests.named(objects, "NetworkPolicy", name)["spec"]
            ports = {port["port"] for rule in policy["ingress"] for peer in rule["from"]
                     if peer["podSelector"].get("matchLabels", {}).get(
                         "app.kubernetes.io/component") == "test"
                     and peer["podSelector"]["matchLabels"].items() <= labels.items()
                     for port in rule["ports"]}
            self.assertEqual(ports, expected)


if __name__ == "__main__":
    unittest.main()

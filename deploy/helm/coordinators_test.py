"""Unit tests of the chart: several coordinators, which share their state in etcd."""

import copy
import unittest

from deploy.helm.chart_case import Case, COORDINATOR, INTERNAL, SECRETS, SEVERAL, WORKER, render
from deploy.testing import manifests
from deploy.testing.tools import yaml

_HOST = "djinn-coordinator.lab.svc"
_ADDRESSES = ",".join(f"djinn-coordinator-{i}.{_HOST}:7070" for i in range(3))


def several(**coordinator):
    """Three coordinators, with these keys of `coordinator` besides."""
    values = copy.deepcopy(SEVERAL)
    values["coordinator"].update(coordinator)
    return values


class CoordinatorsTest(Case):

    def files(self, objects):
        data = manifests.named(objects, "ConfigMap", COORDINATOR)["data"]
        return {key: yaml.safe_load(text) for key, text in data.items()}

    def container(self, objects):
        return manifests.container(
            manifests.named(objects, "StatefulSet", COORDINATOR), "coordinator")

    def environment(self, objects):
        drain = manifests.container(manifests.named(objects, "StatefulSet", WORKER), "drain")
        return {one["name"]: one.get("value") for one in drain["env"]}

    def test_each_coordinator_has_a_configuration_with_its_address(self):
        files = self.files(render(**SEVERAL))
        self.assertEqual({key: one["advertise"] for key, one in files.items()},
                         {f"djinn-coordinator-{i}.yaml": f"djinn-coordinator-{i}.{_HOST}:7070"
                          for i in range(3)})
        for one in files.values():
            del one["advertise"]
        self.assertEqual(len({str(one) for one in files.values()}), 1)

    def test_each_coordinator_reads_its_own_configuration(self):
        container = self.container(render(**SEVERAL))
        self.assertEqual(container["args"], ["--config=/etc/djinn/config/$(POD_NAME).yaml"])
        self.assertEqual(container["env"], [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])

    def test_names_of_pods_are_those_of_the_set_and_its_service(self):
        one = manifests.named(render(**SEVERAL), "StatefulSet", COORDINATOR)["spec"]
        self.assertEqual((one["replicas"], one["serviceName"]), (3, COORDINATOR))
        self.assertEqual(one["podManagementPolicy"], "Parallel")

    def test_service_names_each_pod_ready_or_not(self):
        for name in (COORDINATOR, INTERNAL):
            service = manifests.named(render(**SEVERAL), "Service", name)["spec"]
            self.assertEqual(service["clusterIP"], "None")
            self.assertIs(service["publishNotReadyAddresses"], True)
            self.assertNotIn("clusterIP", manifests.named(render(), "Service", name)["spec"])

    def test_refuses_a_service_that_cannot_name_pods(self):
        self.refuses("coordinator.service.type", **several(service={"type": "LoadBalancer"}))

    def test_state_is_in_etcd_alone(self):
        objects = render(**SEVERAL)
        for one in self.files(objects).values():
            self.assertNotIn("state_file", one)
            self.assertEqual(one["etcd"], {
                "endpoints": ["etcd-0.etcd:2379", "etcd-1.etcd:2479"], "prefix": "djinn",
                "lease": "5s", "tls": {"ca_file": "/etc/djinn/etcd-tls/ca.crt",
                                       "certificate_file": "/etc/djinn/etcd-tls/tls.crt",
                                       "private_key_file": "/etc/djinn/etcd-tls/tls.key"}})
        self.assertNotIn("volumeClaimTemplates",
                         manifests.named(objects, "StatefulSet", COORDINATOR)["spec"])
        volumes = {one["name"]: one for one in self.pod(objects, COORDINATOR)["volumes"]}
        self.assertNotIn("state", volumes)
        self.assertEqual(volumes["etcd-tls"]["secret"], {"secretName": "e", "defaultMode": 0o440})

    def test_one_coordinator_may_use_etcd(self):
        objects = render(**several(replicas=1))
        self.assertEqual(list(self.files(objects)), ["djinn-coordinator-0.yaml"])
        self.assertEqual(self.environment(objects)["DJINN_COORDINATOR"],
                         f"djinn-coordinator-0.{_HOST}:7070")

    def test_certificates_of_etcd_may_have_another_name(self):
        values = several()
        values["coordinator"]["etcd"]["tls"]["serverName"] = "etcd"
        for one in self.files(render(**values)).values():
            self.assertEqual(one["etcd"]["tls"]["server_name"], "etcd")

    def test_etcd_without_tls_must_be_asked_for(self):
        values = several()
        values["coordinator"]["etcd"]["tls"] = {}
        self.refuses("tls.secret, or insecure", **values)
        values["coordinator"]["etcd"]["insecure"] = True
        objects = render(**values)
        for one in self.files(objects).values():
            self.assertIs(one["etcd"]["insecure"], True)
            self.assertNotIn("tls", one["etcd"])
        self.assertNotIn("etcd-tls",
                         [one["name"] for one in self.pod(objects, COORDINATOR)["volumes"]])

    def test_several_need_etcd(self):
        self.refuses("need coordinator.etcd.endpoints", coordinator={"replicas": 3})

    def test_refuses_an_endpoint_without_a_port_and_keys_of_the_configuration(self):
        self.refuses("endpoints", coordinator={"etcd": {"endpoints": ["etcd"]}})
        self.refuses("etcd", coordinator={"config": {"etcd": {"prefix": "x"}}})
        self.refuses("advertise", coordinator={"config": {"advertise": "x:1"}})
        self.refuses("replicas", coordinator={"replicas": 0})

    def test_everyone_knows_every_address(self):
        objects = render(**SEVERAL)
        self.assertEqual(manifests.configuration(objects, WORKER, "worker.yaml")["coordinator"],
                         _ADDRESSES)
        self.assertEqual(self.environment(objects)["DJINN_COORDINATOR"], _ADDRESSES)
        self.assertIn("DJINN_COORDINATOR=" + _ADDRESSES, manifests.notes(SEVERAL))

    def test_certificates_have_the_names_of_the_pods(self):
        objects = render(**SEVERAL, tls={"mode": "certManager"})
        dns = manifests.named(objects, "Certificate", COORDINATOR)["spec"]["dnsNames"]
        self.assertIn("*." + _HOST, dns)
        objects = render(tls={"mode": "certManager"})
        dns = manifests.named(objects, "Certificate", COORDINATOR)["spec"]["dnsNames"]
        self.assertNotIn("*." + _HOST, dns)

    def test_one_of_several_coordinators_may_be_away(self):
        budget = manifests.named(render(**SEVERAL), "PodDisruptionBudget", COORDINATOR)["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)
        self.assertNotIn("minAvailable", budget)
        self.assertEqual(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow")

    def test_several_spread_over_nodes(self):
        pod = self.pod(render(**SEVERAL), COORDINATOR)
        self.assertEqual(pod["topologySpreadConstraints"][0]["topologyKey"],
                         "kubernetes.io/hostname")
        given = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
        pod = self.pod(render(**several(topologySpreadConstraints=given)), COORDINATOR)
        self.assertEqual(pod["topologySpreadConstraints"], given)
        self.assertNotIn("topologySpreadConstraints", self.pod(render(), COORDINATOR))

    def test_policies_let_coordinators_reach_etcd_and_dns_alone(self):
        egress = manifests.named(render(**SEVERAL), "NetworkPolicy", COORDINATOR)["spec"]["egress"]
        self.assertEqual(egress[0], {
            "ports": [{"port": 2379, "protocol": "TCP"}, {"port": 2479, "protocol": "TCP"}],
            "to": [{"podSelector": {"matchLabels": {"app": "etcd"}}}]})
        self.assertEqual([port["port"] for port in egress[1]["ports"]], [53, 53])
        self.assertEqual(len(egress), 2)

    def test_policies_need_to_know_etcd(self):
        values = several()
        values["networkPolicy"] = {}
        self.refuses("networkPolicy.etcd", **values)
        values["networkPolicy"] = {"enabled": False}
        render(**values)

    def test_encryption_and_tenants_reach_each_of_them(self):
        objects = render(**SEVERAL, tls=SECRETS, tenants={"red": {}})
        for one in self.files(objects).values():
            self.assertEqual(one["tls"]["client_ca_file"], "/etc/djinn/tls/ca.crt")
            self.assertIn("red", [tenant["name"] for tenant in one["tenants"]])

    def test_scaler_is_found_by_the_name_of_all(self):
        objects = render(**SEVERAL, workerGroups={"cpu": {"autoscaling": {"enabled": True}}})
        metadata = manifests.named(objects, "ScaledObject", WORKER)["spec"]["triggers"][0][
            "metadata"]
        self.assertEqual(metadata["scalerAddress"], INTERNAL + ".lab.svc:7071")


if __name__ == "__main__":
    unittest.main()

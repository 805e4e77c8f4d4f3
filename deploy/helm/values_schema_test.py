"""The schema of the values is current, complete and strict."""

import json
import os
import unittest

from deploy.helm import values_schema
from deploy.testing.tools import ROOT, yaml
import jsonschema

with open(os.path.join(ROOT, "deploy/helm/djinn/values.yaml"), encoding="utf-8") as _file:
    VALUES = yaml.safe_load(_file)
# Below these stand maps of Kubernetes, or maps by name.
_OPEN = ("affinity", "issuerRef", "annotations", "labels", "podAnnotations", "podLabels",
         "nodeSelector", "requests", "limits", "commonLabels", "config", "tenants", "cohorts",
         "operators", "workerGroups", "global")


def keys(schema, path=""):
    """The paths of the schema's keys, without those below _OPEN."""
    found = set()
    for name, one in schema.get("properties", {}).items():
        found.add(path + name)
        if name not in _OPEN:
            found |= keys(one, f"{path}{name}.")
    return found


def keys_of_values(values, path=""):
    found = set()
    for name, one in values.items():
        found.add(path + name)
        if isinstance(one, dict) and name not in _OPEN:
            found |= keys_of_values(one, f"{path}{name}.")
    return found


def leaves(schema, path=""):
    """The paths of configuration keys, as docs/reference writes them."""
    found = set()
    for name, one in schema.get("properties", {}).items():
        if one.get("type") == "array" and "properties" in one["items"]:
            found |= leaves(one["items"], f"{path}{name}[].")
        elif "nominalQuota" in one.get("properties", {}):
            found.add(path + name)
        elif "properties" in one:
            found |= leaves(one, f"{path}{name}.")
        else:
            found.add(path + name)
    return found


class ValuesSchemaTest(unittest.TestCase):

    def setUp(self):
        self.schema = values_schema.schema()

    def refused(self, values):
        try:
            jsonschema.Draft7Validator(self.schema).validate(values)
            return ""
        except jsonschema.ValidationError as error:
            return str(error)

    def test_committed_schema_is_current(self):
        with open(values_schema.SCHEMA, encoding="utf-8") as file:
            self.assertEqual(file.read(), values_schema.text(), "run ./djinn reference")

    def test_schema_is_one(self):
        jsonschema.Draft7Validator.check_schema(self.schema)

    def test_schema_has_the_keys_of_values_and_no_others(self):
        self.assertEqual(keys(self.schema) - {"global"}, keys_of_values(VALUES))

    def test_defaults_are_valid(self):
        self.assertEqual(self.refused(VALUES), "")

    def test_schema_has_every_key_of_the_configuration(self):
        properties = self.schema["properties"]
        of = {"coordinator": leaves(properties["coordinator"]["properties"]["config"]),
              "worker": leaves(properties["worker"]["properties"]["config"])}
        for role, known in values_schema.reference().items():
            expected = {key for key, _, _ in known if not values_schema.is_set(role, key)}
            self.assertEqual(of[role], expected)

    def test_tenants_cohorts_and_operators_have_every_key_of_theirs(self):
        for name, left_out in (("tenants", {"name", "token_file"}), ("cohorts", {"name"}),
                               ("operators", {"name", "token_file"})):
            one = self.schema["properties"][name]["additionalProperties"]
            expected = {key.split("[].", 1)[1]
                        for key, _, _ in values_schema.reference()["coordinator"]
                        if key.startswith(name + "[].")} - left_out
            self.assertEqual(leaves(one), expected)

    def test_keys_that_the_chart_sets_exist(self):
        for role, names in values_schema.SET.items():
            known = [key for key, _, _ in values_schema.reference()[role]]
            for name in names:
                self.assertTrue(any(key == name or key.startswith((name + ".", name + "["))
                                    for key in known), f"{role}: {name}")

    def test_refuses_unknown_keys_at_every_depth(self):
        for values in ({"x": 1}, {"coordinator": {"x": 1}}, {"worker": {"drain": {"x": 1}}},
                       {"workerGroups": {"a": {"x": 1}}}, {"tenants": {"a": {"limits": {"x": 1}}}},
                       {"worker": {"config": {"device": {"x": 1}}}}):
            self.assertIn("'x' was unexpected", self.refused(values))

    def test_an_operator_has_a_name_of_its_own_and_a_role_that_exists(self):
        for role in ("viewer", "operator", "admin"):
            self.assertEqual(self.refused({"operators": {"olga": {"role": role}}}), "")
        self.assertIn("'role' is a required property", self.refused({"operators": {"olga": {}}}))
        self.assertIn("'root' is not one of", self.refused({"operators": {"olga": {"role": "root"}}}))
        self.assertIn("admin", self.refused({"operators": {"admin": {"role": "admin"}}}))
        self.assertIn("Olga", self.refused({"operators": {"Olga": {"role": "viewer"}}}))
        self.assertIn("None is not of type", self.refused({"operators": {"olga": None}}))

    def test_groups_and_defaults_have_one_schema(self):
        group = dict(self.schema["properties"]["workerGroups"]["additionalProperties"])
        group["type"] = "object"
        self.assertEqual(json.dumps(group), json.dumps(self.schema["properties"]["worker"]))


if __name__ == "__main__":
    unittest.main()

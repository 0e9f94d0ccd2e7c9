#!/usr/bin/env python3
"""Writes what KubeRay's definition of a RayService says about the fields that deploy/kuberay uses, and nothing of the others.

    python tests/deploy/kuberay/record.py rayservices.yaml

The argument is `ray-operator/config/crd/bases/ray.io_rayservices.yaml` of KubeRay 1.7.0, 1 MB with the pods in it. Pods are left
out: they are compared with Kubernetes' own schemas. Fields that the manifests do not use are refused by what is written here, so a
manifest with a new one needs a new recording.
"""

import json
import pathlib
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
MANIFEST = HERE.parents[2] / "deploy" / "kuberay" / "ray-service.yaml"
WRITTEN = HERE / "rayservices.schema.json"
VERSION = "v1"
# Compared elsewhere.
POD = "template"
KEPT = ("type", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "x-kubernetes-int-or-string")


def trimmed(schema, used):
    """The schema of a value, for the fields that `used` has. Raises KeyError if it has none of that name."""
    kept = {key: schema[key] for key in KEPT if key in schema}
    if isinstance(used, dict):
        if "properties" not in schema:
            # Names are free.
            return kept | {"additionalProperties": trimmed(schema["additionalProperties"], None)}
        of = schema["properties"]
        fields = {key: {"type": "object"} if key == POD else trimmed(of[key], value) for key, value in used.items()}
        return kept | {"properties": fields, "additionalProperties": False}
    if isinstance(used, list):
        [item] = used
        return kept | {"items": trimmed(schema["items"], item)}
    return kept


def main():
    definition = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    [of_version] = [version for version in definition["spec"]["versions"] if version["name"] == VERSION]
    manifest = yaml.safe_load(MANIFEST.read_text())
    spec = trimmed(of_version["schema"]["openAPIV3Schema"]["properties"]["spec"], manifest["spec"])
    named = {"apiVersion": {"const": f"{definition['spec']['group']}/{VERSION}"}, "kind": {"const": definition["spec"]["names"]["kind"]}}
    whole = {"type": "object", "required": [*named, "metadata", "spec"], "additionalProperties": False}
    # Kubernetes' own schemas say what metadata is.
    whole["properties"] = named | {"metadata": {"type": "object"}, "spec": spec}
    WRITTEN.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

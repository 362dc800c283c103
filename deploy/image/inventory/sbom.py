"""Writes bills of materials in CycloneDX 1.5, the same ones for the same parts."""

import hashlib
import json
import os
import uuid
from datetime import datetime, timezone

NAMESPACE = uuid.UUID("5f0c5a0e-6b0e-5d0c-9a53-0f2c1f6d7f6b")


def write(path, main, programs, parts, excluded, edges):
    """`excluded` are parts that take part in the build only; `edges` says by purl who needs whom."""
    root = render(main, "application")
    root["components"] = [program(file) for file in programs]
    components = [render(one, "library") for one in parts] + [render(one, "library", "excluded") for one in excluded]
    known = {main.purl} | {one["bom-ref"] for one in components}
    dependencies = {ref: [to for to in needed if to in known] for ref, needed in edges.items() if ref in known}
    # What no other part is known to need is needed by the program.
    reached = {to for needed in dependencies.values() for to in needed}
    loose = known - reached - {main.purl}
    dependencies[main.purl] = sorted({*dependencies.get(main.purl, []), *loose})
    save(path, root, components, dependencies)


def join(path, name, parts):
    """Writes one bill from several others, whose main components become parts of it."""
    bills = [json.loads(part.read_text("utf-8")) for part in parts]
    mains = [bill["metadata"]["component"] for bill in bills]
    version = mains[0]["version"]
    purl = f"pkg:oci/{name}@{version}"
    root = {"bom-ref": purl, "type": "container", "name": name, "version": version}
    components, dependencies = {}, {}
    for bill, main in zip(bills, mains):
        for one in [main, *bill["components"]]:
            components[one["bom-ref"]] = one
        dependencies.update({one["ref"]: one["dependsOn"] for one in bill["dependencies"]})
    dependencies[purl] = [main["bom-ref"] for main in mains]
    save(path, root, list(components.values()), dependencies)


def render(one, kind, scope="required"):
    component = {"bom-ref": one.purl, "type": kind, "name": one.name, "version": one.version, "purl": one.purl}
    component["scope"] = scope
    if one.licence:
        component["licenses"] = [{"expression": one.licence}]
    if one.sha256:
        component["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
    if one.properties:
        component["properties"] = [{"name": name, "value": value} for name, value in sorted(one.properties.items())]
    return component


def program(file):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "bom-ref": f"file:/usr/local/bin/{file.name}", "type": "file", "name": f"/usr/local/bin/{file.name}",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def save(path, root, components, dependencies):
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": root,
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needed} for ref, needed in sorted(dependencies.items())],
    }
    # The same content has the same number.
    bill["serialNumber"] = uuid.uuid5(NAMESPACE, json.dumps(bill, sort_keys=True)).urn
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")

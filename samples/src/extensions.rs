//! States of extension resources, and the Secrets that they refer to.

use serde_json::{Value, json};

use super::random::Random;
use super::secrets;

const DOMAIN: &str = "pots.garden.example.com";

/// The small ones that every Shoot has.
pub fn basic(random: &mut Random, name: &str) -> Vec<Value> {
    let network = json!({ "vpcID": format!("vpc-{}", random.hex(17)), "ipv6": false });
    let plane = json!({ "volumeBindingMode": "WaitForFirstConsumer", "loadBalancer": random.uuid() });
    let unit = format!("#!/bin/bash\nset -o errexit\n# {}\n", random.hex(40));
    vec![
        json!({ "kind": "ControlPlane", "name": name, "state": plane }),
        json!({ "kind": "ControlPlane", "name": format!("{name}-exposure"), "purpose": "exposure", "state": { "id": random.hex(8) } }),
        json!({ "kind": "Network", "name": name, "state": network }),
        json!({ "kind": "OperatingSystemConfig", "name": "pool-0000-original", "purpose": "reconcile", "state": { "files": [{ "path": "/var/lib/init.sh", "content": unit }] } }),
        json!({ "kind": "ContainerRuntime", "name": "gvisor-pool-0000", "state": { "version": "2026.1" } }),
        json!({ "kind": "DNSRecord", "name": format!("{name}-internal"), "state": dns_record(random) }),
        json!({ "kind": "DNSRecord", "name": format!("{name}-external"), "state": dns_record(random) }),
    ]
}

fn dns_record(random: &mut Random) -> Value {
    json!({ "zone": format!("Z{}", random.lower(20).to_uppercase()), "values": [random.ip()], "ttl": 120 })
}

/// The DNS service: all entries that the Shoot's users asked for, so hundreds to thousands.
pub fn dns(random: &mut Random, name: &str, bytes: usize) -> Value {
    let entries = fill(bytes, || dns_entry(random));
    json!({ "kind": "Extension", "name": format!("{name}-dns-service"), "purpose": "dns", "state": { "entries": entries } })
}

fn dns_entry(random: &mut Random) -> Value {
    let host = random.lower(8);
    json!({
        "name": format!("{host}-service-{}", random.suffix(5)), "dnsName": format!("{host}.apps.{DOMAIN}"), "ttl": 300,
        "targets": [random.ip()], "ownerId": random.uuid(), "provider": "default/aws-route53", "zone": "Z0423JKQ",
        "annotations": { "dns.gardener.cloud/class": "garden" }, "status": { "observedGeneration": 1, "state": "Ready" },
    })
}

/// The certificate service: certificates and keys that must not be requested again.
pub fn certificates(random: &mut Random, name: &str, bytes: usize) -> Value {
    let issued = fill(bytes, || {
        let data = [
            ("tls.crt", secrets::pem(random, "CERTIFICATE", 1600)),
            ("tls.key", secrets::pem(random, "EC PRIVATE KEY", 164)),
        ];
        json!({ "commonName": format!("{}.apps.{DOMAIN}", random.lower(8)), "serial": random.hex(36), "data": secrets::encode(&data) })
    });
    json!({ "kind": "Extension", "name": format!("{name}-cert-service"), "state": { "certificates": issued } })
}

/// The Infrastructure with terraform's state inside a JSON string; `filler` characters make up for what is missing.
pub fn infrastructure(random: &mut Random, name: &str, bytes: usize, filler: &str) -> Value {
    let subnets = fill(bytes, || subnet(random));
    let user_data = json!({ "type": "aws_launch_template", "attributes": { "user_data": filler } });
    let state = json!({
        "version": 4, "terraform_version": "1.5.7", "serial": 17, "lineage": "8d1ce7cc-64a5-4d3a-b0c2-0f8d7a2a1f3e",
        "outputs": { "vpc_id": { "type": "string", "value": "vpc-0aa1" } }, "resources": [user_data, subnets],
    });
    json!({ "kind": "Infrastructure", "name": name, "state": { "data": state.to_string(), "encoding": "none" } })
}

fn subnet(random: &mut Random) -> Value {
    json!({
        "mode": "managed", "type": "aws_subnet", "name": format!("nodes_{}", random.suffix(4)), "instances": [{
            "schema_version": 1, "attributes": {
                "arn": format!("arn:aws:ec2:eu-west-1:{}:subnet/subnet-{}", random.below(1 << 38), random.hex(17)),
                "cidr_block": format!("{}/24", random.ip()), "vpc_id": "vpc-0aa1", "map_public_ip_on_launch": false,
            },
        }],
    })
}

/// Secrets that extension states refer to, whole, with the state that names them.
pub fn resources(random: &mut Random, namespace: &str, bytes: usize) -> (Value, Vec<Value>) {
    let resources = fill(bytes, || {
        let name = format!("ref-cloud-credentials-{}", random.suffix(5));
        let data = [("accessKeyID", random.lower(20)), ("secretAccessKey", random.base64(40))];
        json!({
            "apiVersion": "v1", "kind": "Secret", "name": name,
            "data": {
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
                "type": "Opaque", "data": secrets::encode(&data),
            },
        })
    });
    let references: Vec<Value> = resources
        .iter()
        .map(|secret| {
            let target = json!({ "apiVersion": "v1", "kind": "Secret", "name": secret["name"] });
            json!({ "name": secret["name"], "resourceRef": target })
        })
        .collect();
    (json!({ "kind": "Extension", "name": "credentials", "state": {}, "resources": references }), resources)
}

/// An extension state that is one opaque text.
pub fn opaque(index: usize, text: String) -> Value {
    json!({ "kind": "Extension", "name": format!("opaque-{index:04}"), "state": { "data": text } })
}

/// As many values as fit into so many bytes of JSON.
fn fill(bytes: usize, mut make: impl FnMut() -> Value) -> Vec<Value> {
    let (mut values, mut size) = (Vec::new(), 0);
    loop {
        let value = make();
        size += value.to_string().len() + 1;
        if size > bytes {
            return values;
        }
        values.push(value);
    }
}

//! The machine state: which machines a Shoot has, so that the new control plane adopts them instead of making others.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::random::Random;
use super::{Error, MachineState, Result};

const MACHINES_PER_POOL: usize = 50;
/// So many machines tell how large one is.
const SAMPLE: usize = 100;

/// Machine state of about so many bytes as it stands in the object; at least one machine.
pub fn render(random: &mut Random, form: MachineState, namespace: &str, bytes: usize) -> Result<Value> {
    let sample = pools(&mut random.clone(), namespace, SAMPLE);
    let each = wrap(form, &sample)?.to_string().len() / SAMPLE;
    wrap(form, &pools(random, namespace, (bytes / each).max(1)))
}

/// Gzip: `{"state": <base64>}` as gardenlet stores it. Plain: the JSON itself.
fn wrap(form: MachineState, pools: &Value) -> Result<Value> {
    match form {
        MachineState::Plain => Ok(pools.clone()),
        MachineState::Gzip => Ok(json!({ "state": deflate(pools)? })),
    }
}

fn deflate(pools: &Value) -> Result<String> {
    // The header has no time in it, so equal machines make equal bytes.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(pools.to_string().as_bytes())?;
    Ok(STANDARD.encode(encoder.finish()?))
}

fn inflate(text: &str) -> Result<Value> {
    let mut json = String::new();
    GzDecoder::new(STANDARD.decode(text)?.as_slice()).read_to_string(&mut json)?;
    Ok(serde_json::from_str(&json)?)
}

/// Gives one machine another node and instance, as a replacement does. `state` is in either form; `index` counts over all pools.
///
/// # Errors
/// When `state` is no machine state or has fewer machines.
pub fn change_one(state: &mut Value, index: usize) -> Result<()> {
    let packed = state.get("state").and_then(Value::as_str).map(inflate).transpose()?;
    let Some(mut pools) = packed else { return change_in(state, index) };
    change_in(&mut pools, index)?;
    state["state"] = deflate(&pools)?.into();
    Ok(())
}

fn change_in(pools: &mut Value, index: usize) -> Result<()> {
    let pools = pools["machineDeployments"].as_object_mut().ok_or(Error::Missing("machineDeployments"))?;
    let machines = pools.values_mut().filter_map(|pool| pool["machines"].as_array_mut());
    let Some(machine) = machines.flatten().nth(index) else {
        return Err(Error::NoMachine(index));
    };
    let mut random = Random::new(index as u64 + 1);
    machine["metadata"]["labels"]["node"] = node(&mut random).into();
    machine["spec"]["providerID"] = provider_id(&mut random).into();
    Ok(())
}

fn pools(random: &mut Random, namespace: &str, machines: usize) -> Value {
    let mut pools = Map::new();
    for pool in 0..machines.div_ceil(MACHINES_PER_POOL) {
        let name = format!("{namespace}-pool-{pool:04}-z{}", pool % 3 + 1);
        let count = (machines - pool * MACHINES_PER_POOL).min(MACHINES_PER_POOL);
        pools.insert(name.clone(), deployment(random, namespace, &name, count));
    }
    json!({ "machineDeployments": pools })
}

fn deployment(random: &mut Random, namespace: &str, name: &str, count: usize) -> Value {
    let set = format!("{name}-{}", random.suffix(5));
    let hash = random.below(1 << 32).to_string();
    let class = format!("{name}-{}", random.hex(5));
    let mut machines: Vec<Value> =
        (0..count).map(|_| machine(random, namespace, &set, &class, &hash)).collect();
    // Gardener sorts by name for stable bytes.
    machines.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    json!({
        "replicas": count, "machines": machines,
        "machineSets": [machine_set(random, namespace, &set, name, &class, &hash, count)],
    })
}

fn machine(random: &mut Random, namespace: &str, set: &str, class: &str, hash: &str) -> Value {
    let mut machine = template(class);
    machine["metadata"] = json!({
        "name": format!("{set}-{}", random.suffix(5)), "namespace": namespace,
        "labels": { "machine-template-hash": hash, "name": set, "node": node(random) },
        "annotations": { "machinepriority.machine.sapcloud.io": "3" },
    });
    machine["spec"]["providerID"] = provider_id(random).into();
    machine["status"] = json!({ "currentStatus": {}, "lastOperation": {} });
    machine
}

#[rustfmt::skip]
fn machine_set(random: &mut Random, namespace: &str, set: &str, pool: &str, class: &str, hash: &str, count: usize) -> Value {
    let mut inner = template(class);
    inner["metadata"] = json!({ "labels": { "machine-template-hash": hash, "name": pool } });
    json!({
        "metadata": {
            "name": set, "namespace": namespace, "labels": { "machine-template-hash": hash, "name": pool },
            "annotations": { "deployment.kubernetes.io/revision": random.below(20).to_string() },
        },
        "spec": {
            "replicas": count, "minReadySeconds": 500, "selector": { "matchLabels": { "machine-template-hash": hash } },
            "machineClass": {}, "template": inner,
        },
        "status": {},
    })
}

fn template(class: &str) -> Value {
    json!({ "spec": {
        "class": { "kind": "MachineClass", "name": class },
        "nodeTemplate": { "metadata": {
            "annotations": { "worker.gardener.cloud/cluster-autoscaler": "enabled" },
            "labels": {
                "node.kubernetes.io/role": "node", "worker.gardener.cloud/cri-name": "containerd",
                "networking.gardener.cloud/node-local-dns-enabled": "true", "worker.gardener.cloud/system-components": "true",
            },
        }, "spec": {} },
        "creationTimeout": "20m0s", "drainTimeout": "2h0m0s", "maxEvictRetries": 10,
    } })
}

fn node(random: &mut Random) -> String {
    format!("ip-{}.eu-west-1.compute.internal", random.ip().replace('.', "-"))
}

fn provider_id(random: &mut Random) -> String {
    format!("aws:///eu-west-1{}/i-{}", ["a", "b", "c"][random.below(3)], random.hex(17))
}

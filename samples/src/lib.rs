//! Sample ShootStates, shaped as Gardener writes them, of any size. The same options give the same bytes.
//!
//! | part of `spec` | what is in it |
//! |---|---|
//! | `gardener[]`, type `secret` | CAs and bundles, keys, tokens with the secrets manager's labels; PEM in base64 |
//! | `gardener[]`, type `machine-state` | gzip of JSON in base64 (or in plain JSON in the state of a Worker) |
//! | `extensions[]` | DNS entries by the thousand, certificates, terraform's state, and small states of all other kinds |
//! | `resources[]` | Secrets that extension states refer to |
//!
//! Nothing here is a real key: private keys are random characters of the right length.

mod extensions;
mod machines;
mod random;
mod secrets;

use serde_json::{Value, json};

pub use random::Random;

/// Why a sample cannot be generated or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The size is outside [`SIZES`].
    #[error("a size of {0} bytes is not between {min} and {max} bytes", min = SIZES.start(), max = SIZES.end())]
    Size(usize),
    /// A part of the object that every generated ShootState has is missing.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// The machine state has fewer machines.
    #[error("there is no machine {0} in the machine state")]
    NoMachine(usize),
    /// The machine state is not base64.
    #[error("the machine state is not base64")]
    Base64(#[from] base64::DecodeError),
    /// The machine state cannot be compressed or decompressed.
    #[error("the machine state is not gzip")]
    Gzip(#[from] std::io::Error),
    /// Some JSON cannot be read or written.
    #[error("the machine state is not JSON")]
    Json(#[from] serde_json::Error),
}

type Result<T, E = Error> = std::result::Result<T, E>;

/// The smallest and the largest object that can be asked for, in bytes.
pub const SIZES: std::ops::RangeInclusive<usize> = 10 << 10..=256 << 20;
/// Length of one opaque state of the payloads that are not realistic.
const OPAQUE: usize = 64 << 10;
/// What is not random in the compressible payload.
const SENTENCE: &str = "the quick brown fox jumps over the lazy dog; ";

/// What the object is called, how large it is and what it consists of.
#[derive(Clone, Debug)]
pub struct Options {
    /// `metadata.name`, the name of the Shoot.
    pub name: String,
    /// `metadata.namespace`, the namespace of its project.
    pub namespace: String,
    /// Length of the object as compact JSON, hit within one percent; one of [`SIZES`].
    pub bytes: usize,
    /// The same seed makes the same object.
    pub rng_seed: u64,
    /// How the machines are written down.
    pub machine_state: MachineState,
    /// What most of it consists of.
    pub payload: Payload,
}

/// How the machines are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// As gardenlet does: an entry of type `machine-state`, gzip in base64, where every byte after a change differs.
    Gzip,
    /// As JSON in the state of the Worker.
    Plain,
}

/// What most of the object consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// What Gardener stores.
    Realistic,
    /// Repeated text.
    Compressible,
    /// Base64 of random bytes, as of encrypted data: no more than a quarter can be saved.
    Incompressible,
}

impl Options {
    /// A realistic state with gzipped machines in the namespace `default`.
    pub fn new(name: impl Into<String>, bytes: usize, rng_seed: u64) -> Self {
        let (namespace, machine_state, payload) =
            ("default".to_owned(), MachineState::Gzip, Payload::Realistic);
        Self { name: name.into(), namespace, bytes, rng_seed, machine_state, payload }
    }
}

/// Generates a ShootState (`core.gardener.cloud/v1alpha1`).
///
/// # Errors
/// [`Error::Size`] when the size is not one of [`SIZES`].
pub fn generate(options: &Options) -> Result<Value> {
    if !SIZES.contains(&options.bytes) {
        return Err(Error::Size(options.bytes));
    }
    let mut random = Random::new(options.rng_seed);
    let mut object = match options.payload {
        Payload::Realistic => realistic(options, &mut random)?,
        Payload::Compressible | Payload::Incompressible => opaque(options, &mut random)?,
    };
    let name = &options.name;
    let settle = |object: &mut Value, filler: &str| -> Result<usize> {
        let states = object["spec"]["extensions"].as_array_mut().ok_or(Error::Missing("extensions"))?;
        let last = states.last_mut().ok_or(Error::Missing("extensions"))?;
        *last = extensions::infrastructure(&mut random.clone(), name, options.bytes / 20, filler);
        Ok(serde_json::to_vec(object)?.len())
    };
    let missing = options.bytes.saturating_sub(settle(&mut object, "")?);
    let filler = fill_text(options.payload, &mut random.clone(), missing);
    settle(&mut object, &filler)?;
    Ok(object)
}

/// Generates a ShootState as compact JSON.
///
/// # Errors
/// As of [`generate`].
pub fn generate_json(options: &Options) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&generate(options)?)?)
}

/// Gives one machine of a ShootState another node and instance, in either form of machine state; `index` counts from 0.
///
/// # Errors
/// [`Error::Missing`] or [`Error::NoMachine`] when the object has no machine state or fewer machines.
pub fn change_one_machine(object: &mut Value, index: usize) -> Result<()> {
    let spec = &mut object["spec"];
    let packed = |entry: &&mut Value| entry["type"] == "machine-state";
    if let Some(entry) = entries(spec, "gardener").find(packed) {
        return machines::change_one(&mut entry["data"], index);
    }
    let worker = entries(spec, "extensions").find(|state| state["kind"] == "Worker");
    machines::change_one(&mut worker.ok_or(Error::Missing("machine state"))?["state"], index)
}

fn entries<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    spec[list].as_array_mut().into_iter().flatten()
}

/// Everything but the Infrastructure, which comes last and takes up what is missing to the size.
fn realistic(options: &Options, random: &mut Random) -> Result<Value> {
    let Options { name, namespace, bytes, .. } = options;
    let secrets = secrets::render(random, (bytes / 10).min(160 << 10));
    let (machine_share, dns_share) = match options.machine_state {
        MachineState::Gzip => (bytes / 5, bytes * 2 / 5),
        MachineState::Plain => (bytes / 2, bytes / 8),
    };
    let mut states = extensions::basic(random, name);
    states.push(extensions::dns(random, name, dns_share));
    states.push(extensions::certificates(random, name, bytes / 10));
    let (state, resources) = extensions::resources(random, namespace, (bytes / 20).min(64 << 10));
    states.push(state);
    let object = assemble(options, secrets, states, resources);
    add_machines(options, random, object, machine_share)
}

/// A little of everything, then opaque states.
fn opaque(options: &Options, random: &mut Random) -> Result<Value> {
    let small = Options { bytes: *SIZES.start(), ..options.clone() };
    let mut object = realistic(&small, random)?;
    let states = object["spec"]["extensions"].as_array_mut().ok_or(Error::Missing("extensions"))?;
    let last = states.pop();
    for index in 0..options.bytes * 9 / 10 / OPAQUE {
        states.push(extensions::opaque(index, fill_text(options.payload, random, OPAQUE)));
    }
    states.extend(last);
    Ok(object)
}

fn assemble(options: &Options, secrets: Vec<Value>, mut states: Vec<Value>, resources: Vec<Value>) -> Value {
    // The place of the Infrastructure.
    states.push(Value::Null);
    json!({
        "apiVersion": "core.gardener.cloud/v1alpha1", "kind": "ShootState",
        "metadata": {
            "name": options.name, "namespace": options.namespace,
            "annotations": { "gardener.cloud/timestamp": "2026-11-20T08:00:00Z" },
        },
        "spec": { "gardener": secrets, "extensions": states, "resources": resources },
    })
}

fn add_machines(options: &Options, random: &mut Random, mut object: Value, bytes: usize) -> Result<Value> {
    let technical = format!("shoot--{}--{}", options.namespace, options.name);
    let state = machines::render(random, options.machine_state, &technical, bytes)?;
    let (list, entry) = match options.machine_state {
        MachineState::Gzip => {
            ("gardener", json!({ "name": "machine-state", "type": "machine-state", "data": state }))
        }
        MachineState::Plain => {
            ("extensions", json!({ "kind": "Worker", "name": options.name, "state": state }))
        }
    };
    let entries = object["spec"][list].as_array_mut().ok_or(Error::Missing("list of secrets"))?;
    entries.insert(0, entry);
    Ok(object)
}

fn fill_text(payload: Payload, random: &mut Random, characters: usize) -> String {
    match payload {
        Payload::Realistic | Payload::Incompressible => random.base64(characters),
        Payload::Compressible => SENTENCE.chars().cycle().take(characters).collect(),
    }
}

#[cfg(test)]
mod tests;

//! Request bodies, made ahead: one object, of which only the name changes from request to request.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use repot_tests::states::{self, MachineState, Options, Payload, Random};
use serde_json::{Value, json};

use crate::servers::Side;

/// Digits of the number in a name.
const DIGITS: usize = 8;
const PLACEHOLDER: &str = "b-00000000";
/// Bytes of a small object beside its one secret.
const BESIDE: usize = 250;
const API_VERSION: &str = r#"{"apiVersion":""#;

/// The form of machines in all bodies.
static MACHINE_STATE: OnceLock<MachineState> = OnceLock::new();

/// Chooses the form of machines in all bodies; the first choice counts.
pub fn choose_machine_state(form: MachineState) {
    MACHINE_STATE.get_or_init(|| form);
}

/// An object without a name of its own.
#[derive(Clone)]
pub struct Body {
    json: Vec<u8>,
    name_at: usize,
}

impl Body {
    /// A generated ShootState of about so many bytes, for one side. Machines of a realistic one are in the form that
    /// [`choose_machine_state`] chose.
    pub fn generate(
        side: Side,
        namespace: &str,
        bytes: usize,
        payload: Payload,
        rng_seed: u64,
    ) -> Result<Self> {
        let mut object = match side {
            Side::ConfigMap => json!({
                "kind": "ConfigMap", "metadata": { "namespace": namespace }, "data": { "state": text(bytes, rng_seed) },
            }),
            _ if bytes < *states::SIZES.start() => small(namespace, bytes, rng_seed),
            _ => states::generate(&Options {
                namespace: namespace.to_owned(),
                payload,
                machine_state: *MACHINE_STATE.get().unwrap_or(&MachineState::Gzip),
                ..Options::new("pot", bytes, rng_seed)
            })?,
        };
        object["apiVersion"] = side.api_version().into();
        object["metadata"]["name"] = PLACEHOLDER.into();
        let text = object.to_string();
        ensure!(text.starts_with(API_VERSION), "apiVersion is not its first field");
        let mut found = text.match_indices(PLACEHOLDER).map(|(at, _)| at + PLACEHOLDER.len() - DIGITS);
        let name_at = found.next().context("the name is not in the object")?;
        ensure!(found.next().is_none(), "the name is in the object twice");
        Ok(Self { json: text.into_bytes(), name_at })
    }

    /// The object with the name of that number.
    pub fn with(&self, number: u64) -> Bytes {
        let mut json = self.json.clone();
        let digits = format!("{number:0DIGITS$}");
        json[self.name_at..self.name_at + DIGITS].copy_from_slice(&digits.as_bytes()[..DIGITS]);
        json.into()
    }

    /// The object with the name of that number, and of another group and version; both must be as long as what is there.
    pub fn with_api_version(&self, api_version: &str, number: u64) -> Bytes {
        let mut json = Vec::from(self.with(number));
        // Keys are sorted, so the outermost one is the first.
        let at = API_VERSION.len();
        json[at..at + api_version.len()].copy_from_slice(api_version.as_bytes());
        json.into()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.json.len()
    }
}

/// A ShootState of about so many bytes, less than Gardener ever writes.
fn small(namespace: &str, bytes: usize, rng_seed: u64) -> Value {
    let secret = json!({
        "name": "ca", "type": "secret", "labels": { "persist": "true" },
        "data": { "ca.key": text(bytes.saturating_sub(BESIDE), rng_seed) },
    });
    json!({
        "kind": "ShootState", "metadata": { "namespace": namespace }, "spec": { "gardener": [secret] },
    })
}

/// So many random characters.
fn text(bytes: usize, rng_seed: u64) -> String {
    Random::new(rng_seed).base64(bytes)
}

/// The name of that number.
pub fn name(number: u64) -> String {
    format!("b-{number:0DIGITS$}")
}

//! The states of extension resources, written before their restore is requested.

use kube::Client;
use repot_extension::RawJson;
use repot_plan::migration::observed::ExtensionOperation;

use crate::{
    migration::{
        error::{Error, Result},
        seed::extensions::{CarriedState, Seen, request, write_state},
    },
    shootstate::{State, machines::MachineState},
};

/// Writes the states of resources that have none, and requests the restore of the others. A resource of which both is due is restored
/// in the next pass.
///
/// # Errors
/// [`Error`]. The next pass looks again.
pub async fn restore<'a>(
    seed: &Client,
    namespace: &str,
    seen: impl Iterator<Item = &'a Seen> + Clone,
    state: &State,
    migration: &str,
) -> Result<()> {
    let mut ready = Vec::new();
    for one in seen.filter(|one| one.requested.is_none()) {
        match carried(state, one)?.filter(|_| !one.has_state) {
            Some(carried) => write_state(seed, namespace, one, &carried).await?,
            None => ready.push(one),
        }
    }
    request(seed, namespace, ready.into_iter(), ExtensionOperation::Restore, migration).await
}

/// The state of a resource in the ShootState; `None` where it has none. That of a Worker is the machines.
fn carried(state: &State, one: &Seen) -> Result<Option<CarriedState>> {
    if one.kind == "Worker" {
        return machines(state);
    }
    let is_it = |name: Option<&str>, purpose: Option<&str>| {
        name == Some(one.name.as_str()) && purpose == one.purpose.as_deref()
    };
    let mut entries = state.extensions.iter().filter(|entry| entry.kind == one.kind);
    let entry = entries.find(|entry| is_it(entry.name.as_deref(), entry.purpose.as_deref()));
    let entry = entry.filter(|entry| entry.state.is_some());
    Ok(entry.map(|entry| CarriedState { state: entry.state.clone(), resources: entry.resources.clone() }))
}

fn machines(state: &State) -> Result<Option<CarriedState>> {
    let Some(entry) = &state.machines else { return Ok(None) };
    let machines = MachineState::read(entry)?;
    let form = |source| Error::Form { what: "the state of machines".to_owned(), source };
    let state = RawJson::encode(&machines).map_err(form)?;
    Ok(Some(CarriedState { state: Some(state), resources: Vec::new() }))
}

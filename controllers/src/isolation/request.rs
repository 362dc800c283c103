//! What a ZoneIsolation and its Shoot ask for. Pure.

use std::time::Duration;

use kube::ResourceExt;
use repot_api::conditions::Reason;
use repot_apimachinery::{duration, time::Time};
use repot_plan::isolation::observed::{IsolationRequest, ShootLife};

use super::{
    api::ZoneIsolation,
    names::{BY_ANNOTATION, FINALIZER},
};
use crate::migration::api::Shoot;

/// From when on a step is shown as failed where nothing else is said.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// How long machines are drained where nothing else is said.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3_600);

/// What is asked for; `shoot` is `None` where there is none of that name.
#[must_use]
pub fn request(isolation: &ZoneIsolation, shoot: Option<&Shoot>) -> IsolationRequest {
    let spec = &isolation.spec;
    let time = |text: &Option<String>, default| text.as_deref().and_then(duration::parse).unwrap_or(default);
    IsolationRequest {
        uid: isolation.uid().unwrap_or_default(),
        zone: spec.zone.clone(),
        expires: spec.expires_at.as_deref().and_then(Time::parse),
        is_deleting: isolation.metadata.deletion_timestamp.is_some(),
        by_annotation: isolation.annotations().contains_key(BY_ANNOTATION),
        finalizer: isolation.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        shoot: shoot_life(isolation, shoot),
        continued: isolation.continued_by().map(|name| {
            Reason::new("Continued", format!("ZoneIsolation {name} goes on from where this one stands"))
        }),
        step_timeout: time(&spec.step_timeout, STEP_TIMEOUT),
        drain_timeout: time(&spec.drain_timeout, DRAIN_TIMEOUT),
    }
}

/// Another Shoot of the same name has nothing to do with this isolation.
fn shoot_life(isolation: &ZoneIsolation, shoot: Option<&Shoot>) -> ShootLife {
    match shoot.filter(|shoot| isolation.is_of(*shoot)) {
        None => ShootLife::Gone,
        Some(shoot) if shoot.metadata.deletion_timestamp.is_some() => ShootLife::Ending,
        Some(_) => ShootLife::Kept,
    }
}

//! Versions stay while a zone is isolated: another one may roll the nodes of the zones that are left. It is what maintenance does by itself.

use std::collections::BTreeMap;

use repot_api::gardener::shoot::Shoot;
use repot_apimachinery::value::text_at;
use serde_json::Value;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    who::{Principal, who},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(zone) = Shoot(&change.new).isolated_zone() else { return Vec::new() };
    let is_controller = matches!(who(&change.user, &facts.settings), Principal::Controller);
    let (before, after) = (versions(&change.old), versions(&change.new));
    // A pool that is new has no nodes yet.
    let changed = after.iter().filter_map(|(field, version)| {
        let former = before.get(field)?;
        former.differs(version, is_controller).then_some((field, former, version))
    });
    let refuse = |(field, former, version): (&String, &Version, &Version)| {
        let (former, version) = (former.text(), version.text());
        let reason = format!(
            "{former:?} would be {version:?}, and there is no maintenance while zone {zone:?} is isolated"
        );
        let advice = "change it after the failback; maintenance tries again in its next time window";
        Finding::refuse(field, reason, advice)
    };
    changed.map(refuse).collect()
}

/// What nodes are made of.
enum Version {
    /// A version of Kubernetes. Gardener makes new nodes for another minor version, and none for another patch.
    Kubernetes(String),
    /// Name and version of a machine image.
    Image(String),
}

impl Version {
    fn text(&self) -> &str {
        match self {
            Self::Kubernetes(text) | Self::Image(text) => text,
        }
    }

    /// A person may have to close a hole with a patch version, which maintenance does not do while a zone is isolated.
    fn differs(&self, other: &Self, by_controller: bool) -> bool {
        match (self, other) {
            (Self::Kubernetes(one), Self::Kubernetes(other)) if !by_controller => minor(one) != minor(other),
            _ => self.text() != other.text(),
        }
    }
}

/// Major and minor version.
fn minor(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}

/// By their fields. A pool without a version of its own has that of the Shoot.
fn versions(shoot: &Value) -> BTreeMap<String, Version> {
    let text = |value: &Value, path: &str| text_at(value, path).unwrap_or_default().to_owned();
    let of_shoot = text(shoot, "/spec/kubernetes/version");
    let pools = shoot.pointer("/spec/provider/workers").and_then(Value::as_array);
    let mut all = BTreeMap::new();
    for pool in pools.into_iter().flatten() {
        let field = |end: &str| format!("spec.provider.workers[{}].{end}", text(pool, "/name"));
        let image = [text(pool, "/machine/image/name"), text(pool, "/machine/image/version")].join(" ");
        all.insert(field("machine.image"), Version::Image(image));
        let own = text(pool, "/kubernetes/version");
        let version = if own.is_empty() { of_shoot.clone() } else { own };
        all.insert(field("kubernetes.version"), Version::Kubernetes(version));
    }
    all.insert("spec.kubernetes.version".to_owned(), Version::Kubernetes(of_shoot));
    all
}

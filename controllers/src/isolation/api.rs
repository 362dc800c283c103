//! A ZoneIsolation of the garden, as controllers read and write it.

use std::borrow::Cow;

use kube::{
    ResourceExt,
    api::TypeMeta,
    core::{NamespaceResourceScope, ObjectMeta},
};
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_plan::{
    isolation::{IsolationSide, observed::SeedNamespace},
    named::Named,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::migration::api::ShootRef;

/// The kind, for messages and references.
pub const KIND: &str = "ZoneIsolation";

/// Field of the status with the name of the seed that has the control plane.
pub const SEED_NAME: &str = "seedName";

/// Field of the status with the namespace of the control plane.
pub const TECHNICAL_ID: &str = "technicalID";

/// Field of the status with the name of the ZoneIsolation that goes on from here.
pub const CONTINUED_BY: &str = "continuedBy";

/// The isolation of one zone of one Shoot. It is written as a whole, so fields that are unknown here are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneIsolation {
    /// API version and kind; objects of lists may come without them.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// What the user asks for.
    #[serde(default)]
    pub spec: IsolationSpec,
    /// What the controllers of both sides have recorded, by field.
    #[serde(default)]
    pub status: Map<String, Value>,
}

/// Which zone of which Shoot is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IsolationSpec {
    /// The Shoot, in the same namespace.
    pub shoot_ref: ShootRef,
    /// The provider's ID of the zone.
    #[serde(rename = "isolatedZoneID")]
    pub zone: String,
    /// When the zone is used again by itself, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How long machines are drained, as a duration such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// From when on a step is shown as failed, as a duration such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<String>,
    /// Fields that are unknown here.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl ZoneIsolation {
    /// The part of the status that belongs to a side; an object without fields where it has none yet.
    #[must_use]
    pub fn part(&self, side: IsolationSide) -> Value {
        self.status.get(side.name()).cloned().unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// Whether a side has ended, by its own part of the status.
    #[must_use]
    pub fn has_side_ended(&self, side: IsolationSide) -> bool {
        let phase = self.status.get(side.name()).and_then(|part| part.get("phase")?.as_str());
        matches!(phase, Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled"))
    }

    /// Whether both sides have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        IsolationSide::ALL.iter().all(|side| self.has_side_ended(*side))
    }

    /// Whether the zone is used again, or is going to be.
    #[must_use]
    pub fn is_failing_back(&self) -> bool {
        self.status.get("phase").and_then(Value::as_str) == Some("Failback")
    }

    /// Whether the zone is isolated, and nothing has to be done.
    #[must_use]
    pub fn lasts(&self) -> bool {
        let word = |field: &str| self.status.get(field).and_then(Value::as_str);
        word("phase") == Some("Failover") && word("status") == Some("Done")
    }

    /// Where the control plane of the Shoot is, as the garden has told.
    #[must_use]
    pub fn place(&self) -> Option<SeedNamespace> {
        let text = |field: &str| self.status.get(field).and_then(Value::as_str).map(str::to_owned);
        Some(SeedNamespace { seed: text(SEED_NAME)?, namespace: text(TECHNICAL_ID)? })
    }

    /// Name of the ZoneIsolation that goes on from here, if one does.
    #[must_use]
    pub fn continued_by(&self) -> Option<&str> {
        self.status.get(CONTINUED_BY).and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// Whether it is one of this Shoot.
    #[must_use]
    pub fn is_of(&self, shoot: &impl ResourceExt) -> bool {
        let meant = &self.spec.shoot_ref;
        meant.name == shoot.name_any() && (meant.uid.is_empty() || Some(&meant.uid) == shoot.uid().as_ref())
    }
}

impl kube::Resource for ZoneIsolation {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        MIGRATION_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V1ALPHA1.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "zoneisolations".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

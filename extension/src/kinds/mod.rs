//! The kinds of `extensions.gardener.cloud/v1alpha1` as Rust types.
//!
//! Fields are those of Gardener 1.150, and those of GEP-21, which Gardener does not have yet: SubnetIsolation, and the isolated zone of a
//! Worker. What providers define (`providerConfig`, `providerStatus`, `state`) and what belongs to
//! other APIs is [`RawJson`](crate::raw::RawJson). Fields that a type does not know are lost when it is written, so change objects by
//! patches.

mod backup;
mod cluster;
mod control_plane;
mod dns;
mod infrastructure;
mod kind;
mod node;
mod subnet_isolation;
mod worker;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::SecretReference;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    raw::RawJson,
    status::{Condition, LastError, LastOperation, NamedResourceReference},
};

pub use backup::*;
pub use cluster::{Cluster, ClusterSpec};
pub use control_plane::*;
pub use dns::*;
pub use infrastructure::*;
pub use node::*;
pub use subnet_isolation::*;
pub use worker::*;

/// Reference to a Secret by namespace and name.
pub type SecretRef = SecretReference;

/// Which cluster an extension object is for; objects without a class are for a Shoot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The object belongs to the garden cluster.
    Garden,
    /// The object belongs to the seed cluster.
    Seed,
    /// The object belongs to a Shoot, in whose namespace it is.
    #[default]
    Shoot,
}

/// What all extension kinds have in common in their status, borrowed from one object.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusView<'a> {
    /// Status that the provider defines.
    pub provider_status: Option<&'a RawJson>,
    /// Conditions that health checks write.
    pub conditions: &'a [Condition],
    /// The last error; none after a success.
    pub last_error: Option<&'a LastError>,
    /// What a controller did last.
    pub last_operation: Option<&'a LastOperation>,
    /// The generation that the last finished operation acted on.
    pub observed_generation: i64,
    /// What is needed to continue in another seed.
    pub state: Option<&'a RawJson>,
    /// Objects that the state refers to.
    pub resources: &'a [NamedResourceReference],
}

/// One of the kinds that follow the operation contract: all but Cluster.
pub trait ExtensionObject:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The finalizer that Gardener's own library uses for the kind. One that ends with a slash is completed by the type.
    const FINALIZER: &'static str;

    /// The finalizer of a controller for this type.
    #[must_use]
    fn finalizer_of(provider_type: &str) -> String {
        let of_type = Self::FINALIZER.ends_with('/');
        if of_type { format!("{}{provider_type}", Self::FINALIZER) } else { Self::FINALIZER.to_owned() }
    }

    /// The provider that the object is for, `spec.type`.
    fn provider_type(&self) -> &str;

    /// Which cluster the object is for.
    fn class(&self) -> Class;

    /// Configuration that the provider defines.
    fn provider_config(&self) -> Option<&RawJson>;

    /// The purpose by which ShootState tells objects of one name apart; only OperatingSystemConfigs have one.
    fn purpose(&self) -> Option<&str> {
        None
    }

    /// The common part of its status; empty where the object has no status.
    fn status(&self) -> StatusView<'_>;

    /// Whether `status` exists in the object: JSON patches below it need it.
    fn has_status(&self) -> bool;

    /// Drops what takes much memory and does not say which operation is due: states may have a MiB each.
    fn drop_large_fields(&mut self);

    /// The API of the kind in one namespace, or in all where `namespace` is `None`.
    fn api(client: Client, namespace: Option<&str>) -> Api<Self>;
}

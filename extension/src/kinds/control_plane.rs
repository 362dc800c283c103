//! ControlPlane and Extension: what providers add to a Shoot's control plane.

use super::{SecretRef, kind::extension_kind};
use crate::raw::RawJson;

extension_kind! {
    /// Controllers of the provider in a Shoot's control plane.
    ControlPlane (ControlPlaneSpec, ControlPlaneStatus, "controlplanes", "extensions.gardener.cloud/controlplane", NamespaceResourceScope)
    required {
        /// Region in which the Shoot is.
        region: String,
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
    }
    optional {
        /// `status.providerStatus` of the Shoot's Infrastructure.
        infrastructure_provider_status: RawJson,
    }
    lists {}
    status {}
    status_lists {}
}

extension_kind! {
    /// Anything else that is added to a Shoot.
    Extension (ExtensionSpec, ExtensionStatus, "extensions", "extensions.gardener.cloud/", NamespaceResourceScope)
    required {}
    optional {}
    lists {}
    status {}
    status_lists {}
}

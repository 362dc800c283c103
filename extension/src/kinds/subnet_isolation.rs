//! SubnetIsolation: the networks of a zone of a Shoot are cut off (GEP-21).

use super::{SecretRef, kind::extension_kind};
use crate::raw::RawJson;

extension_kind! {
    /// The networks of one zone of a Shoot are cut off as long as this exists. Gardener has no such kind yet; Repot ships its
    /// CustomResourceDefinition.
    SubnetIsolation (SubnetIsolationSpec, SubnetIsolationStatus, "subnetisolations", "extensions.gardener.cloud/subnetisolation", NamespaceResourceScope)
    required {
        /// The provider's ID of the zone, such as `euc1-az1`. A zone can have another code in each account.
        isolated_zone_id as "isolatedZoneID": String,
    }
    optional {
        /// Region in which the zone is.
        region: String,
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
        /// `status.providerStatus` of the Shoot's Infrastructure.
        infrastructure_provider_status: RawJson,
    }
    lists {}
    status {}
    status_lists {}
}

//! BackupBucket and BackupEntry: where snapshots of a Shoot's etcd are stored.

use super::{SecretRef, kind::extension_kind};
use crate::raw::RawJson;

extension_kind! {
    /// The bucket in which a seed stores snapshots.
    BackupBucket (BackupBucketSpec, BackupBucketStatus, "backupbuckets", "extensions.gardener.cloud/backupbucket", ClusterResourceScope)
    required {
        /// Region in which the bucket is.
        region: String,
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
    }
    optional {}
    lists {}
    status {
        /// Secret with credentials for this bucket alone.
        generated_secret_ref: SecretRef,
    }
    status_lists {}
}

extension_kind! {
    /// The part of a bucket that belongs to one Shoot.
    BackupEntry (BackupEntrySpec, BackupEntryStatus, "backupentries", "extensions.gardener.cloud/backupentry", ClusterResourceScope)
    required {
        /// Region in which the bucket is.
        region: String,
        /// Name of the bucket with the snapshots.
        bucket_name: String,
        /// Secret with the credentials for the bucket.
        secret_ref: SecretRef,
    }
    optional {
        /// `status.providerStatus` of the BackupBucket.
        backup_bucket_provider_status: RawJson,
    }
    lists {}
    status {}
    status_lists {}
}

//! DNSRecord: one name in the DNS.

use super::{SecretRef, kind::extension_kind};

extension_kind! {
    /// One name in the DNS and its values.
    DNSRecord (DNSRecordSpec, DNSRecordStatus, "dnsrecords", "extensions.gardener.cloud/dnsrecord", NamespaceResourceScope)
    required {
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
        /// Fully qualified name, which does not change.
        name: String,
        /// `A`, `AAAA`, `CNAME` or `TXT`, which does not change.
        record_type: String,
        /// Addresses, texts or the target of a CNAME.
        values: Vec<String>,
    }
    optional {
        /// Region of the endpoint of the provider's API.
        region: String,
        /// Zone of the name; the controller finds it where it is `None`.
        zone: String,
        /// Lifetime in caches in seconds; 120 where it is `None`.
        ttl: i64,
    }
    lists {}
    status {
        /// Zone in which the controller found the name.
        zone: String,
    }
    status_lists {}
}

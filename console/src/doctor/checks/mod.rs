//! The checks, one file for each subject. Each has a pure part, which judges objects, and a part that reads them.

mod buckets;
mod certificates;
mod connection;
mod controllers;
mod etcds;
mod kinds;
mod migrations;
mod owners;
mod pods;
mod registrations;
mod rights;
mod seeds;
mod service_accounts;
mod shootstates;
mod webhooks;

pub(super) use certificates::blocks as certificate_blocks;
#[cfg(test)]
pub(super) use certificates::tests::authority;
pub(super) use controllers::LEASE;
use futures::FutureExt as _;
pub(super) use registrations::{API_SERVICE, is_ours as is_our_api_service};
pub(super) use shootstates::EVENT;
pub(super) use webhooks::{MUTATING, VALIDATING, is_ours as is_our_webhook};

use super::run::Check;

/// All checks, in the order in which their findings are shown.
pub(super) static ALL: &[Check] = &[
    Check { name: connection::NAME, run: |survey| connection::run(survey).boxed() },
    Check { name: kinds::NAME, run: |survey| kinds::run(survey).boxed() },
    Check { name: registrations::NAME, run: |survey| registrations::run(survey).boxed() },
    Check { name: webhooks::NAME, run: |survey| webhooks::run(survey).boxed() },
    Check { name: certificates::NAME, run: |survey| certificates::run(survey).boxed() },
    Check { name: pods::NAME, run: |survey| pods::run(survey).boxed() },
    Check { name: controllers::NAME, run: |survey| controllers::run(survey).boxed() },
    Check { name: rights::NAME, run: |survey| rights::run(survey).boxed() },
    Check { name: service_accounts::NAME, run: |survey| service_accounts::run(survey).boxed() },
    Check { name: seeds::NAME, run: |survey| seeds::run(survey).boxed() },
    Check { name: shootstates::NAME, run: |survey| shootstates::run(survey).boxed() },
    Check { name: migrations::NAME, run: |survey| migrations::run(survey).boxed() },
    Check { name: etcds::NAME, run: |survey| etcds::run(survey).boxed() },
    Check { name: buckets::NAME, run: |survey| buckets::run(survey).boxed() },
    Check { name: owners::NAME, run: |survey| owners::run(survey).boxed() },
];

#[cfg(test)]
pub(super) mod tests {
    use std::{
        collections::{BTreeSet, HashSet},
        time::Duration,
    };

    use serde_json::json;

    use super::ALL;
    use crate::{doctor::survey::Survey, objects::Objects};

    /// A survey of a cluster that does not answer.
    pub(crate) fn survey() -> Survey {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = kube::Client::try_from(config).expect("a client");
        Survey {
            objects: Objects::new(client, Duration::from_secs(1)),
            server: "http://127.0.0.1:1".to_owned(),
            namespace: None,
            may_read_secrets: false,
            namespaces: BTreeSet::from(["repot-system".to_owned()]),
            served: BTreeSet::new(),
            unknown_groups: Vec::new(),
            pods: Ok(Vec::new()),
            version: json!({"gitVersion": "v1.33.1", "major": "1", "minor": "33"}),
            clock: None,
            latency: Duration::from_millis(3),
            cut: parking_lot::Mutex::default(),
        }
    }

    #[test]
    fn checks_have_names_of_their_own() {
        let names: HashSet<&str> = ALL.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}

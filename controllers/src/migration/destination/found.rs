//! What a pass of the destination finds in the namespace of the control plane.

use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::ResourceExt;
use repot_extension::kinds::DNSRecord;
use repot_plan::migration::{
    Step,
    observed::{MigrationMode, MigrationRequest},
};

use super::{asked, copies};
use crate::migration::{
    context::Context,
    error::Result,
    names::MADE_BY,
    overall::Ledger,
    seed::{etcd::Etcds, exposure, extensions, namespace, read, workloads::ControlPlane},
};

/// What is in the namespace of the control plane.
#[derive(Default)]
pub struct Found {
    /// Deployments of the control plane and their Pods.
    pub plane: ControlPlane,
    /// Etcds and their members.
    pub etcds: Etcds,
    /// By what other seeds reach the members.
    pub exposed: exposure::Exposed,
    /// DNSRecords of all purposes.
    pub records: Vec<DNSRecord>,
    /// Other extension resources, where they are asked for.
    pub extensions: Vec<extensions::Seen>,
    /// Jobs that copy snapshots.
    pub jobs: Vec<Job>,
}

/// The namespace, and what is in it. A rollback sees nothing in a namespace that somebody else has made: its workloads are not ours to
/// stop. The namespace is read last, so that what was read before it is in this one, or is gone and no longer written.
///
/// # Errors
/// [`Error::Read`](crate::migration::Error::Read).
pub async fn read(
    context: &Context,
    namespace: &str,
    request: &MigrationRequest,
    ledger: &Ledger,
) -> Result<(Option<Namespace>, Found)> {
    let seed = context.own_client();
    let asks = asked::extensions(ledger);
    let asks_for_exposed = request.mode == MigrationMode::Live || asks;
    let (plane, etcds, exposed, records, extensions, jobs) = futures::try_join!(
        ControlPlane::read(seed, namespace),
        Etcds::read(seed, namespace),
        exposure::Exposed::read_if(asks_for_exposed, seed, namespace, &context.exposer),
        read::list::<DNSRecord>(seed, namespace, ""),
        extensions::read_if(asks, seed, namespace, &request.uid),
        copies::jobs(seed, namespace),
    )?;
    let own_namespace = namespace::find(seed, namespace).await?;
    let is_foreign = own_namespace.as_ref().is_some_and(|found| is_foreign(found, &request.uid, ledger));
    let found = match is_foreign && ledger.phase.is_rollback() {
        true => Found::default(),
        false => Found { plane, etcds, exposed, records, extensions, jobs },
    };
    Ok((own_namespace, found))
}

/// Whether somebody else has made a namespace. One that was prepared and has lost its label is still ours: what runs there is stopped.
fn is_foreign(namespace: &Namespace, migration: &str, ledger: &Ledger) -> bool {
    match namespace.labels().get(MADE_BY) {
        Some(maker) => maker != migration,
        None => !ledger.is_settled(Step::DestinationPrepared),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Request;
    use kube::client::{Body, Client};
    use repot_plan::ledger::{Phase, Record, State};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        local_stores::LocalStores,
        metrics::Metrics,
        migration::{api::ControlPlaneMigration, context::Seed, request::request},
    };

    /// Answers of a seed that has a control plane in a namespace with these labels.
    fn answer(path: &str, labels: &Value) -> Value {
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "shoot--p--s"}});
        let items = match path.rsplit('/').next() {
            Some("shoot--p--s") => {
                let metadata = json!({"name": "shoot--p--s", "labels": labels});
                return json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            }
            Some("deployments") => vec![named("kube-apiserver")],
            Some("jobs") => vec![named("copy")],
            _ => Vec::new(),
        };
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "7"}, "items": items})
    }

    fn context(labels: &Value) -> Context {
        let labels = labels.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer(request.uri().path(), &labels).to_string();
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(answer.into_bytes()))) }
        });
        let client = Client::new(service, "default");
        let (exposer, image) = (exposure::Exposer::default(), String::new());
        let seed = Seed { client: client.clone(), name: "b".to_owned(), image, exposer };
        let metrics = Metrics::new().expect("metrics");
        Context::seed(seed, client, "test".to_owned(), LocalStores::default(), metrics)
    }

    #[tokio::test]
    async fn rollback_leaves_a_namespace_alone_that_somebody_else_has_made() {
        let migration = json!({
            "metadata": {"name": "m", "namespace": "n", "uid": "1-2"},
            "spec": {"shootRef": {"name": "s"}, "sourceSeed": "a", "destinationSeed": "b", "mode": "Live"},
        });
        let migration: ControlPlaneMigration = serde_json::from_value(migration).expect("a migration");
        let request = request(&migration, None);
        let workloads = async |phase, prepared: State, labels: Value| {
            let record = Record { state: prepared, ..Record::pending() };
            let steps = [(Step::DestinationPrepared, record)].into();
            let ledger = Ledger { phase, steps, ..Ledger::default() };
            let outcome = read(&context(&labels), "shoot--p--s", &request, &ledger).await;
            let (namespace, found) = outcome.expect("the seed answers");
            assert!(namespace.is_some());
            (found.plane.api().wanted.len(), found.jobs.len())
        };
        let (own, later) = (json!({MADE_BY: "1-2"}), json!({MADE_BY: "3-4"}));
        let (back, prepared, pending) = (Phase::RollingBack, State::Succeeded, State::Pending);
        assert_eq!(workloads(back, prepared, own).await, (1, 1));
        assert_eq!(workloads(Phase::Running, prepared, later.clone()).await, (1, 1));
        assert_eq!(workloads(back, prepared, later).await, (0, 0));
        // Nobody knows who has made it: what this migration has prepared is stopped.
        assert_eq!(workloads(back, pending, json!({})).await, (0, 0));
        assert_eq!(workloads(back, prepared, json!({})).await, (1, 1));
    }
}

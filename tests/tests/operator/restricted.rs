//! Namespaces in which kube-apiserver enforces the Pod Security Standard `restricted`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use repot_controllers::workflow::jobs::{Order, Task, render};
use repot_controllers::workflow::members::Reach;
use repot_etcd::backup::store_ref::{SecretRef, StoreRef};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, TestNamespace, etcd, spec};

async fn restricted(namespace: &str) -> Result<TestNamespace> {
    let place = TestNamespace::make(namespace).await?;
    let label = "pod-security.kubernetes.io/enforce=restricted";
    place.pods.world.garden.kubectl(["label", "namespace", namespace, label]).await?.text()?;
    Ok(place)
}

#[test]
fn members_and_the_job_that_copies_run_in_a_restricted_namespace() {
    run(async |_| {
        let place = restricted("operator-restricted").await?;
        // The standard is enforced: a Pod that says nothing is refused.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
            "spec": {"containers": [{"name": "a", "image": "shell"}]},
        });
        let refused = place.pods.apply(&[pod]).await.err().context("a Pod without a security context")?;
        ensure!(format!("{refused:#}").contains("restricted"), "{refused:#}");

        place.apply(spec(1)).await?;
        place.until_members(1, "main").await?;

        // Nobody answers at the store: that the Pod was made is enough.
        let store = |prefix: &str| {
            json!({
                "provider": "S3", "container": "b", "prefix": prefix, "endpointOverride": "http://127.0.0.1:9",
                "secretRef": {"name": "store"},
            })
        };
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"},
            "stringData": {"accessKeyID": "a", "secretAccessKey": "b", "region": "eu-west-1"},
        });
        let mut next = spec(1);
        next["backup"] = json!({"store": store("b"), "sourceStore": store("a")});
        place.pods.apply(&[secret, etcd("next", next)]).await?;
        until("the Pod of the copy", DEADLINE, async || {
            let args = ["get", "pods", "-l", "app.kubernetes.io/part-of=next", "-o", "name"];
            let pods = place.pods.kubectl(&args).await?;
            ensure!(pods.contains("next-copy-"), "{pods}; {}", place.pods.kubectl(&["get", "events"]).await?);
            Ok(())
        })
        .await
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn jobs_of_workflows_are_admitted_in_a_restricted_namespace_and_local_stores_are_not() {
    run(async |_| {
        let place = restricted("operator-restricted-jobs").await?;
        for task in [Task::Take, Task::Import, Task::Prove] {
            admit(&place, &job(task, "S3", false)).await.context(task.word())?;
        }
        let refused = admit(&place, &job(Task::Take, "Local", false)).await.err().context("a hostPath")?;
        ensure!(format!("{refused:#}").contains("hostPath"), "{refused:#}");
        let refused = admit(&place, &job(Task::Take, "S3", true)).await.err().context("root")?;
        ensure!(format!("{refused:#}").contains("runAsNonRoot"), "{refused:#}");
        Ok(())
    });
}

/// The Job of a workflow, as the controllers render it.
fn job(task: Task, provider: &str, run_as_root: bool) -> Value {
    let store = |prefix: &str| StoreRef {
        provider: provider.to_owned(),
        container: "/backups".to_owned(),
        prefix: prefix.to_owned(),
        endpoint: None,
        secret_ref: Some(SecretRef { name: "store".to_owned() }),
    };
    let reach = Reach {
        endpoints: vec!["https://main-0:2379".to_owned()],
        ca: Some(("ca".to_owned(), "ca.crt".to_owned())),
        client: Some("client".to_owned()),
    };
    render(&Order {
        workflow: &ObjectMeta { name: Some("b".to_owned()), ..ObjectMeta::default() },
        owner: OwnerReference::default(),
        task,
        backup: "b",
        attempt: 0,
        place: &store("a"),
        source: (task == Task::Import).then_some(&store("s")),
        reach,
        image: "repot",
        run_as_root,
        limit: Duration::from_secs(60),
    })
}

/// Asks kube-apiserver whether it would take the Pod of a Job.
async fn admit(place: &TestNamespace, job: &Value) -> Result<()> {
    let mut pod = job["spec"]["template"].clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = json!({"name": "asked", "namespace": place.pods.namespace});
    let garden = &place.pods.world.garden;
    let asked = garden.kubectl_tool();
    let args = ["create", "--dry-run=server", "-f", "-"];
    asked.run_with(args, pod.to_string().as_bytes()).await?.text().map(drop)
}

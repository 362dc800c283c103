//! What the audit log says, and what it never does.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Api, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use crate::shootstate::world::{World, collection, path, small};

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/apis*", "/openapi*"]
- level: RequestResponse
  resources: [{group: core.gardener.cloud, resources: [shootstates]}]
  verbs: [create, patch, get, watch, list]
  omitManagedFields: true
- level: Metadata
"#;

const SECRET: &str = "c2VjcmV0";

fn events(log: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(log)?;
    ensure!(!text.contains(SECRET) && !text.contains("hidden-in"), "payload is in the log: {text}");
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn find<'a>(events: &'a [Value], audit_id: &str, stage: &str) -> Result<&'a Value> {
    let found = events.iter().find(|event| event["auditID"] == audit_id && event["stage"] == stage);
    found.with_context(|| format!("no {stage} of {audit_id} in {events:#?}"))
}

#[test]
fn requests_are_recorded_by_the_policy_and_payload_never_is() {
    run(async |env| {
        let (policy, log) = (env.path().join("policy.yaml"), env.path().join("audit.log"));
        std::fs::write(&policy, POLICY)?;
        let flags = [("audit-policy-file", &policy), ("audit-log-path", &log)];
        let flags = flags.map(|(name, path)| format!("--{name}={}", path.display()));
        let mut world = World::garden_with(env, flags.to_vec()).await?;
        let request = |api: &Api, method: Method, path: &str, id: &str| {
            api.request(method, path).header("Audit-ID", id.to_owned())
        };
        let api = Api::new(&world.as_master()?)?;
        let mut object = small("audited", &json!({"key": "hidden-in-state"}));
        object["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": "hidden-in-annotation"});
        object["spec"]["misspelt"] = json!("hidden-in-unknown-field");
        send(request(&api, Method::POST, &collection("default"), "create").json(&object)).await?.ok()?;
        let patch = json!([{"op": "add", "path": "/spec/extensions/0/state", "value": "hidden-in-patch"}]);
        let sent = request(&api, Method::PATCH, &path("audited"), "patch");
        send(sent.header("Content-Type", "application/json-patch+json").body(patch.to_string()))
            .await?
            .ok()?;
        send(request(&api, Method::GET, &path("audited"), "get")).await?.ok()?;
        let watch = format!("{}?watch=1&timeoutSeconds=1", collection("default"));
        send(request(&api, Method::GET, &watch, "watch")).await?;
        let nobody = Api::new(&world.directly(repot_tests::access::Credential::Anonymous)?)?;
        let refused = send(request(&nobody, Method::DELETE, &path("audited"), "refused")).await?;
        ensure!(refused.status == 403, "{refused}");
        // What waits in the queue is written before the end.
        world.repot().stop().await?;

        let events = events(&log)?;
        ensure!(events.iter().all(|event| event["stage"] != "RequestReceived"), "{events:#?}");
        ensure!(events.iter().all(|event| event["requestURI"] != "/readyz"), "{events:#?}");
        let created = find(&events, "create", "ResponseComplete")?;
        ensure!(created["kind"] == "Event" && created["apiVersion"] == "audit.k8s.io/v1", "{created}");
        ensure!(created["level"] == "RequestResponse" && created["verb"] == "create", "{created}");
        ensure!(
            created["user"]["username"] == "admin" && created["sourceIPs"] == json!(["127.0.0.1"]),
            "{created}"
        );
        ensure!(
            created["objectRef"]["name"] == "audited" && created["responseStatus"]["code"] == 201,
            "{created}"
        );
        let (sent, answered) = (&created["requestObject"], &created["responseObject"]);
        ensure!(
            sent["spec"]["gardener"][0]["name"] == "ca" && sent["spec"]["gardener"][0]["data"] == "REDACTED",
            "{created}"
        );
        ensure!(answered["spec"]["extensions"][0]["state"] == "REDACTED", "{created}");
        ensure!(
            answered["metadata"]["uid"].is_string() && answered["metadata"]["managedFields"].is_null(),
            "{created}"
        );
        ensure!(created["annotations"]["authorization.k8s.io/decision"] == "allow", "{created}");
        let patched = find(&events, "patch", "ResponseComplete")?;
        ensure!(patched["requestObject"][0]["path"] == "/spec/extensions/0/state", "{patched}");
        ensure!(patched["requestObject"][0]["value"] == "REDACTED", "{patched}");
        find(&events, "get", "ResponseComplete")?;
        find(&events, "watch", "ResponseStarted")?;
        let watched = find(&events, "watch", "ResponseComplete")?;
        ensure!(watched["responseObject"].is_null(), "{watched}");
        let refused = find(&events, "refused", "ResponseComplete")?;
        ensure!(
            refused["level"] == "Metadata" && refused["responseStatus"]["reason"] == "Forbidden",
            "{refused}"
        );
        ensure!(refused["annotations"]["authorization.k8s.io/decision"] == "forbid", "{refused}");
        Ok(())
    });
}

//! Server-side apply and who owns what, as kubectl and plain HTTP meet them.

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::tool::Output;
use repot_tests::{TestEnv, run};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{GROUP, TWELVE_MIB, VERSION, World, large, path};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";

#[test]
fn kubectl_applies_on_the_server_in_repot_dev() {
    run(async |env| by_kubectl(env, &World::dev(env).await?).await);
}

#[test]
fn kubectl_applies_on_the_server_behind_a_real_kube_apiserver() {
    run(async |env| {
        let world = World::garden(env).await?;
        world.until_published().await?;
        by_kubectl(env, &world).await
    });
}

#[test]
fn applies_follow_the_rules_of_their_requests() {
    run(async |env| {
        let world = World::dev(env).await?;
        options(&world).await?;
        bodies(&world).await
    });
}

#[test]
fn an_apply_that_creates_needs_the_permission_to_create() {
    run(async |env| {
        let world = World::garden(env).await?;
        let rule = json!({"apiGroups": [GROUP], "resources": ["shootstates"], "verbs": ["get", "patch"]});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "patcher"}, "rules": [rule]});
        world.kubectl.run_with(["apply", "-f", "-"], role.to_string().as_bytes()).await?.text()?;
        let bind = ["create", "clusterrolebinding", "patcher", "--clusterrole=patcher", "--user=patricia"];
        world.kubectl.run(bind).await?.text()?;
        let object = config("secured", &json!({"gardener": [{"name": "a", "type": "t", "data": {}}]}));
        let apply = async || {
            let args = ["apply", "--server-side", "--as=patricia", "--validate=false", "-f", "-"];
            world.kubectl.run_with(args, object.to_string().as_bytes()).await
        };
        let said = apply().await?;
        ensure!(!said.succeeded() && said.stderr.contains("cannot create resource"), "{said:?}");
        world.create(&object).await?;
        apply().await?.text()?;
        Ok(())
    });
}

async fn by_kubectl(env: &TestEnv, world: &World) -> Result<()> {
    two_managers(world).await?;
    from_client_side(world).await?;
    dry_run_and_diff(world).await?;
    twelve_mebibytes(env, world).await
}

pub(super) fn config(name: &str, spec: &Value) -> Value {
    let (api_version, metadata) =
        (format!("{GROUP}/{VERSION}"), json!({"name": name, "namespace": "default"}));
    json!({"apiVersion": api_version, "kind": "ShootState", "metadata": metadata, "spec": spec})
}

pub(super) fn data(name: &str, value: &str) -> Value {
    json!({"name": name, "type": "t", "data": {"value": value}})
}

async fn kubectl_apply(world: &World, manager: &str, more: &[&str], object: &Value) -> Result<Output> {
    let manager = format!("--field-manager={manager}");
    let mut args = vec!["apply", "--server-side", &manager, "-f", "-"];
    args.extend(more);
    world.kubectl.run_with(args, object.to_string().as_bytes()).await
}

/// `manager` and `operation` of all entries, with what each owns.
pub(super) fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries.iter().map(|e| (text(&e["manager"]), text(&e["operation"]), e["fieldsV1"].clone())).collect()
}

async fn two_managers(world: &World) -> Result<()> {
    let object = |spec: &Value| config("two", spec);
    let first = object(&json!({"gardener": [data("a", "1"), data("b", "1")]}));
    let said = kubectl_apply(world, "one", &[], &first).await?.text()?;
    ensure!(said.contains("serverside-applied"), "{said}");

    // Another manager adds its own entry beside, and may not change what is not its own.
    let beside =
        object(&json!({"gardener": [data("c", "1")], "extensions": [{"kind": "Worker", "state": 1.50}]}));
    kubectl_apply(world, "two", &[], &beside).await?.text()?;
    let theirs = object(&json!({"gardener": [data("a", "2"), data("c", "1")]}));
    let refused = kubectl_apply(world, "two", &[], &theirs).await?;
    ensure!(
        !refused.succeeded()
            && refused.stderr.contains(r#"conflict with "one": .spec.gardener[name="a"].data"#),
        "{refused:?}"
    );
    let read = world.api.get(&path("two")).await?.ok()?;
    ensure!(read["spec"]["extensions"][0]["kind"] == "Worker", "a refused apply changed {read}");
    ensure!(read["metadata"]["generation"] == 2, "{}", read["metadata"]["generation"]);

    // By force it takes over, and what it says no more goes: nobody else owns it.
    kubectl_apply(world, "two", &["--force-conflicts"], &theirs).await?.text()?;
    let read = world.api.get(&path("two")).await?.ok()?;
    let expected = json!([data("a", "2"), data("b", "1"), data("c", "1")]);
    ensure!(read["spec"] == json!({"gardener": expected}), "{}", read["spec"]);
    let found = owners(&read);
    let managers: Vec<&str> = found.iter().map(|(manager, ..)| manager.as_str()).collect();
    ensure!(managers == ["one", "two"], "{found:?}");
    let key = r#"k:{"name":"a"}"#;
    ensure!(
        found[0].2["f:spec"]["f:gardener"][key] == json!({".": {}, "f:name": {}, "f:type": {}}),
        "{found:?}"
    );
    ensure!(found[1].2["f:spec"]["f:gardener"][key]["f:data"] == json!({}), "{found:?}");

    // The only owner of an entry says it no more: it goes. The other's stay.
    kubectl_apply(world, "one", &[], &object(&json!({"gardener": [{"name": "a", "type": "t"}]})))
        .await?
        .text()?;
    let read = world.api.get(&path("two")).await?.ok()?;
    ensure!(read["spec"]["gardener"] == json!([data("a", "2"), data("c", "1")]), "{}", read["spec"]);
    Ok(())
}

async fn from_client_side(world: &World) -> Result<()> {
    let object = |value: &str| config("moved", &json!({"gardener": [data("a", value)]}));
    let client_side = ["apply", "-f", "-"];
    world.kubectl.run_with(client_side, object("1").to_string().as_bytes()).await?.text()?;
    world.kubectl.run_with(client_side, object("2").to_string().as_bytes()).await?.text()?;
    let read = world.api.get(&path("moved")).await?.ok()?;
    ensure!(owners(&read)[0].0 == "kubectl-client-side-apply", "{:?}", owners(&read));

    kubectl_apply(world, "kubectl", &[], &object("3")).await?.text()?;
    let read = world.api.get(&path("moved")).await?.ok()?;
    ensure!(read["spec"]["gardener"] == json!([data("a", "3")]), "{}", read["spec"]);
    let found = owners(&read);
    // Entries are sorted by their times, to the second: which of kubectl's two comes first is no part of it.
    let applied =
        |(manager, operation, _): &(String, String, Value)| manager == "kubectl" && operation == "Apply";
    ensure!(found.iter().any(applied), "{found:?}");
    ensure!(found.iter().all(|(manager, ..)| manager != "kubectl-client-side-apply"), "{found:?}");
    let last = &read["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let last: Value = serde_json::from_str(last.as_str().context("an annotation")?)?;
    ensure!(last["spec"] == read["spec"], "{last}");

    // Back on the client, which compares with the annotation that was kept in step.
    world.kubectl.run_with(client_side, object("4").to_string().as_bytes()).await?.text()?;
    let read = world.api.get(&path("moved")).await?.ok()?;
    ensure!(read["spec"]["gardener"] == json!([data("a", "4")]), "{}", read["spec"]);
    Ok(())
}

async fn dry_run_and_diff(world: &World) -> Result<()> {
    let object = |value: &str| config("tried", &json!({"gardener": [data("a", value)]}));
    let said = kubectl_apply(world, "m", &["--dry-run=server"], &object("1")).await?.text()?;
    ensure!(said.contains("(server dry run)"), "{said}");
    ensure!(world.api.get(&path("tried")).await?.status == 404, "a dry run created something");
    kubectl_apply(world, "m", &[], &object("1")).await?.text()?;
    let before = world.api.get(&path("tried")).await?.ok()?;
    kubectl_apply(world, "m", &["--dry-run=server"], &object("2")).await?.text()?;
    ensure!(world.api.get(&path("tried")).await?.ok()? == before, "a dry run changed something");

    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let diff = ["diff", "--server-side", "--field-manager=m", "-f", "-"];
    let differs = world.kubectl.run_with(diff, object("2").to_string().as_bytes()).await?;
    ensure!(differs.code == 1 && text(&differs).contains("+      value: \"2\""), "{differs:?}");
    let same = world.kubectl.run_with(diff, object("1").to_string().as_bytes()).await?;
    ensure!(same.succeeded(), "{same:?}");
    let client_side = world.kubectl.run_with(["diff", "-f", "-"], object("2").to_string().as_bytes()).await?;
    ensure!(client_side.code == 1 && text(&client_side).contains("value"), "{client_side:?}");
    Ok(())
}

async fn twelve_mebibytes(env: &TestEnv, world: &World) -> Result<()> {
    let mut big = large("big", TWELVE_MIB);
    let file = env.path().join("applied.json");
    let apply = ["apply", "--server-side", "-f", &file.display().to_string()].map(str::to_owned);
    std::fs::write(&file, big.to_string())?;
    let said = world.kubectl.run(&apply).await?.text()?;
    ensure!(said.contains("serverside-applied"), "{said}");
    let created = world.api.get(&path("big")).await?.ok()?;
    ensure!(created["spec"] == big["spec"], "what was read is not what was applied");

    let entries = big["spec"]["gardener"].as_array_mut().context("entries")?;
    entries.remove(3);
    entries[0]["data"] = json!({"data": {"tls.key": "changed"}});
    std::fs::write(&file, big.to_string())?;
    world.kubectl.run(&apply).await?.text()?;
    let changed = world.api.get(&path("big")).await?.ok()?;
    ensure!(changed["spec"] == big["spec"], "what was read is not what was applied");

    // Again: nothing changes, not even the version.
    world.kubectl.run(&apply).await?.text()?;
    let again = world.api.get(&path("big")).await?.ok()?;
    ensure!(again["metadata"] == changed["metadata"], "{}", again["metadata"]);
    Ok(())
}

pub(super) async fn apply(
    world: &World,
    name: &str,
    query: &str,
    body: impl Into<reqwest::Body>,
) -> Result<Answer> {
    let request = world.api.request(Method::PATCH, &format!("{}?{query}", path(name)));
    send(request.header("Content-Type", APPLY).body(body)).await
}

async fn options(world: &World) -> Result<()> {
    let object = config("o", &json!({"gardener": [data("a", "1")]})).to_string();
    let refused = apply(world, "o", "", object.clone()).await?;
    ensure!(refused.status == 422, "{refused}");
    ensure!(refused.json()?["details"]["causes"][0]["field"] == "fieldManager", "{refused}");
    for (query, status) in [("fieldManager=m%01", 422), ("fieldManager=m&dryRun=Some", 422)] {
        let refused = apply(world, "o", query, object.clone()).await?;
        ensure!(refused.status == status, "{query}: {refused}");
    }
    let created = apply(world, "o", "fieldManager=m", object.clone()).await?;
    ensure!(created.status == 201 && created.json()?["metadata"]["generation"] == 1, "{created}");
    let updated = apply(world, "o", "fieldManager=m&force=true", object).await?;
    ensure!(updated.status == 200, "{updated}");
    let forced = world.api.patch(&format!("{}?force=true", path("o")), MERGE_PATCH, &json!({})).await?;
    ensure!(forced.status == 422, "{forced}");

    let conflict =
        apply(world, "o", "fieldManager=n", config("o", &json!({"gardener": [data("a", "2")]})).to_string());
    let conflict = conflict.await?;
    let cause = &conflict.json()?["details"]["causes"][0];
    ensure!(conflict.status == 409 && cause["reason"] == "FieldManagerConflict", "{conflict}");
    ensure!(cause["field"] == r#".spec.gardener[name="a"].data"#, "{cause}");
    Ok(())
}

async fn bodies(world: &World) -> Result<()> {
    let spec = json!({"gardener": [data("a", "1")]});
    let with = |pointer: &str, key: &str, value: Value| {
        let mut object = config("b", &spec);
        object.pointer_mut(pointer).expect("a place")[key] = value;
        object.to_string()
    };
    for (body, status, says) in [
        (with("/metadata", "managedFields", json!([])), 400, "metadata.managedFields must be nil"),
        (with("", "apiVersion", json!("core.gardener.cloud/v1beta1")), 400, "API version"),
        (with("", "kind", json!("Shoot")), 400, "kind"),
        (with("/metadata", "name", json!("c")), 400, "name"),
        (with("/metadata", "uid", json!("6f0e1f0c-0000-4000-8000-000000000000")), 409, "uid mismatch"),
        (with("/metadata", "resourceVersion", json!("1")), 409, "modified"),
        (with("/spec", "unknown", json!(1)), 400, "unknown field"),
        (
            with("/spec", "gardener", json!([data("a", "1"), data("a", "2")])),
            400,
            "duplicate entries for key",
        ),
        ("a: [".to_owned(), 400, "error decoding YAML"),
        ("a: &a [x]\nb: &b [*a,*a]".to_owned(), 400, "must be set"),
        ("[1]".to_owned(), 400, "expected an object"),
    ] {
        let refused = apply(world, "b", "fieldManager=m", body).await?;
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        ensure!(refused.status == status && text.contains(says), "{refused}");
    }
    ensure!(world.api.get(&path("b")).await?.status == 404, "a refused apply created something");

    let head =
        format!("apiVersion: {GROUP}/{VERSION}\nkind: ShootState\nmetadata:\n  labels: {{a: x, a: z}}\n");
    let yaml =
        format!("{head}spec:\n  extensions:\n  - kind: Worker\n    state: {{m: 1.5, list: [yes, ~]}}\n");
    let strict = apply(world, "b", "fieldManager=m&fieldValidation=Strict", yaml.clone()).await?;
    ensure!(strict.status == 400 && String::from_utf8_lossy(&strict.body).contains("duplicate"), "{strict}");
    let warned = apply(world, "b", "fieldManager=m", yaml).await?;
    ensure!(warned.status == 201 && warned.headers.contains_key("warning"), "{warned}");
    let created = warned.json()?;
    ensure!(created["metadata"]["labels"] == json!({"a": "z"}), "{created}");
    ensure!(
        created["spec"]["extensions"][0]["state"] == json!({"m": 1.5, "list": [true, null]}),
        "{created}"
    );
    let key = r#"k:{"kind":"Worker","name":"","purpose":""}"#;
    let owned = &owners(&created)[0].2["f:spec"]["f:extensions"][key];
    ensure!(*owned == json!({".": {}, "f:kind": {}, "f:state": {}}), "{owned}");
    Ok(())
}

//! `/status`: who writes what, and what a write leaves alone.

use anyhow::{Context, Result, ensure};
use repot_tests::http::Api;
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{self, JSON_PATCH, MERGE_PATCH, World, condition, path};

#[test]
fn a_status_is_written_through_its_subresource_alone() {
    run(async |env| scenario(&World::dev(env).await?).await);
}

#[test]
fn a_status_is_written_through_its_subresource_alone_behind_a_garden() {
    run(async |env| {
        let world = World::garden(env).await?;
        scenario(&world).await?;
        permissions(&world).await
    });
}

async fn scenario(world: &World) -> Result<()> {
    create_drops_the_status(world).await?;
    put(world).await?;
    patches(world).await?;
    main_resource_leaves_it_alone(world).await?;
    wrong_statuses(world).await?;
    paths(world).await
}

fn at(name: &str) -> String {
    path("hostedetcds", name)
}

fn status_of(name: &str) -> String {
    format!("{}/status", at(name))
}

async fn create_drops_the_status(world: &World) -> Result<()> {
    let mut object = world::hosted_etcd("main");
    object["status"] = json!({"lifecycleStatus": "etcdDeleted"});
    let created = world.create("hostedetcds", &object).await?;
    ensure!(created.get("status").is_none(), "{created}");
    ensure!(created["metadata"]["generation"] == 1, "{created}");
    // Defaults are set.
    ensure!(created["spec"]["etcdRef"]["kind"] == "Etcd", "{created}");
    ensure!(created["spec"]["apiServerRef"]["apiVersion"] == "apps/v1", "{created}");
    Ok(())
}

/// A PUT of the status takes nothing else over.
async fn put(world: &World) -> Result<()> {
    let before = world.api.get(&at("main")).await?.ok()?;
    let mut object = before.clone();
    object["status"] =
        json!({"lifecycleStatus": "running", "conditions": [condition("Ready", "True", "AllMembersReady")]});
    object["spec"] = json!({"etcdRef": {"name": "another"}});
    object["metadata"]["labels"] = json!({"by": "status"});
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let written = world.api.put(&status_of("main"), &object).await?.ok()?;
    ensure!(written["status"] == object["status"], "{written}");
    ensure!(written["spec"] == before["spec"], "the spec was taken over: {written}");
    for field in ["labels", "finalizers"] {
        ensure!(written["metadata"].get(field).is_none(), "{field} was taken over: {written}");
    }
    ensure!(written["metadata"]["generation"] == 1, "a status raised the generation: {written}");
    ensure!(written["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "{written}");
    ensure!(world.api.get(&at("main")).await?.ok()? == written, "it was not stored");
    ensure!(world.api.get(&status_of("main")).await?.ok()? == written, "GET of the status differs");

    let outdated = world.api.put(&status_of("main"), &object).await?;
    ensure!(outdated.status == 409 && outdated.json()?["reason"] == "Conflict", "{outdated}");
    let mut another = written.clone();
    another["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let another = world.api.put(&status_of("main"), &another).await?;
    ensure!(another.status == 409, "{another}");
    // The same again is no write.
    let again = world.api.put(&status_of("main"), &written).await?.ok()?;
    ensure!(again == written, "a write of the same made a new version: {again}");
    // A dry run shows what would be, and writes nothing.
    let mut dry = written.clone();
    dry["status"]["lifecycleStatus"] = json!("apiDown");
    let dry = world.api.put(&format!("{}?dryRun=All", status_of("main")), &dry).await?.ok()?;
    ensure!(dry["status"]["lifecycleStatus"] == "apiDown", "{dry}");
    ensure!(world.api.get(&at("main")).await?.ok()? == written, "a dry run was stored");
    // Without a status it is taken away.
    let mut bare = written.clone();
    bare.as_object_mut().context("an object")?.remove("status");
    let bare = world.api.put(&status_of("main"), &bare).await?.ok()?;
    ensure!(bare.get("status").is_none(), "{bare}");
    Ok(())
}

async fn patches(world: &World) -> Result<()> {
    let before = world.api.get(&at("main")).await?.ok()?;
    let merge = json!({
        "metadata": {"annotations": {"by": "status"}},
        "spec": {"apiServerRef": {"name": "another"}},
        "status": {"lifecycleStatus": "apiDown", "command": "deleteEtcd"},
    });
    let merged = world.api.patch(&status_of("main"), MERGE_PATCH, &merge).await?.ok()?;
    ensure!(merged["status"] == merge["status"], "{merged}");
    ensure!(merged["spec"] == before["spec"] && merged["metadata"].get("annotations").is_none(), "{merged}");
    ensure!(merged["metadata"]["generation"] == before["metadata"]["generation"], "{merged}");

    let json = json!([
        {"op": "test", "path": "/status/command", "value": "deleteEtcd"},
        {"op": "remove", "path": "/status/command"},
        {"op": "add", "path": "/status/currentWorkflow", "value": {"kind": "EtcdMigration", "name": "m", "uid": "u"}},
        {"op": "replace", "path": "/spec/etcdRef/name", "value": "another"},
    ]);
    let patched = world.api.patch(&status_of("main"), JSON_PATCH, &json).await?.ok()?;
    ensure!(
        patched["status"].get("command").is_none() && patched["status"]["currentWorkflow"]["name"] == "m",
        "{patched}"
    );
    ensure!(patched["spec"] == before["spec"], "{patched}");

    // A patch of nothing but metadata changes nothing here.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let same = world.api.patch(&status_of("main"), MERGE_PATCH, &labels).await?.ok()?;
    ensure!(same == patched, "metadata was changed through the status: {same}");
    let last = json!({"metadata": {"resourceVersion": "1"}, "status": {"lifecycleStatus": "running"}});
    let outdated = world.api.patch(&status_of("main"), MERGE_PATCH, &last).await?;
    ensure!(outdated.status == 409, "{outdated}");
    Ok(())
}

async fn main_resource_leaves_it_alone(world: &World) -> Result<()> {
    let before = world.api.get(&at("main")).await?.ok()?;
    let mut object = before.clone();
    object["status"] = json!({"lifecycleStatus": "etcdDeleted"});
    object["spec"]["settings"] = json!({"replicas": 3});
    let put = world.api.put(&at("main"), &object).await?.ok()?;
    ensure!(put["status"] == before["status"], "a PUT of the object wrote its status: {put}");
    ensure!(put["spec"]["settings"]["replicas"] == 3 && put["metadata"]["generation"] == 2, "{put}");

    let merge = json!({"status": {"lifecycleStatus": "etcdDeleted"}});
    let merged = world.api.patch(&at("main"), MERGE_PATCH, &merge).await?.ok()?;
    ensure!(merged == put, "a patch of the object wrote its status: {merged}");
    let gone = world.api.patch(&at("main"), MERGE_PATCH, &json!({"status": null})).await?.ok()?;
    ensure!(gone == put, "a patch of the object removed its status: {gone}");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = world.api.patch(&at("main"), MERGE_PATCH, &label).await?.ok()?;
    ensure!(labelled["status"] == before["status"] && labelled["metadata"]["generation"] == 2, "{labelled}");
    Ok(())
}

/// Everything that is wrong is told at once; the spec is not judged again.
async fn wrong_statuses(world: &World) -> Result<()> {
    let mut wrong = condition("Ready", "Maybe", "two words");
    wrong["lastTransitionTime"] = json!("noon");
    let status =
        json!({"lifecycleStatus": "sleeping", "conditions": [wrong, condition("Ready", "True", "Fine"), {}]});
    let refused = world.api.patch(&status_of("main"), MERGE_PATCH, &json!({"status": status})).await?;
    ensure!(refused.status == 422, "{refused}");
    let causes = refused.json()?["details"]["causes"].clone();
    let fields: Vec<&str> =
        causes.as_array().context("causes")?.iter().filter_map(|c| c["field"].as_str()).collect();
    for field in [
        "status.lifecycleStatus",
        "status.conditions[0].status",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[0].reason",
        "status.conditions[1]",
        "status.conditions[2].type",
    ] {
        ensure!(fields.contains(&field), "{field} is not told of: {causes}");
    }
    let unknown = json!({"status": {"phase": "x"}});
    let strict = format!("{}?fieldValidation=Strict", status_of("main"));
    let refused = world.api.patch(&strict, MERGE_PATCH, &unknown).await?;
    ensure!(refused.status == 422 && refused.to_string().contains("status.phase"), "{refused}");
    Ok(())
}

async fn paths(world: &World) -> Result<()> {
    for (verb, path, status) in [
        ("GET", status_of("nobody"), 404),
        ("PUT", status_of("nobody"), 404),
        ("PATCH", status_of("nobody"), 404),
        ("POST", status_of("main"), 405),
        ("DELETE", status_of("main"), 405),
        ("GET", format!("{}/scale", at("main")), 404),
        ("GET", format!("{}/status/more", at("main")), 404),
        ("GET", format!("/apis/{}/v1alpha1/namespaces/default/shootstates/x/status", world::CORE), 404),
    ] {
        let answer = call(&world.api, verb, &path).await?;
        ensure!(answer.0 == status, "{verb} {path} answered {}: {}", answer.0, answer.1);
    }
    Ok(())
}

async fn call(api: &Api, verb: &str, path: &str) -> Result<(u16, Value)> {
    let mut object = world::hosted_etcd("nobody");
    object["status"] = json!({"lifecycleStatus": "running"});
    let answer = match verb {
        "GET" => api.get(path).await?,
        "PUT" => api.put(path, &object).await?,
        "PATCH" => api.patch(path, MERGE_PATCH, &json!({"status": {}})).await?,
        "POST" => api.post(path, &object).await?,
        _ => api.delete(path).await?,
    };
    Ok((answer.status, answer.json()?))
}

/// `hostedetcds/status` is a permission of its own, in both directions.
async fn permissions(world: &World) -> Result<()> {
    let garden = world.garden.as_ref().context("a garden")?;
    let mut objects = Vec::new();
    for (user, resource) in [("reporter", "hostedetcds/status"), ("writer", "hostedetcds")] {
        let rule = json!({"apiGroups": [world::GROUP], "resources": [resource], "verbs": ["get", "patch", "update"]});
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": user}, "rules": [rule],
        }));
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }));
    }
    garden.apply(&objects).await?;
    let (reporter, writer) =
        (Api::new(&garden.user("reporter", &[])?)?, Api::new(&garden.user("writer", &[])?)?);
    let status = json!({"status": {"message": "by its reporter"}});
    // Bindings come into force a little after they are made.
    repot_tests::wait::until("the permission", std::time::Duration::from_secs(30), async || {
        let reported = reporter.patch(&status_of("main"), MERGE_PATCH, &status).await?.ok()?;
        let written = writer
            .patch(&at("main"), MERGE_PATCH, &json!({"spec": {"settings": {"size": "9Gi"}}}))
            .await?
            .ok()?;
        ensure!(
            reported["status"]["message"] == "by its reporter"
                && written["spec"]["settings"]["size"] == "9Gi"
        );
        Ok(())
    })
    .await?;
    let refused = writer.patch(&status_of("main"), MERGE_PATCH, &status).await?;
    ensure!(refused.status == 403 && refused.to_string().contains("hostedetcds/status"), "{refused}");
    let refused = reporter.patch(&at("main"), MERGE_PATCH, &json!({"spec": {}})).await?;
    ensure!(refused.status == 403, "{refused}");
    Ok(())
}

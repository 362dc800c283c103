//! What people do all day: create, look, wait, change, delete.

use anyhow::{Result, bail, ensure};
use repot_tests::run;
use repot_tests::tool::Output;
use serde_json::json;

use super::Hand;
use crate::shootstate::world::{World, small};

#[test]
fn people_create_look_wait_change_and_delete_on_repot_dev() {
    run(async |env| {
        let world = World::dev(env).await?;
        Hand::both(env, &world, day).await
    });
}

#[test]
fn people_create_look_wait_change_and_delete_through_a_real_kube_apiserver() {
    run(async |env| {
        let world = World::garden(env).await?;
        Hand::both(env, &world, day).await?;
        Hand::both(env, &world, rights).await
    });
}

async fn day(hand: &Hand<'_>) -> Result<()> {
    looks(hand).await?;
    explains(hand).await?;
    applies(hand).await?;
    changes(hand).await?;
    watches(hand).await?;
    waits_for_a_deletion(hand).await?;
    refuses(hand).await
}

async fn looks(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("looked-at");
    let said = hand.says_to("create -f -", &small(&name, &json!({"a": 1}))).await?;
    ensure!(said.contains("created"), "{said}");
    let table = hand.says("get shootstates").await?;
    ensure!(table.starts_with("NAME") && table.contains(&name) && !table.contains("RESOURCES"), "{table}");
    let wide = hand.says("get shootstates -o wide -A --sort-by=.metadata.name").await?;
    ensure!(wide.starts_with("NAMESPACE") && wide.contains("RESOURCES"), "{wide}");
    let yaml = hand.says(&format!("get shootstate {name} -o yaml")).await?;
    ensure!(yaml.contains("kind: ShootState") && yaml.contains("a: 1"), "{yaml}");
    let described = hand.says(&format!("describe shootstate {name}")).await?;
    ensure!(
        described.contains("Name:") && described.contains(&name) && described.contains("Spec:"),
        "{described}"
    );
    let named =
        hand.says(&format!("get shootstates -l !x --field-selector metadata.name={name} -o name")).await?;
    ensure!(named.trim() == format!("shootstate.core.gardener.cloud/{name}"), "{named}");
    let resources =
        hand.says("api-resources --verbs=list,delete,watch --api-group=core.gardener.cloud").await?;
    ensure!(resources.contains("shootstates") && resources.contains("true"), "{resources}");
    let raw = hand.says("get --raw /apis/core.gardener.cloud/v1alpha1/shootstates?limit=1").await?;
    ensure!(raw.contains("\"ShootStateList\""), "{raw}");
    Ok(())
}

/// 1.20 reads OpenAPI v2, newer ones v3.
async fn explains(hand: &Hand<'_>) -> Result<()> {
    let explained = hand.says("explain shootstates.spec.gardener").await?;
    ensure!(explained.contains("KIND:") && explained.contains("name"), "{explained}");
    let all = hand.says("explain shootstates --recursive").await?;
    ensure!(
        ["extensions", "gardener", "resources", "purpose"].iter().all(|field| all.contains(field)),
        "{all}"
    );
    Ok(())
}

/// Client-side apply: checked against the published schema, sent as a merge patch.
async fn applies(hand: &Hand<'_>) -> Result<()> {
    let mut object = small(&hand.name("applied"), &json!({"count": 1}));
    let created = hand.says_to("apply -f -", &object).await?;
    ensure!(created.contains("created"), "{created}");
    let same = hand.says_to("apply -f -", &object).await?;
    ensure!(same.contains("unchanged") || same.contains("configured"), "{same}");
    object["spec"]["extensions"][0]["state"] = json!({"other": 2});
    let changed = hand.says_to("apply -f -", &object).await?;
    ensure!(changed.contains("configured"), "{changed}");
    let state = hand
        .says(&format!("get shootstate {} -o jsonpath={{.spec.extensions[0].state}}", hand.name("applied")))
        .await?;
    ensure!(state == r#"{"other":2}"#, "{state}");
    object["spec"]["gardner"] = json!([]);
    let refused = hand.fails("apply -f -", &object).await?;
    ensure!(refused.contains("gardner"), "kubectl found nothing to blame: {refused}");
    Ok(())
}

async fn changes(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("changed");
    hand.says_to("create -f -", &small(&name, &json!({"count": 1}))).await?;
    let edited = hand.edits(&format!("edit shootstate {name}"), "s/count: 1/count: 2/").await?;
    ensure!(edited.contains("edited"), "{edited}");
    let merge = r#"{"spec":{"extensions":[{"kind":"Worker","name":"w","state":{"count":3}}]}}"#;
    hand.says(&format!("patch shootstate {name} --type=merge -p {merge}")).await?;
    let test = r#"[{"op":"test","path":"/spec/extensions/0/state/count","value":3},{"op":"add","path":"/spec/extensions/0/state/more","value":[1]}]"#;
    hand.says(&format!("patch shootstate {name} --type=json -p {test}")).await?;
    let state =
        hand.says(&format!("get shootstate {name} -o jsonpath={{.spec.extensions[0].state}}")).await?;
    ensure!(state == r#"{"count":3,"more":[1]}"#, "{state}");
    let strategic = hand.fails(&format!("patch shootstate {name} -p {merge}"), &json!(null)).await?;
    ensure!(strategic.contains("unknown format"), "a strategic patch: {strategic}");
    hand.says(&format!("label shootstate {name} wave=1")).await?;
    hand.says(&format!("annotate shootstate {name} note=x")).await?;
    let counted = hand.says("get shootstates -l wave=1 -o name").await?;
    ensure!(counted.contains(&name), "{counted}");
    hand.says(&format!("label shootstate {name} wave-")).await?;
    Ok(())
}

async fn watches(hand: &Hand<'_>) -> Result<()> {
    let name = hand.name("watched");
    hand.says_to("create -f -", &small(&name, &json!({}))).await?;
    let mut lines = hand.follows(&format!("get shootstate {name} -w -o wide"))?;
    lines.until("the heading", |line| line.contains("GARDENER DATA")).await?;
    let before = lines.until("the object", |line| line.starts_with(&name)).await?;
    ensure!(before.split_whitespace().nth(2) == Some("1"), "{before}");
    let more = r#"{"spec":{"extensions":[{"kind":"Worker","name":"w"},{"kind":"Worker","name":"x"}]}}"#;
    hand.says(&format!("patch shootstate {name} --type=merge -p {more}")).await?;
    let two = |line: &str| line.starts_with(&name) && line.split_whitespace().nth(2) == Some("2");
    lines.until("its change", two).await?;
    Ok(())
}

/// An old kubectl says NotFound where the object is gone before it looks: on a busy machine that may happen, so there are several tries.
async fn waits_for_a_deletion(hand: &Hand<'_>) -> Result<()> {
    let mut said = String::new();
    for attempt in 0..5 {
        let waited = waits_for(hand, &hand.name(&format!("deleted-{attempt}"))).await?;
        if waited.succeeded() {
            let watched = hand.name("watched");
            let all =
                hand.says(&format!("delete shootstates --field-selector metadata.name={watched}")).await?;
            ensure!(all.contains("deleted"), "{all}");
            return Ok(());
        }
        ensure!(waited.stderr.contains("NotFound"), "{}", waited.stderr);
        said = waited.stderr;
    }
    bail!("kubectl never waited: {said}")
}

/// What `kubectl wait` says, beside somebody who removes the finalizer of the object.
async fn waits_for(hand: &Hand<'_>, name: &str) -> Result<Output> {
    let mut object = small(name, &json!({}));
    object["metadata"]["finalizers"] = json!(["example.org/hold"]);
    hand.says_to("create -f -", &object).await?;
    let cascade = if hand.is_old() { "orphan" } else { "background" };
    hand.says(&format!("delete shootstate {name} --wait=false --cascade={cascade}")).await?;
    let line = format!("wait shootstate {name} --for=delete --timeout=60s");
    let wait = hand.kubectl.run(line.split_whitespace());
    let release = async {
        let held =
            hand.says(&format!("get shootstate {name} -o jsonpath={{.metadata.deletionTimestamp}}")).await?;
        ensure!(!held.is_empty(), "it was not marked");
        hand.says(&format!(r#"patch shootstate {name} --type=merge -p {{"metadata":{{"finalizers":null}}}}"#))
            .await
    };
    let (waited, released) = tokio::join!(wait, release);
    released?;
    let gone = hand.fails(&format!("get shootstate {name}"), &json!(null)).await?;
    ensure!(gone.contains("NotFound"), "{gone}");
    waited
}

async fn refuses(hand: &Hand<'_>) -> Result<()> {
    let twice = small(&hand.name("looked-at"), &json!({}));
    let exists = hand.fails("create -f -", &twice).await?;
    ensure!(exists.contains("AlreadyExists"), "{exists}");
    let mut stale = twice.clone();
    stale["metadata"]["resourceVersion"] = json!("1");
    let conflict = hand.fails("replace -f -", &stale).await?;
    ensure!(conflict.contains("Conflict") || conflict.contains("modified"), "{conflict}");
    let mut nameless = twice;
    nameless["spec"]["gardener"][0]["name"] = json!("");
    nameless["metadata"]["name"] = json!(hand.name("nameless"));
    let invalid = hand.fails("create -f -", &nameless).await?;
    ensure!(invalid.contains("spec.gardener[0].name"), "{invalid}");
    Ok(())
}

/// `auth can-i` asks the kube-apiserver in front; what it says has to be what the server behind does.
async fn rights(hand: &Hand<'_>) -> Result<()> {
    let yes = hand.says("auth can-i create shootstates.core.gardener.cloud").await?;
    ensure!(yes.trim() == "yes", "{yes}");
    let no =
        hand.kubectl.run("auth can-i get shootstates.core.gardener.cloud --as=nobody".split(' ')).await?;
    ensure!(!no.succeeded() && no.stdout.starts_with(b"no"), "{no:?}");
    let refused = hand.fails("get shootstates --as=nobody", &json!(null)).await?;
    ensure!(refused.contains("Forbidden") && refused.contains("nobody"), "{refused}");
    Ok(())
}

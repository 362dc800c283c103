//! kube-rs, the Rust client: watchers of both strategies, reflectors, patches, discovery.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Client, Config, Resource, ResourceExt};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::shootstate::world::{GROUP, VERSION, World, collection, small};

const DEADLINE: Duration = Duration::from_secs(30);

fn kind() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, "ShootState"), "shootstates")
}

async fn connect(world: &World) -> Result<Client> {
    let file = Kubeconfig::read_from(world.kubectl.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn shoot_states(world: &World) -> Result<Api<DynamicObject>> {
    Ok(Api::namespaced_with(connect(world).await?, "default", &kind()))
}

fn object(name: &str, state: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(small(name, state))?)
}

/// The names that a watcher tells: first those of the initial list in order of name, then each change as it comes.
async fn tell<K: Resource + ResourceExt>(
    api: &Api<DynamicObject>,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
) -> Result<Vec<String>> {
    let mut events = pin!(events);
    let mut told = Vec::new();
    loop {
        let event = timeout(DEADLINE, events.next()).await.context("no event")?.context("no end")??;
        match event {
            Event::Init => {}
            Event::InitApply(object) => told.push(format!("has {}", object.name_any())),
            Event::Apply(object) => told.push(format!("applied {}", object.name_any())),
            Event::Delete(object) => {
                told.push(format!("deleted {}", object.name_any()));
                return Ok(told);
            }
            Event::InitDone => {
                told.sort();
                let created = api.create(&PostParams::default(), &object("s-new", &json!(1))?).await?;
                // Another value each time: a patch that changes nothing is no event.
                let patch = Patch::Merge(json!({"metadata": {"labels": {"a": created.resource_version()}}}));
                api.patch("s-0", &PatchParams::default(), &patch).await?;
                api.delete("s-new", &Default::default()).await?;
            }
        }
    }
}

#[test]
fn watchers_of_both_strategies_tell_the_same() {
    run(async |env| {
        let world = World::garden(env).await?;
        let api = shoot_states(&world).await?;
        // Its lists and watches ask for metadata alone.
        let slim: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(connect(&world).await?, "default", &kind());
        for n in 0..5 {
            api.create(&PostParams::default(), &object(&format!("s-{n}"), &json!(n))?).await?;
        }
        let mut expected: Vec<String> = (0..5).map(|n| format!("has s-{n}")).collect();
        expected.extend(["applied s-new", "applied s-0", "deleted s-new"].map(str::to_owned));
        for config in [
            watcher::Config::default(),
            watcher::Config::default().page_size(2),
            watcher::Config::default().any_semantic(),
            watcher::Config::default().streaming_lists(),
        ] {
            let whole = tell(&api, watcher(api.clone(), config.clone())).await?;
            ensure!(whole == expected, "{config:?} told {whole:?}");
            let metadata = tell(&api, watcher(slim.clone(), config.clone())).await?;
            ensure!(metadata == expected, "of metadata, {config:?} told {metadata:?}");
        }
        Ok(())
    });
}

/// One more than a page of its own choice holds.
const MANY: usize = 501;

#[test]
fn watcher_reads_pages_and_takes_up_watches_that_ended() {
    run(async |env| {
        let world = World::garden(env).await?;
        let api = shoot_states(&world).await?;
        let create = async |n: usize| -> Result<DynamicObject> {
            Ok(api.create(&PostParams::default(), &object(&format!("s-{n:03}"), &json!(n))?).await?)
        };
        let made = stream::iter(0..MANY).map(create).buffer_unordered(8).try_collect::<Vec<_>>().await?;
        ensure!(made.len() == MANY, "{} were made", made.len());
        let mut events = pin!(watcher(api.clone(), watcher::Config::default().timeout(1)));
        let mut initial = 0;
        loop {
            match next(&mut events).await? {
                Event::Init => {}
                Event::InitApply(_) => initial += 1,
                Event::InitDone => break,
                other => bail!("{other:?} came before the list was done"),
            }
        }
        ensure!(initial == MANY, "the list has {initial}");
        for round in 0..2 {
            let ended = ends(&api, &world).await?;
            let label = json!({"metadata": {"labels": {"round": format!("{round}")}}});
            let change =
                async { Ok(api.patch("s-000", &PatchParams::default(), &Patch::Merge(label)).await?) };
            // The watcher is asked for its next event all the while, so that it takes its watches up again.
            let (event, patched) = tokio::join!(next(&mut events), async {
                ended.await?;
                change.await
            });
            let patched: Result<DynamicObject> = patched;
            let version = patched?.metadata.resource_version;
            match event? {
                Event::Apply(object) => ensure!(object.metadata.resource_version == version, "{object:?}"),
                other => bail!("after a watch had ended came {other:?}"),
            }
        }
        Ok(())
    });
}

async fn next<K>(events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin)) -> Result<Event<K>> {
    Ok(timeout(DEADLINE, events.next()).await.context("no event")?.context("no end")??)
}

/// A watch of two seconds beside that of the watcher, which has ended before this one does.
async fn ends<'a>(
    api: &'a Api<DynamicObject>,
    world: &World,
) -> Result<impl Future<Output = Result<()>> + use<'a>> {
    let list = world.api.get(&collection("default")).await?.ok()?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
    Ok(async move {
        let mut watch = api.watch(&WatchParams::default().timeout(2), &version).await?.boxed();
        while let Some(event) = timeout(DEADLINE, watch.next()).await.context("the watch does not end")? {
            match event? {
                WatchEvent::Bookmark(_) => {}
                other => bail!("nothing changed, and {other:?} came"),
            }
        }
        Ok(())
    })
}

#[test]
fn reflector_follows_writes_and_a_restart() {
    run(async |env| {
        let mut world = World::dev(env).await?;
        let api = shoot_states(&world).await?;
        let writer = reflector::store::Writer::new(kind());
        let store = writer.as_reader();
        let events = watcher(api.clone(), watcher::Config::default().streaming_lists()).default_backoff();
        let followed = tokio::spawn(reflector(writer, events).for_each(async |_| ()));
        for n in 0..3 {
            api.create(&PostParams::default(), &object(&format!("s-{n}"), &json!(n))?).await?;
        }
        world.repot().restart().await?;
        // Connections of before the restart end with an error once.
        until("a delete", DEADLINE, async || Ok(api.delete("s-1", &Default::default()).await.map(drop)?))
            .await?;
        until("the store to equal a list", DEADLINE, async || {
            let by_name = |objects: Vec<DynamicObject>| -> BTreeMap<String, Value> {
                objects
                    .into_iter()
                    .map(|o| (o.name_any(), json!([o.metadata.resource_version, o.data])))
                    .collect()
            };
            let listed = by_name(api.list(&Default::default()).await?.items);
            let stored = by_name(store.state().iter().map(|object| DynamicObject::clone(object)).collect());
            ensure!(listed == stored && listed.len() == 2, "a list has {listed:?}, the store {stored:?}");
            Ok(())
        })
        .await?;
        followed.abort();
        Ok(())
    });
}

#[test]
fn patches_of_each_type_do_what_they_say() {
    run(async |env| {
        let world = World::dev(env).await?;
        let api = shoot_states(&world).await?;
        let applied = api
            .patch("s", &PatchParams::apply("kube-rs"), &Patch::Apply(object("s", &json!({"n": 1}))?))
            .await?;
        let managers = applied.managed_fields();
        let ours = managers.iter().find(|m| m.manager.as_deref() == Some("kube-rs")).context("no manager")?;
        ensure!(ours.operation.as_deref() == Some("Apply"), "{managers:?}");
        let merge = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let merged = api.patch("s", &PatchParams::default(), &merge).await?;
        ensure!(merged.labels().get("a").is_some_and(|b| b == "b"), "{merged:?}");
        let json: Patch<()> = Patch::Json(serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/labels/a", "value": "b"},
            {"op": "replace", "path": "/spec/extensions/0/state", "value": {"n": 2}},
        ]))?);
        let replaced = api.patch("s", &PatchParams::default(), &json).await?;
        ensure!(replaced.data["spec"]["extensions"][0]["state"] == json!({"n": 2}), "{replaced:?}");
        // Another manager took the state over: applying the old one is a conflict, until it is forced.
        let again = Patch::Apply(object("s", &json!({"n": 1}))?);
        match api.patch("s", &PatchParams::apply("kube-rs"), &again).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => bail!("a conflict was answered with {other:?}"),
        }
        let forced = api.patch("s", &PatchParams::apply("kube-rs").force(), &again).await?;
        ensure!(forced.data["spec"]["extensions"][0]["state"] == json!({"n": 1}), "{forced:?}");
        Ok(())
    });
}

#[test]
fn discovery_finds_the_kind_in_both_forms() {
    run(async |env| {
        let world = World::garden(env).await?;
        let client = connect(&world).await?;
        for found in [
            Discovery::new(client.clone()).run().await?,
            Discovery::new(client.clone()).run_aggregated().await?,
        ] {
            let kind = GroupVersionKind::gvk(GROUP, VERSION, "ShootState");
            let (resource, can) = found.resolve_gvk(&kind).context("ShootState is not discovered")?;
            ensure!(
                resource.plural == "shootstates" && can.scope == Scope::Namespaced,
                "{resource:?} {can:?}"
            );
            for verb in [verbs::GET, verbs::LIST, verbs::WATCH, verbs::CREATE, verbs::UPDATE, verbs::PATCH] {
                ensure!(can.supports_operation(verb), "it cannot {verb}");
            }
            ensure!(
                can.supports_operation(verbs::DELETE_COLLECTION),
                "it cannot {}",
                verbs::DELETE_COLLECTION
            );
        }
        Ok(())
    });
}

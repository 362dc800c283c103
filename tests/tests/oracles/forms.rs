//! Metadata, failures and discovery in protobuf: as kube-apiserver writes them, and as client-go reads them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, stream};
use repot_apimachinery::protobuf;
use repot_tests::clientgo::ClientGo;
use repot_tests::garden::Garden;
use repot_tests::http::{Answer, Api, send};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use reqwest::Method;
use serde_json::{Value, json};

use super::rounds;
use crate::shootstate::world::{GROUP, VERSION, World, collection, path, small};

const JSON: &str = "application/json";
const ONE: &str = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIST: &str = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Every way in which client-go keeps a copy that begins with a watch.
const INFORMERS: [&str; 5] = ["informer", "metadata-informer", "typed-informer", "metadata", "watchlist"];

/// A kube-apiserver that serves the kind itself, as a custom resource: what others have to be like.
async fn reference(env: &TestEnv) -> Result<Garden> {
    let garden = Garden::start(env).await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "shootstates", "singular": "shootstate", "kind": "ShootState", "listKind": "ShootStateList"});
    garden
        .apply(&[json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("shootstates.{GROUP}")},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        })])
        .await?;
    until("the kind to be served", Duration::from_secs(60), async || {
        let answer = garden.api().get(&collection("default")).await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    })
    .await?;
    Ok(garden)
}

/// An object with something in every part of its metadata.
async fn rich(api: &Api, name: &str) -> Result<()> {
    let mut object = small(name, &json!(1));
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("u-{name}")});
    let mut controller = owner("c");
    controller["controller"] = json!(true);
    controller["blockOwnerDeletion"] = json!(false);
    object["metadata"] = json!({
        "name": name, "labels": {"z": "1", "a": ""}, "annotations": {"note": "\u{e4} \"quoted\"\n", "b": "c"},
        "finalizers": ["example.com/held"], "ownerReferences": [owner("o"), controller],
    });
    api.post(&collection("default"), &object).await?.ok().map(drop)
}

async fn compare(env: &TestEnv, api: &Api, kubeconfig: &Path) -> Result<()> {
    for name in ["a", "b"] {
        rich(api, name).await?;
    }
    let mut client = ClientGo::start(env, "forms", kubeconfig, &["--name=a"])?;
    ensure!(client.answer().await?["steps"] == 7, "the scenario has seven steps");
    Ok(())
}

#[test]
fn metadata_is_the_same_in_protobuf_and_in_json() {
    run(async |env| {
        for world in [World::dev(env).await?, World::garden(env).await?] {
            compare(env, &world.api, world.kubectl.kubeconfig()).await?;
        }
        Ok(())
    });
}

#[test]
fn kube_apiserver_serves_the_same_forms_of_a_custom_resource() {
    run(async |env| {
        let garden = reference(env).await?;
        compare(env, garden.api(), garden.kubeconfig()).await
    });
}

async fn ask(api: &Api, path: &str, accept: String) -> Result<Answer> {
    send(api.request(Method::GET, path).header("Accept", accept)).await
}

#[test]
fn kube_apiserver_writes_the_same_bytes() {
    run(async |env| {
        let garden = reference(env).await?;
        let api = garden.api();
        for name in ["a", "b"] {
            rich(api, name).await?;
        }
        let group = format!("/apis/{GROUP}");
        for (path, parameters) in [
            (path("a"), ONE),
            (collection("default"), LIST),
            (collection("none"), LIST),
            (path("missing"), ""),
            (collection("default") + "?limit=x", ""),
            ("/apis".to_owned(), ""),
            (group.clone(), ""),
            (format!("{group}/{VERSION}"), ""),
            ("/apis".to_owned(), AGGREGATED),
        ] {
            let text = ask(api, &path, format!("{JSON}{parameters}")).await?;
            let accept = format!("{}{parameters},{JSON}{parameters}", protobuf::MEDIA_TYPE);
            let theirs = ask(api, &path, accept).await?;
            let ours = protobuf::encode(&text.body).with_context(|| format!("{text}"))?;
            ensure!(theirs.status == text.status, "{text}\n{theirs}");
            ensure!(theirs.body == ours, "{path}{parameters}:\n{:?}\n{ours:?}\n{text}", &theirs.body[..]);
        }
        Ok(())
    });
}

async fn fill(api: &Api, count: usize) -> Result<()> {
    let create = async |n: usize| {
        let answer = api.post(&collection("default"), &small(&format!("s-{n}"), &json!(n))).await?;
        answer.ok().map(drop)
    };
    stream::iter(0..count).map(create).buffer_unordered(8).try_for_each(async |()| Ok(())).await
}

/// Informers of every kind that start on a store that is full and changes. Each holds what its first watch gave against a LIST,
/// and ends the program when they differ.
async fn start_informers(env: &TestEnv, api: &Api, kubeconfig: &Path) -> Result<()> {
    fill(api, 1000).await?;
    let start = |modes: &str| {
        ClientGo::start(env, "follow", kubeconfig, &[&format!("--modes={modes}"), "--record=false"])
    };
    let mut writer = start("list")?;
    writer.answer().await?;
    writer.ask("write").await?;
    let mut informers = start(&INFORMERS.join(","))?;
    ensure!(informers.answer().await?["followers"] == INFORMERS.len(), "not all of them follow");
    // The comparison asks for a list once: what the others ask for is not counted.
    until("all of them to have compared", Duration::from_secs(60), async || {
        let asked = informers.ask("stats").await?["modes"].clone();
        let compared = INFORMERS.iter().all(|mode| asked[mode]["lists"] == 1);
        ensure!(compared, "{asked}");
        Ok(())
    })
    .await?;
    let rest = writer.ask("rest").await?;
    ensure!(rest["written"].as_u64() > Some(5), "the writer did next to nothing: {rest}");
    let copies = informers.ask("verify").await?["items"].clone();
    let asked = informers.ask("stats").await?["modes"].clone();
    for mode in INFORMERS {
        ensure!(copies[mode].as_u64() >= Some(1000), "{mode}: {copies}");
        let by_watch = asked[mode]["watchLists"] == 1 && asked[mode]["failures"] == 0;
        ensure!(by_watch, "{mode} asked for {asked}");
    }
    Ok(())
}

#[test]
fn informers_of_every_kind_start_on_a_thousand_objects_under_a_writer() {
    run(async |env| {
        let world = World::dev(env).await?;
        start_informers(env, &world.api, world.kubectl.kubeconfig()).await
    });
}

#[test]
fn informers_of_every_kind_start_on_a_thousand_custom_resources_of_kube_apiserver() {
    run(async |env| {
        let garden = reference(env).await?;
        start_informers(env, garden.api(), garden.kubeconfig()).await
    });
}

/// Documents at random: the same seed gives the same ones.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // xorshift64 (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or(0)
    }

    fn number(&mut self) -> i64 {
        [0, 1, -1, 127, 128, 16_383, 16_384, i64::MAX, i64::MIN][self.below(9)]
    }

    fn text(&mut self) -> String {
        let pieces = ["", "a", "x.example.com/y", "\u{e4}\u{10348}", "\"\\\n\t\u{0}", "\u{2028}<&>", " "];
        let long = "0123456789".repeat(self.below(40));
        (0..self.below(4)).map(|_| pieces[self.below(pieces.len())]).chain([long.as_str()]).collect()
    }

    fn time(&mut self) -> Value {
        let times = [
            "2026-11-22T21:00:00Z",
            "1969-12-31T23:59:59Z",
            "2000-02-29T00:00:00+14:00",
            "2024-12-31T23:59:59.999999999Z",
            "1582-10-15T12:00:00-11:30",
            "9999-12-31T23:59:59Z",
            "0001-01-01T00:00:00Z",
        ];
        json!(times[self.below(times.len())])
    }

    fn fields(&mut self, depth: usize) -> Value {
        let names = [".", "f:a", "k:{\"name\":\"\u{e4}\\\"\"}", "v:\"x\"", "i:7"];
        let mut fields = json!({});
        for _ in 0..if depth == 0 { 0 } else { self.below(4) } {
            fields[names[self.below(names.len())]] = self.fields(depth - 1);
        }
        fields
    }

    fn map(&mut self) -> Value {
        (0..self.below(5))
            .map(|_| (self.text(), json!(self.text())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn list(&mut self, mut one: impl FnMut(&mut Self) -> Value) -> Value {
        (0..self.below(4)).map(|_| one(self)).collect()
    }

    /// Half of the members, some of them null.
    fn some_of(&mut self, members: &mut dyn FnMut(&mut Self) -> Value) -> Value {
        let mut all = members(self);
        for value in all.as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
            if self.below(8) == 0 {
                *value = Value::Null;
            }
        }
        let dropped = |random: &mut Self| random.below(2) == 0;
        if let Some(members) = all.as_object_mut() {
            members.retain(|_, _| !dropped(self));
        }
        all
    }

    fn metadata(&mut self) -> Value {
        self.some_of(&mut |r| {
            let owner = |r: &mut Self| {
                r.some_of(&mut |r| {
                    json!({"apiVersion": r.text(), "kind": r.text(), "name": r.text(), "uid": r.text(),
                        "controller": r.below(2) == 0, "blockOwnerDeletion": r.below(2) == 0})
                })
            };
            let entry = |r: &mut Self| {
                r.some_of(&mut |r| {
                    json!({"manager": r.text(), "operation": r.text(), "apiVersion": r.text(), "time": r.time(),
                        "fieldsType": r.text(), "fieldsV1": r.fields(4), "subresource": r.text(), "unknown": r.text()})
                })
            };
            json!({
                "name": r.text(), "generateName": r.text(), "namespace": r.text(), "selfLink": r.text(), "uid": r.text(),
                "resourceVersion": r.text(), "generation": r.number(), "creationTimestamp": r.time(),
                "deletionTimestamp": r.time(), "deletionGracePeriodSeconds": r.number(), "labels": r.map(),
                "annotations": r.map(), "ownerReferences": r.list(owner), "finalizers": r.list(|r| json!(r.text())),
                "managedFields": r.list(entry), "unknown": {"a": [1]},
            })
        })
    }

    fn document(&mut self) -> Value {
        let one = |r: &mut Self| json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": r.metadata()});
        if self.below(4) > 0 {
            return one(self);
        }
        let metadata = json!({"resourceVersion": self.text(), "continue": self.text(), "remainingItemCount": self.number()});
        let items = self.list(one);
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
    }
}

#[test]
fn go_reads_the_same_from_protobuf_as_from_json_whatever_metadata_there_is() {
    run(async |env| {
        let nobody = env.path().join("no-server");
        let mut client = ClientGo::start(env, "decode", &nobody, &[])?;
        for seed in 1..=rounds(300, 20_000) {
            let text = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).document().to_string();
            let encoded = protobuf::encode(text.as_bytes()).context("a kind that is known")?;
            let line = json!({"json": text, "protobuf": STANDARD.encode(encoded)}).to_string();
            client.ask(&line).await.with_context(|| format!("seed {seed}"))?;
        }
        // What is not the same is told.
        let text =
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        let other = protobuf::encode(text.replace("\"a\"", "\"b\"").as_bytes()).context("metadata")?;
        let line = json!({"json": text, "protobuf": STANDARD.encode(other)}).to_string();
        ensure!(client.ask(&line).await.is_err(), "a difference was not seen");
        Ok(())
    });
}

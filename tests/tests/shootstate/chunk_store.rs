//! Chunks in S3, records in etcd: what is where, and what goes on while the object store is out of reach.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::encryption::{config, provider, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Repot, program};
use repot_tests::s3::S3Server;
use repot_tests::wait::until;
use repot_tests::{run, tool};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::etcd_values::Values;
use super::world::{GROUP, VERSION, Watch, collection, large, path, small};

const DEADLINE: Duration = Duration::from_secs(120);
const SIZE: usize = 5 << 20;
/// Values from this size on rest in the object store.
const LEAST: usize = 4 << 10;
/// Lists of whole states: as of now, from the cache, in pages.
const WHOLE: [&str; 3] = ["", "resourceVersion=0", "limit=10"];

/// One with records in an etcd and chunks in an object store.
pub(super) struct Server {
    pub api: Api,
    /// Where it keeps its records, and by which keys: for `repot storage`.
    pub flags: Vec<String>,
    etcd: EtcdCluster,
    _repot: Repot,
    _garden: Garden,
}

impl Server {
    /// `chunks`: URL of the object store, and the variables by which it is opened.
    pub async fn start(env: &TestEnv, chunks: (&str, &BTreeMap<String, String>)) -> Result<Self> {
        let (etcd, garden) = (EtcdCluster::start(env, 1).await?, Garden::start(env).await?);
        let keys = env.make_dir("keys")?.join("encryption.yaml");
        write_config(&keys, &config(&[&provider("aesgcm", "key")?]).to_string())?;
        let flags = vec![
            format!("--etcd-servers={}", etcd.endpoints().join(",")),
            format!("--encryption-provider-config={}", keys.display()),
        ];
        let (url, environment) = chunks;
        let stored = [flags.clone(), vec![format!("--chunk-store={url}")]].concat();
        let repot = Repot::replica_with(env, &garden, &stored, environment).await?;
        let server = format!("https://127.0.0.1:{}", repot.port()?);
        let api = Api::new(&Access { server, ..garden.admin().clone() })?;
        Ok(Self { api, flags, etcd, _repot: repot, _garden: garden })
    }
}

struct World {
    api: Api,
    values: Values,
    s3: S3Server,
    server: Server,
}

impl World {
    async fn start(env: &TestEnv) -> Result<Self> {
        let s3 = S3Server::start(env).await?;
        let mut server = Server::start(env, (&s3.url("chunks"), &s3.environment())).await?;
        let values = Values::new(&mut server.etcd)?;
        Ok(Self { api: server.api.clone(), values, s3, server })
    }

    async fn create(&self, object: &Value) -> Result<u16> {
        Ok(self.api.post(&collection("default"), object).await?.status)
    }

    /// Every list of whole states is refused, and none breaks off or leaves some out.
    async fn lists_are_unavailable(&self) -> Result<()> {
        for query in WHOLE {
            let answer = self.api.get(&format!("{}?{query}", collection("default"))).await?;
            ensure!(answer.status == 503 && answer.headers.contains_key("retry-after"), "{query}: {answer}");
        }
        Ok(())
    }

    /// The first event of a watch that begins with the present state.
    async fn first_event(&self, query: &str) -> Result<Value> {
        let watch = format!("{}?watch=1&{query}", collection("default"));
        let response = self.api.request(Method::GET, &watch).send().await?;
        ensure!(response.status() == 200, "{}", response.status());
        Watch::new(response).next().await
    }

    /// The states of a list that asks for metadata only.
    async fn metadata(&self) -> Result<usize> {
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let request = self.api.request(Method::GET, &collection("default")).header("accept", accept);
        let list = repot_tests::http::send(request).await?.ok()?;
        Ok(list["items"].as_array().map_or(0, Vec::len))
    }
}

#[test]
fn large_states_rest_in_s3_and_records_in_etcd() {
    run(async |env| {
        let world = World::start(env).await?;
        let object = large("big", SIZE);
        ensure!(world.create(&object).await? == 201);
        ensure!(world.create(&small("little", &json!({"a": 1}))).await? == 201);
        let found = world.api.get(&path("big")).await?.ok()?;
        ensure!(found["spec"] == object["spec"], "another spec came back");
        let chunks = world.values.range("/repot/chunks/").await?;
        let longest = chunks.iter().map(|(_, value)| value.len()).max().unwrap_or_default();
        ensure!(chunks.len() > 5 && longest < LEAST, "{} chunks, {longest} bytes in etcd", chunks.len());
        let objects = std::fs::read_dir(world.s3.files("chunks"))?.count();
        ensure!(objects > 5, "{objects} directories of objects");
        // One that would find pointers where it looks for chunks does not begin.
        let mut without = Command::new(program()?);
        without.args(["storage", "fsck"]).args(&world.server.flags);
        let refused = tool::run(without, b"").await?;
        ensure!(refused.code == 1 && refused.stderr.contains("object store"), "{refused:?}");
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn only_data_waits_for_an_object_store_out_of_reach() {
    run(async |env| {
        let world = World::start(env).await?;
        ensure!(world.create(&large("big", SIZE)).await? == 201);
        world.s3.relay.cut();
        let answer = world.api.get(&path("big")).await?;
        ensure!(answer.status == 503 && answer.headers.contains_key("retry-after"), "{answer}");
        let refused = world.api.post(&collection("default"), &large("other", SIZE)).await?;
        ensure!(refused.status == 503 && refused.headers.contains_key("retry-after"), "{refused}");
        ensure!(world.metadata().await? == 1);
        world.lists_are_unavailable().await?;
        world.api.get(&format!("/apis/{GROUP}/{VERSION}")).await?.ok()?;
        ensure!(
            world.create(&small("little", &json!({}))).await? == 201,
            "a small state needs no object store"
        );
        world.api.get(&path("little")).await?.ok()?;
        ensure!(world.create(&small("a", &json!({}))).await? == 201);
        // The first object of the list can be read, and a later one cannot.
        world.lists_are_unavailable().await?;
        let event = world.first_event("fieldSelector=metadata.name%3Dbig").await?;
        ensure!(event["type"] == "ERROR" && event["object"]["code"] == 503, "{event}");
        world.s3.relay.heal();
        until("the state to be read again", DEADLINE, async || {
            world.api.get(&path("big")).await?.ok().map(drop)
        })
        .await?;
        ensure!(world.create(&large("other", SIZE)).await? == 201);
        ensure!(world.metadata().await? == 4);
        for query in WHOLE {
            let list = world.api.get(&format!("{}?{query}", collection("default"))).await?.ok()?;
            ensure!(list["items"].as_array().map(Vec::len) == Some(4), "{query}");
        }
        Ok(())
    });
}

#[test]
fn no_list_breaks_off_or_leaves_states_out_while_etcd_is_out_of_reach() {
    run(async |env| {
        let mut world = World::start(env).await?;
        ensure!(world.create(&small("a", &json!({}))).await? == 201);
        ensure!(world.create(&large("big", SIZE)).await? == 201);
        world.api.get(&collection("default")).await?.ok()?;
        world.server.etcd.member(0).kill();
        world.lists_are_unavailable().await?;
        world.server.etcd.member(0).restart().await?;
        until("the states to be listed again", DEADLINE, async || {
            let list = world.api.get(&collection("default")).await?.ok()?;
            ensure!(list["items"].as_array().map(Vec::len) == Some(2), "{list}");
            Ok(())
        })
        .await
    });
}

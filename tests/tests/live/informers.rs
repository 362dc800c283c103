//! Clients of the Shoot that are built on client-go go on while the control plane moves.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::clientgo::ClientGo;
use repot_tests::landscape::wide_network::TRANSLATION;
use repot_tests::wait::until;
use serde_json::json;

use super::whole::highly_available;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};
use crate::oracles::informers::{MODES, modes};

/// Of the objects that are written and followed.
const GROUP: &str = "example.com";

/// Followers of each kind that client-go has, by LIST and by WatchList, and a writer. Each ends equal to a LIST; each write that was
/// acknowledged was told by an event.
#[test]
#[ignore = "minutes, in make soak"]
fn informers_of_client_go_follow_a_control_plane_that_moves() {
    run(async |env| {
        let world = World::create(env, "followed", highly_available()).await?;
        let before = world.workload().await?;
        serve_states(&world).await?;
        let mut client = follow(env, &world)?;
        ensure!(client.answer().await?["followers"] == MODES.len(), "not all of them follow");
        let asked_first = asked(&mut client).await?;
        client.ask("write").await?;
        story::create_live(&world, "move", SEEDS).await?;
        story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", client.ask("rest").await?);
        println!("{}", client.ask("verify").await?);
        ensure_begun_once(&asked_first, &asked(&mut client).await?)?;
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// The Shoot has a kind of the name and the shape that the program writes.
async fn serve_states(world: &World) -> Result<()> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("shootstates.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "ShootState", "listKind": "ShootStateList", "plural": "shootstates", "singular": "shootstate"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let api = world.api()?;
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?.ok()?;
    let path = format!("/apis/{GROUP}/v1alpha1/namespaces/default/shootstates");
    until("the kind to be served", DEADLINE, async || api.get(&path).await?.ok().map(drop)).await
}

/// Starts the program. It finds the API by its DNS name, which it resolves for each new connection.
fn follow(env: &TestEnv, world: &World) -> Result<ClientGo> {
    let server = format!("https://{}", world.name().api_domain());
    let file = world
        .shoot
        .control_plane
        .admin_access(&server)?
        .write(env.make_dir("followers")?.join("kubeconfig"))?;
    let resolver = format!("--resolver={}", world.landscape.dns.address());
    let (translation, group) = (format!("--translation={TRANSLATION}"), format!("--group={GROUP}"));
    let modes = modes(MODES.len());
    let flags = [&resolver, &translation, &group, "--pause=250ms", "--deadline=110s", &modes];
    ClientGo::start(env, "follow", &file, &flags.map(|flag: &str| flag))
}

/// What each follower has asked for, by its mode.
type Asked = BTreeMap<String, BTreeMap<String, u64>>;

async fn asked(client: &mut ClientGo) -> Result<Asked> {
    Ok(serde_json::from_value(client.ask("stats").await?["modes"].take())?)
}

/// Watches may end, and begin again at the other side where they left off. Nobody lists anything anew.
fn ensure_begun_once(before: &Asked, after: &Asked) -> Result<()> {
    for (mode, asked) in after {
        println!("{mode}: {asked:?}");
        let first = before.get(mode).with_context(|| format!("{mode} is new"))?;
        for kind in ["lists", "watchLists", "pages", "expired"] {
            ensure!(asked[kind] == first[kind], "{mode} began anew: {first:?}, then {asked:?}");
        }
    }
    Ok(())
}

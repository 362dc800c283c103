//! Ids with epochs: each hand-over has a number.

use repot_tests::run;
use serde_json::{Value, json};

use super::world::{OwnershipFixture, Writer, client_url, stays_down};
use crate::etcd_agent::world::DEADLINE;

const FIRST: &str = "seed-a/1";
const SECOND: &str = "seed-b/2";
const THIRD: &str = "seed-a/3";

#[test]
fn a_seed_that_was_off_while_another_was_the_owner_does_not_serve_its_old_data() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, FIRST, SECOND).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), "the first owner");
        writer.goes_on().await?;
        old.process.stop(DEADLINE).await?;
        let acked = writer.writes().len();
        // Another one had it, and did not keep it. Nobody here has seen that.
        world.hand_over(&[SECOND]).await?;
        world.hand_over(&[THIRD]).await?;
        world.old.config["owner"]["id"] = json!(THIRD);
        let mut old = world.old.start(env, 0)?;
        let owner = stays_down(&mut old, "OwnerIdChanged").await?;
        let message = owner["message"].to_string();
        assert!(
            message.contains("newest backup of the last owner") && message.contains("seed-a/1"),
            "{owner}"
        );
        assert_eq!(writer.writes().len(), acked, "it took a write");
        assert!(world.finals().await?.is_empty(), "old data are no final snapshot");
        // Whoever is sure that the other one never served removes the file that the message names.
        old.process.stop(DEADLINE).await?;
        let mark = world.old.volume(0)?.join("repot-owner.json");
        assert!(message.contains(&mark.display().to_string()), "{message}");
        std::fs::remove_file(mark)?;
        let mut old = world.old.start(env, 0)?;
        old.ready().await?;
        writer.goes_on().await?;
        // From then on it is served as the new id, also after a start.
        old.process.restart()?;
        old.ready().await?;
        writer.goes_on().await?;
        writer.is_all_in(&world.old.client(&[old]).await?).await
    });
}

#[test]
fn a_name_server_that_is_behind_costs_no_ownership() {
    run(async |env| {
        let world = OwnershipFixture::with_ids(env, 1, SECOND, THIRD).await?;
        let mut owner = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), "the second owner");
        writer.goes_on().await?;
        world.hand_over(&[FIRST]).await?;
        let behind =
            |status: &Value| status["owner"]["reason"] == "OwnerOlder" && status["phase"] == "Stopped";
        let status = owner.says("that the record is of an earlier owner", behind).await?;
        assert_eq!(status["owner"]["verdict"], json!("StayDown"), "{status}");
        world.hand_over(&[SECOND]).await?;
        writer.goes_on().await?;
        owner.ready().await?;
        writer.is_all_in(&world.old.client(std::slice::from_ref(&owner)).await?).await?;
        assert!(world.finals().await?.is_empty(), "that a name server is behind is no loss");
        // A later one is a loss at once.
        world.hand_over(&[THIRD]).await?;
        stays_down(&mut owner, "NotOwner").await?;
        assert_eq!(world.finals().await?.len(), 1);
        Ok(())
    });
}

//! Leases do not end while deltas are replayed.

use std::time::Duration;

use anyhow::ensure;
use etcd_client::PutOptions;
use repot_etcd::snapshot::restore::{Progress, restore};
use repot_etcd_core::snapshot::Compression;
use repot_tests::run;
use repot_tests::wait::until;

use super::world::{DEADLINE, Revived, World, dump, duplicate, open, options, restore as restore_into};

const KEYS: usize = 100;
/// Long enough for the snapshots to be taken before it ends, seconds.
const LENGTH: i64 = 20;

#[test]
fn leased_keys_survive_a_replay_that_takes_longer_than_their_leases() {
    run(async |env| {
        let world = World::start(env).await?;
        let mut kv = world.client.kv_client();
        let mut leases = world.client.lease_client();
        for at in 0..KEYS {
            let lease = leases.grant(LENGTH, None).await?.id();
            kv.put(format!("/leased/{at:03}"), "x", Some(PutOptions::new().with_lease(lease))).await?;
        }
        let full = world.full(false).await?;
        let alone = env.path().join("alone");
        duplicate(&world.dir, &alone)?;
        // A lease that the full snapshot does not know.
        let later = leases.grant(LENGTH, None).await?.id();
        kv.put("/later", "y", Some(PutOptions::new().with_lease(later))).await?;
        world.write("plain", 30).await?;
        let delta = world.delta(full.name.last, Compression::Gzip).await?;
        let (revision, before) = dump(&world.client).await?;
        let leased = before.values().filter(|(_, _, _, _, lease)| *lease != 0).count();
        ensure!(
            revision == delta.name.last && leased == KEYS + 1,
            "the machine was too slow: {leased} are left"
        );

        // An etcd from the same full snapshot, in which nobody keeps leases alive, tells when they would have ended.
        let control = env.path().join("control");
        restore_into(&open(&alone)?, control.clone()).await?;
        let data = env.path().join("restored");
        let options = options(data.clone())?;
        let runtime = tokio::runtime::Handle::current();
        let progress = |progress: Progress| {
            if let Progress::Replaying(_) = progress {
                // It begins later than the private one, and its leases live longer: the longer the time limit of elections,
                // the more a new leader gives them.
                let wait = || {
                    runtime.block_on(async {
                        let slow = ["--heartbeat-interval=1000", "--election-timeout=10000"];
                        let control = Revived::start_with(env, &control, None, &slow).await?;
                        until("leases to end in the other etcd", DEADLINE, async || {
                            let (_, left) = dump(&control.client).await?;
                            ensure!(left.is_empty(), "{} keys are left", left.len());
                            Ok(())
                        })
                        .await
                    })
                };
                // The replay stands still until then; its runtime does not.
                let ended = std::thread::scope(|scope| scope.spawn(wait).join());
                assert!(matches!(ended, Ok(Ok(()))), "the other etcd kept its leases: {ended:?}");
            }
        };
        let restored = restore(&world.store, &options, &progress).await?;
        assert_eq!(restored.revision, revision);
        let revived = Revived::start(env, &data).await?;
        assert_eq!(before, dump(&revived.client).await?.1, "keys or their leases differ");
        // They live on as leases: what is not renewed ends.
        let left = revived.client.lease_client().time_to_live(later, None).await?;
        assert_eq!(left.granted_ttl(), i64::try_from(Duration::from_secs(3600).as_secs())?);
        until("leases to end after the restore", DEADLINE, async || {
            let (_, left) = dump(&revived.client).await?;
            ensure!(left.keys().all(|key| !key.starts_with(b"/leased/")), "some are left");
            Ok(())
        })
        .await
    });
}

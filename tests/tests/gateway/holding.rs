//! Writes while the leader moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::world::{DEADLINE, client, create, direct, endpoints, open, start, versions};

const MOVES: usize = 6;
const WRITERS: usize = 8;

#[test]
fn writes_wait_while_the_leader_moves_and_none_fails_or_is_done_twice() {
    run(async |env| {
        let etcd = start(env, 3).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let (end, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (client, end, done) = (client(&etcd, &gateway).await?, end.clone(), done.clone());
            writers.spawn(async move {
                let mut keys = 0;
                while !end.load(Ordering::Relaxed) {
                    create(&client, &format!("log/{writer}/{keys}"), "1").await?;
                    keys += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, anyhow::Error>(keys)
            });
        }
        let mut members = Vec::new();
        for url in etcd.endpoints() {
            members.push(direct(&etcd, &url).await?);
        }
        for _ in 0..MOVES {
            let before = done.load(Ordering::Relaxed);
            until("writes", DEADLINE, async || {
                ensure!(done.load(Ordering::Relaxed) > before + 20, "few writes");
                Ok(())
            })
            .await?;
            let began = Instant::now();
            gateway.hold(Duration::from_secs(10)).await?;
            let held = done.load(Ordering::Relaxed);
            ensure!(gateway.status().writes == 0, "{:?}", gateway.status());
            move_leader(&members).await?;
            // Those whose answer was on its way to the client are counted late.
            let late = done.load(Ordering::Relaxed) - held;
            ensure!(late <= WRITERS, "{late} writes while they were held");
            gateway.release();
            println!("held for {:?}", began.elapsed());
        }
        end.store(true, Ordering::Relaxed);
        let mut keys = 0;
        while let Some(writer) = writers.join_next().await {
            keys += writer??;
        }
        let found = versions(&members[0], "log/").await?;
        ensure!(found.len() == keys, "{keys} were acknowledged, {} are there", found.len());
        ensure!(found.iter().all(|(_, version)| *version == 1), "a key was written twice");
        Ok(())
    });
}

async fn move_leader(members: &[Client]) -> Result<()> {
    let status = members[0].maintenance_client().status().await?;
    let list = members[0].cluster_client().member_list().await?;
    let heir = list.members().iter().map(|member| member.id()).find(|id| *id != status.leader());
    for member in members {
        let mut maintenance = member.maintenance_client();
        let own = maintenance.status().await?.header().map(|header| header.member_id());
        if own == Some(status.leader()) {
            maintenance.move_leader(heir.context("there is one member only")?).await?;
            return Ok(());
        }
    }
    anyhow::bail!("no member leads")
}

#[test]
fn holding_ends_by_itself() {
    run(async |env| {
        let etcd = start(env, 1).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let mut client = client(&etcd, &gateway).await?;
        client.put("k", "0", None).await?;
        let (began, longest) = (Instant::now(), Duration::from_millis(600));
        gateway.hold(longest).await?;
        // Reads and leases' lives pass meanwhile.
        client.get("k", None).await?;
        ensure!(gateway.status().held_for.is_some(), "{:?}", gateway.status());
        client.put("k", "1", None).await?;
        ensure!(began.elapsed() >= longest, "a write passed after {:?}", began.elapsed());
        ensure!(gateway.status().held_for.is_none(), "{:?}", gateway.status());
        Ok(())
    });
}

#[test]
fn large_writes_that_wait_do_not_stand_in_the_way_of_reads() {
    run(async |env| {
        let etcd = start(env, 1).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let client = client(&etcd, &gateway).await?;
        gateway.hold(DEADLINE).await?;
        let mut writes = JoinSet::new();
        for at in 0..40 {
            let mut client = client.clone();
            writes.spawn(async move { client.put(format!("k{at}"), vec![0; 1 << 20], None).await });
        }
        until("the writes to wait", DEADLINE, async || {
            ensure!(gateway.status().waiting == 40, "{:?}", gateway.status());
            Ok(())
        })
        .await?;
        // The same connection: 40 MiB wait on it.
        ensure!(client.clone().get("k0", None).await?.count() == 0);
        gateway.release();
        while let Some(write) = writes.join_next().await {
            write??;
        }
        Ok(())
    });
}

//! Calls of every kind, by etcd's own client.

use std::time::{Duration, Instant};

use anyhow::ensure;
use etcd_client::{Error, WatchOptions};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use repot_tests::port::is_open;
use repot_tests::run;
use repot_tests::wait::until;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::world::{DEADLINE, client, endpoints, open, start};

#[test]
fn etcdctl_works_through_it_with_certificates_on_both_sides() {
    run(async |env| {
        let etcd = start(env, 3).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let url = format!("https://{}", gateway.addr());
        let ctl = async |args: &[&str]| etcd.etcdctl_at(&url, args).await?.text();
        ensure!(ctl(&["put", "a", "1"]).await?.trim() == "OK");
        ensure!(ctl(&["get", "a", "--print-value-only"]).await?.trim() == "1");
        ctl(&["put", "large", &"x".repeat(100_000)]).await?;
        ensure!(ctl(&["get", "large", "--print-value-only"]).await?.trim().len() == 100_000);
        ensure!(ctl(&["member", "list"]).await?.lines().count() == 3);
        ctl(&["endpoint", "status"]).await?;
        ctl(&["endpoint", "health"]).await?;
        let granted = ctl(&["lease", "grant", "600"]).await?;
        let lease = granted.split_whitespace().nth(1).unwrap_or_default().to_owned();
        ensure!(ctl(&["lease", "keep-alive", "--once", &lease]).await?.contains("keepalived"));
        ensure!(ctl(&["lease", "timetolive", &lease]).await?.contains("granted with TTL(600s)"));
        ensure!(ctl(&["lease", "revoke", &lease]).await?.contains("revoked"));
        ctl(&["compaction", "2"]).await?;
        ctl(&["del", "a"]).await?;
        ensure!(ctl(&["get", "a"]).await?.is_empty());
        ensure!(gateway.status().writes == 0, "{:?}", gateway.status());
        // The name of nobody is not enough.
        let stranger = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build()?;
        ensure!(stranger.post(&url).send().await.is_err(), "a client without a certificate was heard");
        Ok(())
    });
}

#[test]
fn large_answers_and_deadlines_and_watches_pass() {
    run(async |env| {
        let mut etcd = start(env, 1).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let mut client = client(&etcd, &gateway).await?;
        let value = vec![b'v'; 1 << 20];
        for at in 0..3 {
            client.put(format!("large/{at}"), value.clone(), None).await?;
        }
        let options = etcd_client::GetOptions::new().with_prefix();
        let answer = client.get("large/", Some(options)).await?;
        ensure!(answer.kvs().iter().all(|kv| kv.value() == value) && answer.count() == 3);
        // Two messages of 1 MiB at once, and more than one frame each.
        let watch_from = WatchOptions::new().with_prefix().with_start_revision(1);
        let mut watch = client.watch("large/", Some(watch_from)).await?;
        let mut seen = 0;
        while seen < 3 {
            let message = timeout(DEADLINE, watch.message()).await??.expect("the watch goes on");
            seen += message.events().len();
        }
        // Who gives up is given up.
        etcd.member(0).process().pause();
        let put = timeout(Duration::from_millis(300), client.put("late", "1", None)).await;
        ensure!(put.is_err(), "a member that hangs answered");
        until("the write to be given up", DEADLINE, async || {
            let status = gateway.status();
            ensure!(status.writes == 0, "{status:?}");
            Ok(())
        })
        .await?;
        etcd.member(0).process().resume();
        Ok(())
    });
}

#[test]
fn message_that_is_too_large_is_refused_by_name() {
    run(async |env| {
        let etcd = start(env, 1).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let mut client = client(&etcd, &gateway).await?;
        let Err(Error::GRpcStatus(status)) = client.put("k", vec![0; 17 << 20], None).await else {
            anyhow::bail!("17 MiB went through");
        };
        ensure!(status.message().contains("more than 16777216"), "{status}");
        client.put("k", "small", None).await?;
        Ok(())
    });
}

#[test]
fn connections_without_a_certificate_leave_a_client_its_own() {
    /// Of one address; see `docs/reference/limits.md`.
    const MOST: usize = 2048;
    /// A connection without a handshake ends by itself after 10 s.
    const SOON: Duration = Duration::from_secs(8);
    run(async |env| {
        let etcd = start(env, 1).await?;
        let gateway = open(&etcd, endpoints(&etcd.endpoints(), true)).await?;
        let mut own = client(&etcd, &gateway).await?;
        let mut watch = own.watch("own", None).await?;
        // A busy machine may need several attempts to open them all before the first ones end by themselves.
        let _strangers = until("connections to be ended", DEADLINE, async || {
            let begin = Instant::now();
            let all = (0..MOST + 50).map(|_| TcpStream::connect(gateway.addr()));
            let strangers: Vec<_> = stream::iter(all).buffer_unordered(64).try_collect().await?;
            until("some to be ended", SOON.saturating_sub(begin.elapsed()), async || {
                let open = strangers.iter().filter(|stream| is_open(stream)).count();
                ensure!(open < MOST, "{open} are open");
                Ok(())
            })
            .await?;
            Ok(strangers)
        })
        .await?;
        // The oldest connection of this address, and the only one that showed a certificate.
        own.put("own", "1", None).await?;
        // The first message only says that the watch was made.
        let event = async {
            while let Some(message) = watch.message().await? {
                if !message.events().is_empty() {
                    return anyhow::Ok(());
                }
            }
            anyhow::bail!("the watch has ended")
        };
        timeout(DEADLINE, event).await??;
        Ok(())
    });
}

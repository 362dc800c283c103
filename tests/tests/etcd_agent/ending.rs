//! Who ends whom: no etcd runs on without its agent.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use repot_etcd::agent::clock::now;
use repot_tests::wait::until;
use repot_tests::{binaries, run};

use super::world::{Cluster, DEADLINE};

#[test]
fn etcd_dies_with_its_agent_and_stops_in_good_order_with_it() {
    run(async |env| {
        let cluster = Cluster::new(env, 1)?;
        let mut agent = cluster.start_all(env).await?.remove(0);
        ensure!(agent.etcds()?.len() == 1, "there is no etcd");
        agent.kill_alone()?;
        agent.no_etcd().await?;
        agent.process.restart()?;
        agent.ready().await?;
        let status = agent.process.stop(DEADLINE).await?;
        assert!(status.success(), "{status}");
        assert!(agent.etcds()?.is_empty(), "etcd outlived its agent");
        let log = agent.process.log();
        assert!(log.contains("etcd is stopped") && !log.contains("it is killed"), "{log}");
        Ok(())
    });
}

#[test]
fn an_etcd_that_dies_is_started_again() {
    run(async |env| {
        let cluster = Cluster::new(env, 1)?;
        let mut agent = cluster.start_all(env).await?.remove(0);
        let first = agent.etcds()?;
        let pid = i32::try_from(*first.first().context("no etcd")?)?;
        let pid = rustix::process::Pid::from_raw(pid).context("a process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        agent.says("the failure", |status| status["message"].to_string().contains("signal 9")).await?;
        agent.ready().await?;
        assert_ne!(first, agent.etcds()?);
        Ok(())
    });
}

/// A guard over `sleep`, with us as its agent.
struct Guarded {
    guard: std::process::Child,
    mark: String,
}

impl Guarded {
    fn start(orders: &str) -> Result<Self> {
        // Nobody else sleeps for so long.
        let mark = format!("{}.{:09}", 100_000 + std::process::id(), now().subsec_nanos());
        let mut command = Command::new(binaries::profile_dir()?.join("repot"));
        command.args(["etcd-agent", "guard", &std::process::id().to_string(), "--", "sleep", &mark]);
        let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        guard.stdin.as_mut().context("a pipe")?.write_all(orders.as_bytes())?;
        Ok(Self { guard, mark })
    }

    fn order(&mut self, orders: &str) -> Result<()> {
        Ok(self.guard.stdin.as_mut().context("a pipe")?.write_all(orders.as_bytes())?)
    }

    fn sleeps(&self) -> Result<bool> {
        for entry in std::fs::read_dir("/proc")? {
            let line = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            if words.first() == Some(&b"sleep".as_slice()) && words.contains(&self.mark.as_bytes()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is(&self, sleeping: bool) -> Result<()> {
        until("the program", Duration::from_secs(20), async || {
            ensure!(self.sleeps()? == sleeping, "it is not so");
            Ok(())
        })
        .await
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

#[test]
fn the_guard_ends_it_at_a_deadline_that_is_not_renewed() {
    run(async |_| {
        // By both clocks: that of the machine, and the wall clock.
        let until = |time: Duration| {
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            format!("until {} {}\n", (now() + time).as_millis(), (wall + time).as_millis())
        };
        let mut guarded = Guarded::start(&until(Duration::from_secs(600)))?;
        guarded.is(true).await?;
        // Now we hang: nothing but the deadline says that it is over.
        let begun = now();
        guarded.order(&until(Duration::from_secs(2)))?;
        guarded.is(false).await?;
        assert!(now() - begun >= Duration::from_millis(1999), "it was ended before its time");
        // One whose deadline has passed does not even start.
        let guarded = Guarded::start(&until(Duration::ZERO))?;
        let mut guarded = guarded;
        let status = guarded.guard.wait()?;
        assert!(status.success() && !guarded.sleeps()?, "{status}");
        Ok(())
    });
}

#[test]
fn the_guard_and_what_it_guards_end_together() {
    run(async |_| {
        for how in ["pipe", "kill"] {
            let mut guarded = Guarded::start("forever\n")?;
            guarded.is(true).await?;
            match how {
                "pipe" => drop(guarded.guard.stdin.take()),
                _ => guarded.guard.kill()?,
            }
            guarded.is(false).await.with_context(|| how.to_owned())?;
        }
        Ok(())
    });
}

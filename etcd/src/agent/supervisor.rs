//! The one place that starts and ends the etcd of a member.
//!
//! Whoever decides about ownership gives two orders, and sees what became of them:
//!
//! ```text
//! supervisor.order(Etcd::Serves, Some(until));     run for everybody, and end by yourself at `until`
//! supervisor.renew(until);                         ... later than that
//! supervisor.order(Etcd::Stopped, None);           end now
//! supervisor.reached(Etcd::Stopped).await;         ... and it is gone
//! supervisor.order(Etcd::Private, Some(until));    run for the final snapshot: only the loopback interface, another port
//! ```
//!
//! An etcd that serves and is to run privately runs on: its guard closes the proxy of clients. So a large one need not read its
//! database again.
//!
//! The deadline holds although this process may hang or be frozen: the [guard](super::guard) keeps it. After it has passed, etcd is
//! not started again before another deadline is given. An agent without an owner's record runs etcd without a deadline; one with a
//! record starts with [`Etcd::Stopped`], and nothing runs before somebody orders it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use repot_etcd_core::ownership::Etcd;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    begin::{Bootstrapper, Ready},
    child::{CUT_OFF, Child, STOP_GRACE, free_port},
    client_proxy::ProxyAddresses,
    clock::Deadline,
    flags::{self, Listen},
    guard::Ending,
    report::{Phase, StatusReporter},
    standby_etcd::Running,
};

/// How long etcd may take until it is gone: the same, and as long as its guard may take to see that it is over.
pub const STOP: Duration = Duration::from_secs(11);
/// The first pause after etcd has ended by itself; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An etcd that ran for so long is started again after the first pause.
const SOUND: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    etcd: Etcd,
    until: Option<Deadline>,
}

impl Wanted {
    /// What is to run now.
    fn now(self) -> Etcd {
        match self.until {
            Some(until) if until.is_over() => Etcd::Stopped,
            Some(_) | None => self.etcd,
        }
    }
}

/// What etcd does now, and where it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What etcd does, from just before it is started; [`Etcd::Stopped`] between an end and the next start.
    pub etcd: Etcd,
    /// Where the agent reaches it; nothing while it does not run.
    pub at: Option<SocketAddr>,
    /// Its process; nothing while it does not run.
    pub pid: Option<u32>,
}

const STOPPED: Seen = Seen { etcd: Etcd::Stopped, at: None, pid: None };

/// Orders to the etcd of this member, and what became of them.
#[derive(Clone, Debug)]
pub struct Supervisor {
    wanted: Arc<watch::Sender<Wanted>>,
    seen: Arc<watch::Sender<Seen>>,
}

impl Supervisor {
    /// Wants nothing to run before somebody orders it, or wants etcd to serve without a deadline.
    #[must_use]
    pub fn new(etcd: Etcd) -> Self {
        Self {
            wanted: Arc::new(watch::Sender::new(Wanted { etcd, until: None })),
            seen: Arc::new(watch::Sender::new(STOPPED)),
        }
    }

    /// What etcd is to do, and when it ends by itself.
    pub fn order(&self, etcd: Etcd, until: Option<Deadline>) {
        self.wanted.send_replace(Wanted { etcd, until });
    }

    /// Lets it go on as it is until later.
    pub fn renew(&self, until: Deadline) {
        self.wanted.send_modify(|wanted| wanted.until = Some(until));
    }

    /// What etcd does now, and where it is reached.
    #[must_use]
    pub fn seen(&self) -> Seen {
        *self.seen.borrow()
    }

    /// What is, to be followed.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Waits until etcd does this. An etcd that runs need not answer yet.
    pub async fn reached(&self, etcd: Etcd) {
        // It cannot be closed while this lives.
        let _ = self.seen.subscribe().wait_for(|seen| seen.etcd == etcd).await;
    }

    /// Waits until etcd does not do this any more.
    pub async fn left(&self, etcd: Etcd) {
        let _ = self.seen.subscribe().wait_for(|seen| seen.etcd != etcd).await;
    }

    /// Does what is ordered until `stop`; etcd has ended then.
    pub async fn run(&self, bootstrapper: &Bootstrapper, stop: &CancellationToken) {
        let mut wanted = self.wanted.subscribe();
        let mut pause = PAUSE;
        while !stop.is_cancelled() {
            let now = *wanted.borrow_and_update();
            if now.now() == Etcd::Stopped {
                bootstrapper.board.say(Phase::Stopped, "etcd is not to run");
                bootstrapper.stand_by();
                let _ = stop.run_until_cancelled(wanted.changed()).await;
                continue;
            }
            // A deadline that is renewed meanwhile does not break off a restore.
            let ready = tokio::select! {
                ready = bootstrapper.ready() => ready,
                () = turned(&mut wanted, now.etcd) => continue,
                () = stop.cancelled() => break,
            };
            let now = *wanted.borrow_and_update();
            if now.now() == Etcd::Stopped {
                continue;
            }
            let begun = Instant::now();
            let started = match (ready, now) {
                (Ready::Running(running, _), Wanted { etcd: Etcd::Serves, until: Some(until) }) => {
                    self.adopt(bootstrapper, *running, until).await
                }
                (ready, _) => self.launch(bootstrapper, &ready.stop().await, now).await,
            };
            let failed = match started {
                Ok(child) => {
                    let ending = self.watch(child, &bootstrapper.board, &mut wanted, now, stop).await;
                    self.seen.send_replace(STOPPED);
                    ending.map(|ending| format!("etcd ended by itself: {ending}"))
                }
                Err(error) => Some(format!("etcd cannot be started: {error}")),
            };
            let Some(failed) = failed else { continue };
            if begun.elapsed() >= SOUND {
                pause = PAUSE;
            }
            bootstrapper.board.count_failure(format!("{failed}; it is started again"));
            tokio::select! {
                () = sleep(pause) => pause = LONGEST_PAUSE.min(pause * 2),
                _ = wanted.changed() => {}
                () = stop.cancelled() => {}
            }
        }
        bootstrapper.board.say(Phase::Stopped, "the agent is about to end");
    }

    /// Lets clients into an etcd that runs already.
    async fn adopt(
        &self,
        bootstrapper: &Bootstrapper,
        running: Running,
        until: Deadline,
    ) -> std::io::Result<Child> {
        let Running { mut child, listen } = running;
        let addresses = Listen::serving(&bootstrapper.settings).0;
        let proxy = ProxyAddresses { listen: addresses, backend: listen.local() };
        bootstrapper.board.say(Phase::Serving, "etcd runs");
        self.seen.send_replace(Seen { etcd: Etcd::Serves, ..STOPPED });
        if !child.open_to_clients(until, proxy).await {
            child.stop(STOP_GRACE).await;
            self.seen.send_replace(STOPPED);
            return Err(std::io::Error::other("its guard does not let clients in"));
        }
        let (at, pid) = (Some(listen.local()), Some(child.pid()));
        tracing::info!(pid, at = %listen.local(), "clients are let into the etcd of the standby");
        self.seen.send_replace(Seen { etcd: Etcd::Serves, at, pid });
        Ok(child)
    }

    async fn launch(
        &self,
        bootstrapper: &Bootstrapper,
        entry: &flags::Entry,
        now: Wanted,
    ) -> std::io::Result<Child> {
        let settings = &bootstrapper.settings;
        let (listen, phase) = match (now.etcd, now.until) {
            (Etcd::Private, _) => (Listen::private(free_port().await?), Phase::Private),
            // Clients connect to the proxy of the guard.
            (Etcd::Serves | Etcd::Stopped, Some(_)) => (Listen::private(free_port().await?), Phase::Serving),
            (Etcd::Serves | Etcd::Stopped, None) => (Listen::serving(settings), Phase::Serving),
        };
        let has_proxy = now.until.is_some() && phase == Phase::Serving;
        let proxy = has_proxy
            .then(|| ProxyAddresses { listen: Listen::serving(settings).0, backend: listen.local() });
        let args = flags::render(settings, &bootstrapper.volume.data_dir(), entry, &listen);
        // Said before it is so: nobody may take an etcd for stopped that is being started.
        bootstrapper.board.say(phase, "etcd runs");
        self.seen.send_replace(Seen { etcd: now.etcd, ..STOPPED });
        let child = match Child::start(&bootstrapper.programs, args, now.until, proxy.as_ref()).await {
            Ok(child) => child,
            Err(error) => {
                self.seen.send_replace(STOPPED);
                return Err(error);
            }
        };
        tracing::info!(pid = child.pid(), etcd = ?now.etcd, at = %listen.local(), "etcd is started");
        self.seen.send_replace(Seen { etcd: now.etcd, at: Some(listen.local()), pid: Some(child.pid()) });
        Ok(child)
    }

    /// Stays with a running etcd; tells how it ended where nobody ordered that.
    async fn watch(
        &self,
        mut child: Child,
        board: &StatusReporter,
        wanted: &mut watch::Receiver<Wanted>,
        mut running: Wanted,
        stop: &CancellationToken,
    ) -> Option<Ending> {
        let mut grace = STOP_GRACE;
        loop {
            tokio::select! {
                ending = child.wait() => return Some(ending),
                _ = wanted.changed() => {
                    let now = *wanted.borrow_and_update();
                    let has_proxy = running.etcd == Etcd::Serves && running.until.is_some();
                    if has_proxy && now.now() == Etcd::Private {
                        if child.cut_off_clients().await {
                            running.etcd = Etcd::Private;
                            self.seen.send_modify(|seen| seen.etcd = Etcd::Private);
                            board.say(Phase::Private, "etcd runs, and its clients are cut off");
                            tracing::info!("clients of etcd are cut off");
                        } else {
                            grace = STOP_GRACE.saturating_sub(CUT_OFF);
                        }
                    }
                    if now.now() == running.etcd {
                        child.arm(now.until).await;
                        continue;
                    }
                }
                () = stop.cancelled() => {}
            }
            let ending = child.stop(grace).await;
            tracing::info!(%ending, "etcd is stopped");
            return None;
        }
    }
}

/// Waits until something else is wanted than this.
async fn turned(wanted: &mut watch::Receiver<Wanted>, etcd: Etcd) {
    // It cannot be closed: whoever runs holds the other end.
    let _ = wanted.wait_for(|wanted| wanted.now() != etcd).await;
}

//! An etcd under its guard, as the agent sees it.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{LazyLock, mpsc},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpListener,
    process::{ChildStdin, ChildStdout, Command},
    runtime::Handle,
    sync::oneshot,
    time::timeout,
};

use super::{
    client_proxy::ProxyAddresses,
    clock::Deadline,
    guard::{Ending, Order, Word},
};

/// A guard says at once that etcd is started, or it will not say it at all.
const START: Duration = Duration::from_secs(60);
/// How long etcd has to end in good order; it is killed then. Whoever waits for an etcd to be gone counts on it.
pub const STOP_GRACE: Duration = Duration::from_secs(10);
/// How long a guard may take to open the proxy of clients.
const OPEN: Duration = Duration::from_secs(5);
/// How long a guard may take to close the proxy of clients.
pub(super) const CUT_OFF: Duration = Duration::from_secs(1);
/// A guard ends this soon after its etcd was to be dead.
const END: Duration = Duration::from_secs(30);

/// How this program is called to be a guard, and to become etcd.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Path or name of the program `etcd`.
    pub etcd: PathBuf,
    /// Path or name of the program `etcdutl`.
    pub etcdutl: PathBuf,
    /// This program, which is started again to be the guard.
    pub this: PathBuf,
    /// Its arguments to run [`guard::run`](super::guard::run); the agent's process id and the command of etcd follow.
    pub guard: Vec<OsString>,
}

impl Programs {
    /// The program `etcd`, as it is called from any working directory.
    fn etcd_anywhere(&self) -> PathBuf {
        match self.etcd.components().count() {
            1 => self.etcd.clone(),
            _ => std::path::absolute(&self.etcd).unwrap_or_else(|_| self.etcd.clone()),
        }
    }
}

/// A running etcd. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    guard: tokio::process::Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
    pid: u32,
}

impl Child {
    /// Starts etcd with a deadline. `proxy`: the addresses at which its guard accepts clients.
    ///
    /// # Errors
    /// Where the guard or etcd cannot be started.
    pub(super) async fn start(
        programs: &Programs,
        args: Vec<OsString>,
        until: Option<Deadline>,
        proxy: Option<&ProxyAddresses>,
    ) -> io::Result<Self> {
        Self::launch(Command::new(&programs.this), programs, args, until, proxy).await
    }

    /// The same in a working directory, without a deadline, and without clients until [`Child::open_to_clients`].
    ///
    /// # Errors
    /// As [`Child::start`].
    pub(super) async fn start_in(dir: &Path, programs: &Programs, args: Vec<OsString>) -> io::Result<Self> {
        let mut command = Command::new(&programs.this);
        command.current_dir(dir);
        Self::launch(command, programs, args, None, None).await
    }

    async fn launch(
        mut command: Command,
        programs: &Programs,
        args: Vec<OsString>,
        until: Option<Deadline>,
        proxy: Option<&ProxyAddresses>,
    ) -> io::Result<Self> {
        command.args(&programs.guard).arg(std::process::id().to_string());
        if let Some(ProxyAddresses { listen, backend }) = proxy {
            command.args(listen.iter().map(|address| format!("--listen={address}")));
            command.arg(format!("--backend={backend}"));
        }
        command.arg("--");
        command.arg(programs.etcd_anywhere()).args(args);
        // etcd is told everything by flags; a variable that is left over from somewhere would win over nothing and confuse everybody.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut guard = spawn(command).await?;
        let gone = || io::Error::other("the guard has no pipes");
        let orders = guard.stdin.take().ok_or_else(gone)?;
        let words = BufReader::new(guard.stdout.take().ok_or_else(gone)?).lines();
        let mut child = Self { guard, orders, words, pid: 0 };
        child.order(Order::Until(until)).await;
        match timeout(START, child.word()).await {
            Ok(Some(Word::Pid(pid))) => child.pid = pid,
            Ok(Some(Word::Ended(ending))) => {
                return Err(io::Error::other(format!("it did not start: {ending}")));
            }
            Ok(Some(Word::Open | Word::CutOff)) => {
                return Err(io::Error::other("its guard answers an order that it did not get"));
            }
            Ok(None) => return Err(io::Error::other("its guard could not start it")),
            Err(_) => return Err(io::Error::other("its guard does not answer")),
        }
        Ok(child)
    }

    /// Id of etcd's process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Renews the deadline, or takes it away.
    pub(super) async fn arm(&mut self, until: Option<Deadline>) {
        self.order(Order::Until(until)).await;
    }

    /// Gives etcd a deadline, and opens the proxy of clients. False where the guard does not say in time that it is open.
    pub(super) async fn open_to_clients(&mut self, until: Deadline, proxy: ProxyAddresses) -> bool {
        self.order(Order::Until(Some(until))).await;
        self.order(Order::Open(proxy)).await;
        matches!(timeout(OPEN, self.word()).await, Ok(Some(Word::Open)))
    }

    /// Closes the proxy of clients for good, and lets etcd run. False where the guard does not say in time that no client is connected
    /// any more.
    pub(super) async fn cut_off_clients(&mut self) -> bool {
        self.order(Order::CutOff).await;
        matches!(timeout(CUT_OFF, self.word()).await, Ok(Some(Word::CutOff)))
    }

    /// Waits until it has ended. Safe to be broken off and called again.
    pub(super) async fn wait(&mut self) -> Ending {
        loop {
            match self.word().await {
                Some(Word::Ended(ending)) => return ending,
                Some(Word::Pid(_) | Word::Open | Word::CutOff) => {}
                None => return Ending::Unknown,
            }
        }
    }

    /// Ends it: in good order, so that it hands over its leadership, or by force when `grace` is over.
    pub(super) async fn stop(mut self, grace: Duration) -> Ending {
        self.order(Order::Stop(grace)).await;
        let ending = timeout(grace.saturating_add(END), self.wait()).await;
        // Of a guard that does not even kill in time, the kernel does the work.
        if ending.is_err() {
            let _ = self.guard.start_kill();
        }
        let _ = self.guard.wait().await;
        ending.unwrap_or(Ending::Unknown)
    }

    /// A guard that is gone is noticed by its words, which end.
    async fn order(&mut self, order: Order) {
        if let Err(error) = self.orders.write_all(order.line().as_bytes()).await {
            tracing::warn!(%error, "the guard of etcd takes no orders");
        }
    }

    async fn word(&mut self) -> Option<Word> {
        loop {
            match self.words.next_line().await {
                Ok(Some(line)) => {
                    if let Some(word) = Word::parse(&line) {
                        return Some(word);
                    }
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// A port that nobody listens on at the moment. Should somebody take it before etcd does, etcd is started again with another.
pub(super) async fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?.port())
}

type Launch = (Command, Handle, oneshot::Sender<io::Result<tokio::process::Child>>);

/// The parent-death signal follows the thread that made the child, and threads of a runtime come and go: so one thread that never
/// ends makes them all.
static LAUNCHER: LazyLock<mpsc::Sender<Launch>> = LazyLock::new(|| {
    let (sender, launches) = mpsc::channel::<Launch>();
    std::thread::spawn(move || {
        for (mut command, runtime, answer) in launches {
            let _entered = runtime.enter();
            // Whoever asked may have gone; the child is killed then, by being dropped.
            let _ = answer.send(command.spawn());
        }
    });
    sender
});

async fn spawn(command: Command) -> io::Result<tokio::process::Child> {
    let (answer, answered) = oneshot::channel();
    let gone = || io::Error::other("the thread that starts processes has ended");
    LAUNCHER.send((command, Handle::current(), answer)).map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

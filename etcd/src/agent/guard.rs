//! The guard: a small process between an agent and its etcd, which ends etcd when the agent cannot.
//!
//! ```text
//! agent ──orders, by a pipe──► guard ──parent-death signal──► etcd
//! ```
//!
//! | what happens | what ends etcd |
//! |---|---|
//! | the agent dies, however | the pipe ends, and the guard kills etcd |
//! | the agent hangs, or is frozen | the deadline passes that the agent did not renew, and the guard kills etcd |
//! | the guard dies | the kernel kills etcd |
//! | the guard is frozen and the agent dies | the kernel kills the guard, and then etcd |
//!
//! Clients of an etcd with a deadline connect to the [proxy](super::client_proxy) in the guard, so that none is answered between the
//! deadline and the end of etcd.
//!
//! Orders are lines: `until <ms> <ms>` (the deadline, by both clocks of [`clock`](super::clock)), `forever` (there is none), `open
//! <backend> <address>…` (let clients in), `cut-off` (close the proxy, and let etcd run), `stop <ms>` (SIGTERM, and SIGKILL after so
//! long). The guard answers with lines: `pid <n>`, `open`, `cut-off` when no client is connected any more, and, when etcd has ended,
//! `exit <code>`, `signal <n>` or `overdue`.

use std::{
    ffi::OsString,
    io::{self, Write},
    net::SocketAddr,
    os::{
        fd::AsFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, RawPid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::pipe,
    process::{Child, Command},
    time::{Instant, sleep_until},
};

use super::{
    client_proxy::{ClientProxy, ProxyAddresses},
    clock::Deadline,
};

/// The clock that wakes us stands still while the machine is suspended, and that of deadlines does not.
const LOOK: Duration = Duration::from_secs(1);

/// What the guard is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// End etcd by itself at this time; never, where there is none.
    Until(Option<Deadline>),
    /// Open the proxy of clients at these addresses.
    Open(ProxyAddresses),
    /// Close the proxy of clients for good, and let etcd run.
    CutOff,
    /// End it in good order, and not in good order after this time.
    Stop(Duration),
}

impl Order {
    /// The line for it.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Until(Some(deadline)) => format!("until {}\n", deadline.text()),
            Self::Until(None) => "forever\n".to_owned(),
            Self::Open(ProxyAddresses { listen, backend }) => {
                let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
                format!("open {backend} {}\n", listen.join(" "))
            }
            Self::CutOff => "cut-off\n".to_owned(),
            Self::Stop(grace) => format!("stop {}\n", grace.as_millis()),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        match line.split_once(' ') {
            Some(("until", time)) => Some(Self::Until(Some(Deadline::parse(time)?))),
            Some(("stop", time)) => Some(Self::Stop(millis(time)?)),
            Some(("open", addresses)) => {
                let addresses: Result<Vec<SocketAddr>, _> = addresses.split(' ').map(str::parse).collect();
                let addresses = addresses.ok()?;
                let (backend, listen) = addresses.split_first()?;
                let proxy = ProxyAddresses { listen: listen.to_vec(), backend: *backend };
                (!listen.is_empty()).then_some(Self::Open(proxy))
            }
            None if line == "forever" => Some(Self::Until(None)),
            None if line == "cut-off" => Some(Self::CutOff),
            _ => None,
        }
    }
}

/// How an etcd under a guard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// The guard killed it: its deadline had passed.
    Overdue,
    /// Its guard ended before it could say.
    Unknown,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Overdue => f.write_str("the end of its lease"),
            Self::Unknown => f.write_str("the end of its guard"),
        }
    }
}

/// What the guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// etcd runs as this process.
    Pid(u32),
    /// The proxy of clients is open.
    Open,
    /// The proxy of clients is closed.
    CutOff,
    /// It has ended.
    Ended(Ending),
}

impl Word {
    fn line(self) -> String {
        match self {
            Self::Pid(pid) => format!("pid {pid}\n"),
            Self::Open => "open\n".to_owned(),
            Self::CutOff => "cut-off\n".to_owned(),
            Self::Ended(Ending::Code(code)) => format!("exit {code}\n"),
            Self::Ended(Ending::Signal(signal)) => format!("signal {signal}\n"),
            Self::Ended(Ending::Overdue | Ending::Unknown) => "overdue\n".to_owned(),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            Some(("pid", pid)) => pid.parse().ok().map(Self::Pid),
            Some(("exit", code)) => code.parse().ok().map(|code| Self::Ended(Ending::Code(code))),
            Some(("signal", signal)) => signal.parse().ok().map(|signal| Self::Ended(Ending::Signal(signal))),
            None if line == "open" => Some(Self::Open),
            None if line == "cut-off" => Some(Self::CutOff),
            None if line == "overdue" => Some(Self::Ended(Ending::Overdue)),
            _ => None,
        }
    }
}

/// Ties this process to the life of its parent, the process of this id.
///
/// # Errors
/// Where the kernel refuses, and where the parent is gone already.
fn bind_to(parent: RawPid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before the signal was asked for.
    match getppid() == Pid::from_raw(parent) {
        true => Ok(()),
        false => Err(io::Error::other("the parent process has ended")),
    }
}

/// Becomes a program that the kernel kills together with the parent process, the one of this id.
///
/// # Errors
/// Always: where it goes well, it does not return.
pub fn become_bound(parent: RawPid, program: &OsString, args: &[OsString]) -> io::Error {
    match bind_to(parent) {
        Ok(()) => std::process::Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

/// What a guard is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the agent's process.
    pub parent: RawPid,
    /// This program and the arguments that make it [`become_bound`]; the guard adds its own id, the program and its arguments.
    pub bound: (OsString, Vec<OsString>),
    /// The program, which is etcd, and its arguments.
    pub command: Vec<OsString>,
    /// The addresses of the proxy for clients; `None`: clients connect to etcd itself.
    pub proxy: Option<ProxyAddresses>,
}

/// Runs a program until it ends or is to be ended, and says how it ended. The calling thread has to be the one that lives as long as
/// this process, and orders come from standard input.
///
/// # Errors
/// Where the program cannot be started.
pub fn run(options: &Options) -> io::Result<()> {
    bind_to(options.parent)?;
    // Signals are for the agent to pass on: whoever stops a whole group of processes would end etcd before the agent could do it
    // in good order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let _ignored = ignore_signals()?;
        hold(options).await
    })
}

/// While these live, the signals do nothing.
fn ignore_signals() -> io::Result<Vec<tokio::signal::unix::Signal>> {
    use tokio::signal::unix::{SignalKind, signal};
    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal).into_iter().collect()
}

async fn hold(options: &Options) -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut orders = BufReader::new(pipe::Receiver::from_owned_fd(input)?).lines();
    // The first order says how long etcd may run; without one it does not start.
    let Some(Order::Until(until)) = next(&mut orders).await else { return Ok(()) };
    if until.is_some_and(Deadline::is_over) {
        return say(Word::Ended(Ending::Overdue));
    }
    let mut proxy = match &options.proxy {
        Some(addresses) => Some(ClientProxy::open(addresses, until).await?),
        None => None,
    };
    let (program, args) = &options.bound;
    let mut command = Command::new(program);
    command.args(args).arg(std::process::id().to_string()).arg("--").args(&options.command);
    // A group of its own: a signal from a terminal is for the agent.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
    let child = command.spawn()?;
    say(Word::Pid(child.id().unwrap_or_default()))?;
    let ending = watch(child, orders, until, &mut proxy).await?;
    close(&mut proxy).await;
    say(Word::Ended(ending))
}

fn say(word: Word) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(word.line().as_bytes())?;
    out.flush()
}

/// The next order; `None` when the agent is gone.
async fn next(orders: &mut Lines<BufReader<pipe::Receiver>>) -> Option<Order> {
    loop {
        match orders.next_line().await {
            Ok(Some(line)) => match Order::parse(&line) {
                Some(order) => return Some(order),
                None => tracing::warn!(line, "an order that means nothing"),
            },
            Ok(None) | Err(_) => return None,
        }
    }
}

async fn watch(
    mut child: Child,
    mut orders: Lines<BufReader<pipe::Receiver>>,
    mut until: Option<Deadline>,
    proxy: &mut Option<ClientProxy>,
) -> io::Result<Ending> {
    // When SIGTERM has had its time.
    let mut kill_at: Option<Deadline> = None;
    loop {
        let over = |deadline: Option<Deadline>| deadline.is_some_and(Deadline::is_over);
        if over(until) || over(kill_at) {
            let status = kill(&mut child).await?;
            return Ok(if over(until) { Ending::Overdue } else { ending(status) });
        }
        let left = [until, kill_at].into_iter().flatten().map(Deadline::left).min();
        let look = Instant::now() + left.unwrap_or(LOOK).min(LOOK);
        tokio::select! {
            status = child.wait() => return status.map(ending),
            order = next(&mut orders) => match order {
                Some(Order::Until(new)) => {
                    until = new;
                    if let Some(proxy) = &proxy {
                        proxy.renew(new);
                    }
                }
                Some(Order::Open(addresses)) => {
                    close(proxy).await;
                    *proxy = Some(ClientProxy::open(&addresses, until).await?);
                    say(Word::Open)?;
                }
                Some(Order::CutOff) => {
                    close(proxy).await;
                    say(Word::CutOff)?;
                }
                Some(Order::Stop(grace)) => {
                    terminate(&child);
                    kill_at = Some(Deadline::after(grace));
                }
                None => return kill(&mut child).await.map(ending),
            },
            () = sleep_until(look) => {}
        }
    }
}

/// Returns when no client is connected any more.
async fn close(proxy: &mut Option<ClientProxy>) {
    if let Some(proxy) = proxy.take() {
        proxy.close().await;
    }
}

async fn kill(child: &mut Child) -> io::Result<ExitStatus> {
    // It may have ended by itself; waiting says so.
    let _ = child.start_kill();
    child.wait().await
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| Pid::from_raw(RawPid::try_from(pid).ok()?));
    if let Some(pid) = pid {
        // It may have ended already; whoever waits for it sees that.
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_words_are_read_as_they_are_written() {
        let deadline = Deadline::parse("1234 5678").expect("a deadline");
        let stop = Order::Stop(Duration::from_secs(3));
        let address = |text: &str| text.parse().expect("an address");
        let listen = vec![address("10.0.0.1:2379"), address("[::1]:2379")];
        let open = Order::Open(ProxyAddresses { listen, backend: address("127.0.0.1:7") });
        for order in [Order::Until(Some(deadline)), Order::Until(None), open, Order::CutOff, stop] {
            assert_eq!(Order::parse(order.line().trim_end()), Some(order));
        }
        for ending in [Ending::Code(1), Ending::Signal(9), Ending::Overdue] {
            let word = Word::Ended(ending);
            assert_eq!(Word::parse(word.line().trim_end()), Some(word));
        }
        for word in [Word::Pid(7), Word::Open, Word::CutOff] {
            assert_eq!(Word::parse(word.line().trim_end()), Some(word));
        }
        for nonsense in ["", "until", "until x", "until 1", "forever 1", "stop", "open x", "open 1.2.3.4:5"] {
            assert_eq!(Order::parse(nonsense), None, "{nonsense}");
        }
    }
}

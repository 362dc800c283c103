//! Child processes that end with the test, whatever happens to it.
//!
//! Three nets: dropping a [`Process`] kills its whole process group; on Linux the kernel kills it when the test process dies; and
//! because that kernel signal follows the *thread* that made the child, one thread that never ends makes them all.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::test_env::TestEnv;
use crate::wait::{Hopeless, until};

/// What to run: a program, its arguments and its environment.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Spec {
    /// A program without arguments; `name` is for logs and messages.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds one argument at the end.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments at the end.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds the flag `--<name>=<value>`.
    pub fn flag(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.arg(flag)
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The command, in a process group of its own and tied to the life of the process that starts it.
    fn command(&self) -> Command {
        let mut command = if cfg!(target_os = "linux") {
            let mut wrapped = Command::new("setpriv");
            wrapped.args(["--pdeathsig", "KILL", "sh", "-c", RUN_FOR_PARENT, "sh"]);
            wrapped.arg(std::process::id().to_string()).arg(&self.program);
            wrapped
        } else {
            Command::new(&self.program)
        };
        // Programs prefer a kubeconfig file that the environment names to the one of their own configuration.
        command.env_remove("KUBECONFIG");
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).process_group(0);
        command
    }
}

/// Runs a program for the process whose id is the first argument. The kernel sends no signal for a parent that was killed before
/// `setpriv` asked for one, so the parent is compared afterwards.
const RUN_FOR_PARENT: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// A running (or ended) program.
pub struct Process {
    spec: Spec,
    dir: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a program; standard error is appended to `<name>.log` and standard output goes to `<name>.out.log`, both below `env`.
    ///
    /// Errors: when it cannot be started. A program that exits at once is noticed by [`Process::ready`].
    pub fn start(env: &TestEnv, spec: Spec) -> Result<Self> {
        let dir = env.make_dir(&spec.name)?;
        Self::start_in(dir, spec)
    }

    /// The same with its logs in a directory that exists.
    pub fn start_in(dir: PathBuf, spec: Spec) -> Result<Self> {
        let child = launch(&spec, &dir)?;
        Ok(Self { spec, dir, child })
    }

    /// Starts the same program again, with the same arguments; one that still runs is killed first.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.child = launch(&self.spec, &self.dir)?;
        Ok(())
    }

    /// The process id of the latest start.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The directory of its logs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All it wrote to standard error, since the first start.
    pub fn log(&self) -> String {
        read_text(&self.dir.join(format!("{}.log", self.spec.name)))
    }

    /// All it wrote to standard output since the latest start.
    pub fn output(&self) -> String {
        read_text(&self.output_path())
    }

    /// The file of [`Process::output`].
    pub fn output_path(&self) -> PathBuf {
        self.dir.join(format!("{}.out.log", self.spec.name))
    }

    /// How it ended; `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        // Children that it left behind are still in its group.
        self.signal_group(Signal::KILL);
        Some(status)
    }

    /// Waits until `probe` succeeds, at most for `deadline`.
    ///
    /// Errors: when the deadline passes, or at once when the program exits; the message has the end of its log.
    pub async fn ready<T>(
        &mut self,
        deadline: Duration,
        mut probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let what = format!("{} to be ready", self.spec.name);
        let outcome = until(&what, deadline, async || match self.exited() {
            Some(status) => Err(Hopeless(describe_exit(status)).into()),
            None => probe().await,
        });
        outcome.await.with_context(|| format!("its log ends:\n{}", last_lines(&self.log(), 12)))
    }

    /// Kills it and its children at once (SIGKILL), as a power failure would; returns when it is gone.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            self.signal_group(Signal::KILL);
            // Fails only when it was waited for already, and then it is gone.
            let _ = self.child.wait();
        }
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    ///
    /// Errors: when it still runs after `grace`; it is killed then.
    pub async fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.terminate();
        let what = format!("{} to stop", self.spec.name);
        let outcome = until(&what, grace, async || self.exited().ok_or_else(|| anyhow!("it still runs")));
        let outcome = outcome.await;
        self.kill();
        outcome
    }

    /// Asks it to stop (SIGTERM), and waits for nothing.
    pub fn terminate(&mut self) {
        if self.exited().is_none() {
            // It may have exited since; whoever waits for it sees that.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing answers, as with a machine that hangs.
    pub fn pause(&self) {
        self.signal_group(Signal::STOP);
    }

    /// Lets a frozen one go on.
    pub fn resume(&self) {
        self.signal_group(Signal::CONT);
    }

    /// Freezes it and all that it has started, whatever their groups, as the freezer of a container does.
    pub fn pause_all(&self) {
        self.signal_descendants(Signal::STOP);
    }

    /// Lets go on what [`Process::pause_all`] has frozen.
    pub fn resume_all(&self) {
        self.signal_descendants(Signal::CONT);
    }

    /// Freezes the first process among those that it has started whose command line holds this text, and none that this one has started.
    ///
    /// Errors: when there is none.
    pub fn pause_one(&self, command: &str) -> Result<()> {
        let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let found = descendants(self.child.id())
            .into_iter()
            .find(|pid| line(pid).replace('\0', " ").contains(command));
        let pid = found.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.with_context(|| format!("no process runs {command:?}"))?;
        kill_process(pid, Signal::STOP).with_context(|| format!("failed to freeze {command:?}"))
    }

    /// Parents first, until there is nobody new: who is frozen starts nobody.
    fn signal_descendants(&self, signal: Signal) {
        let mut reached = vec![];
        loop {
            let new: Vec<_> =
                descendants(self.child.id()).into_iter().filter(|pid| !reached.contains(pid)).collect();
            if new.is_empty() {
                return;
            }
            for pid in new {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    // It may have ended just now.
                    let _ = kill_process(pid, signal);
                }
                reached.push(pid);
            }
        }
    }

    fn signal_group(&self, signal: Signal) {
        // The only possible failure is that nobody is left in the group.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process and all below it, parents first.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // "pid (name) state parent ...": the name may hold anything, so what follows it is found from the end.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        if let Some(parent) = parent {
            parents.insert(pid, parent);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// Waits until the process of that id has ended.
///
/// Errors: when it still runs after `deadline`.
pub async fn wait_until_gone(pid: u32, deadline: Duration) -> Result<()> {
    until(&format!("process {pid} to be gone"), deadline, async || {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        // An orphan that has ended may never be collected: not every container has an init that does so.
        match stat.is_ok_and(|stat| !stat.contains(") Z ")) {
            true => bail!("it still runs"),
            false => Ok(()),
        }
    })
    .await
}

fn launch(spec: &Spec, dir: &Path) -> Result<Child> {
    let log = dir.join(format!("{}.log", spec.name));
    let mut command = spec.command();
    command.current_dir(dir);
    command.stderr(File::options().create(true).append(true).open(&log)?);
    command.stdout(File::create(dir.join(format!("{}.out.log", spec.name)))?);
    spawn(command).with_context(|| format!("failed to start {}", spec.program.display()))
}

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a command on the one thread that lives as long as this process.
fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                // Nobody listens when the test that asked is gone; dropping the answer leaves a child to the kernel's net.
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, result) = mpsc::channel();
    SPAWNER.send((command, answer)).map_err(|_| anyhow!("the thread that starts programs is gone"))?;
    Ok(result.recv()??)
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

fn read_text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

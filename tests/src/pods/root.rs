//! What a container sees, and the command line that shows it: namespaces of util-linux, no container runtime.
//!
//! The root is an overlay over the root of the machine: everything is there, and what is written vanishes with the container.
//! `/run` and `/tmp` are empty at first. File systems that the machine mounts below its root are there for reading. Volumes and
//! the programs of the image are put on top, so paths in a Pod mean what they say and nothing is rewritten.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::process::Spec;

/// The search path of containers that set none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes the root in a mount namespace that is its own already, and goes on as the program of the container.
const SCRIPT: &str = r#"
set -eu
PATH=$PATH:/usr/sbin:/sbin
root=$1
echo "$2" >/proc/sys/kernel/hostname
shift 2
mount -t tmpfs -o mode=755 testbed "$root"
cd "$root"
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work testbed root
cd root
mkdir .host
pivot_root . .host
for dir in proc sys dev; do mount --rbind "/.host/$dir" "/$dir"; done
for dir in run tmp; do mount -t tmpfs -o mode=1777 testbed "/$dir"; done
while [ "$1" != -- ]; do
  if [ "$1" = link ]; then
    ln -sfn "$2" "$3"
  else
    if [ -d "/.host$2" ]; then
      mkdir -p "$3"
    elif ! [ -e "$3" ]; then
      mkdir -p "$(dirname "$3")"
      rm -f "$3"
      : >"$3"
    fi
    mount --rbind "/.host$2" "$3"
    [ "$1" = rw ] || mount -o remount,bind,ro "$3"
  fi
  shift 3
done
shift
umount -l /.host
rmdir /.host
: >/.container
exec "$@"
"#;

/// What containers have for themselves.
const HIDDEN: [&str; 2] = ["/run", "/tmp"];

/// A file that the root of a container has once it is complete.
pub(super) const COMPLETE: &str = ".container";

/// A file or directory of the machine that a container sees at a place of its own.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    pub source: PathBuf,
    pub place: PathBuf,
    pub writable: bool,
}

/// Everything that makes a container.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The name in log lines.
    pub name: String,
    pub host_name: String,
    /// nsenter's options for the namespaces that it starts from.
    pub namespaces: Vec<String>,
    /// An empty directory that becomes the root.
    pub root: PathBuf,
    pub mounts: Vec<Mount>,
    /// Programs that are found in `/usr/local/bin`.
    pub programs: Vec<PathBuf>,
    pub command: Invocation,
}

/// A command line inside a container.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    pub argv: Vec<String>,
    pub working_dir: String,
    pub env: BTreeMap<String, String>,
}

impl Shape {
    pub(super) fn spec(&self) -> Spec {
        let mut words: Vec<OsString> = Vec::new();
        let triple = |kind: &str, source: &Path, place: &Path| -> [OsString; 3] {
            [kind.into(), source.into(), place.into()]
        };
        for mount in &self.mounts {
            let kind = if mount.writable { "rw" } else { "ro" };
            words.extend(triple(kind, &mount.source, &mount.place));
        }
        for program in &self.programs {
            // Where nothing of the machine is seen, a link would lead nowhere.
            if HIDDEN.iter().any(|dir| program.starts_with(dir)) {
                words.extend(triple("ro", program, program));
            }
            let name = Path::new("/usr/local/bin").join(program.file_name().unwrap_or_default());
            words.extend(triple("link", program, &name));
        }
        Spec::new(&self.name, "nsenter")
            .args(&self.namespaces)
            .args(["unshare", "--mount", "--uts", "/bin/sh", "-c", SCRIPT, "testbed"])
            .arg(&self.root)
            .arg(&self.host_name)
            .args(words)
            .arg("--")
            .args(self.command.words())
    }
}

impl Invocation {
    /// A command that runs beside the process of that id, in the same container.
    pub(super) fn beside(&self, pid: u32) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--mount", "--net", "--uts"]).args(self.words());
        command
    }

    /// By `env`, because containers inherit nothing of the tests' own environment.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["env".to_owned(), "-i".to_owned(), "-C".to_owned(), self.working_dir.clone()];
        if !self.env.contains_key("PATH") {
            words.push(format!("PATH={PATH}"));
        }
        words.extend(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(self.argv.iter().cloned());
        words
    }
}

/// What the machine has mounted below its root, apart from what containers get anyway or must not see.
///
/// `table` is `/proc/self/mountinfo`.
pub(super) fn other_mounts(table: &str, env: &Path) -> Vec<Mount> {
    let own = ["/proc", "/sys", "/dev", "/run", "/tmp"].map(Path::new);
    let mut places: Vec<PathBuf> = Vec::new();
    let mut all: Vec<PathBuf> =
        table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect();
    all.sort();
    for place in all.into_iter().filter(|place| place != Path::new("/") && place.is_dir()) {
        let known = own.iter().any(|dir| place.starts_with(dir)) || place.starts_with(env);
        // Those below another one come with it.
        if !known && !places.iter().any(|outer| place.starts_with(outer)) {
            places.push(place);
        }
    }
    places.into_iter().map(|place| Mount { source: place.clone(), place, writable: false }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_systems_of_the_machine_are_seen_once_and_not_written() {
        // Directories that are everywhere stand for mount points.
        let table = "1 0 8:1 / / rw - ext4 a rw\n2 1 0:2 / /proc rw - proc p rw\n3 1 8:2 / /usr rw - ext4 b rw\n\
                     4 3 8:3 / /usr/lib rw - ext4 c rw\n5 1 0:5 / /dev/shm rw - tmpfs t rw\n6 1 8:4 / /env/x rw - ext4 d rw";
        let seen = other_mounts(table, Path::new("/env"));
        let seen: Vec<_> = seen.iter().map(|mount| (mount.place.as_path(), mount.writable)).collect();
        assert_eq!(seen, [(Path::new("/usr"), false)]);
    }

    #[test]
    fn environment_is_the_container_s_own() {
        let env = BTreeMap::from([("A".to_owned(), "b c".to_owned())]);
        let invocation = Invocation { argv: vec!["etcd".to_owned()], working_dir: "/".to_owned(), env };
        assert_eq!(invocation.words(), ["env", "-i", "-C", "/", &format!("PATH={PATH}"), "A=b c", "etcd"]);
    }
}

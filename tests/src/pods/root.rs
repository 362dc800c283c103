//! What a container sees, and the command line that shows it: namespaces of util-linux, no container runtime.
//!
//! The root is an overlay: over the root of the machine, or over the root directory of the image. What is written vanishes with
//! the container, or nothing can be written (`readOnlyRootFilesystem`). Over the root of the machine, `/run` and `/tmp` are empty
//! at first, and file systems that the machine mounts below its root are there for reading. A root directory of an image gets
//! `/proc`, `/sys` and a `/dev` with the usual devices, as from a container runtime. Volumes and the programs of the image are put
//! on top, so paths in a Pod mean what they say and nothing is rewritten.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::process::Command;

use super::image::Image;
use super::security::Security;
use crate::process::Spec;

/// The search path of containers that set none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where programs of an image are found.
pub(super) const BIN: &str = "/usr/local/bin";

/// Makes the root in a mount namespace that is its own already, and goes on as the program of the container.
///
/// A root directory of an image becomes the root with the last step only: before that, programs of the machine are needed.
const SCRIPT: &str = r#"
set -eu
PATH=$PATH:/usr/sbin:/sbin
root=$1 image=$2
echo "$3" >/proc/sys/kernel/hostname
shift 3
mount -t tmpfs -o mode=755 testbed "$root"
cd "$root"
mkdir upper work root
mount -t overlay -o "lowerdir=$image,upperdir=upper,workdir=work" testbed root
if [ "$image" = / ]; then
  cd root
  mkdir .host
  pivot_root . .host
  host=/.host new=
  for dir in proc sys dev; do mount --rbind "/.host/$dir" "/$dir"; done
  for dir in run tmp; do mount -t tmpfs -o mode=1777 testbed "/$dir"; done
else
  host= new=$root/root
  mkdir -p "$new/proc" "$new/sys" "$new/dev"
  mount --rbind /proc "$new/proc"
  mount --rbind /sys "$new/sys"
  mount -t tmpfs -o mode=755 testbed "$new/dev"
  mkdir "$new/dev/shm"
  mount -t tmpfs -o mode=1777 testbed "$new/dev/shm"
  for device in null zero full random urandom tty; do
    : >"$new/dev/$device"
    mount --bind "/dev/$device" "$new/dev/$device"
  done
  ln -s /proc/self/fd "$new/dev/fd"
  ln -s /proc/self/fd/0 "$new/dev/stdin"
  ln -s /proc/self/fd/1 "$new/dev/stdout"
  ln -s /proc/self/fd/2 "$new/dev/stderr"
fi
while [ "$1" != -- ]; do
  if [ "$1" = link ]; then
    ln -sfn "$2" "$3"
  else
    if [ -d "$host$2" ]; then
      mkdir -p "$new$3"
    elif ! [ -e "$new$3" ]; then
      mkdir -p "$(dirname "$new$3")"
      rm -f "$new$3"
      : >"$new$3"
    fi
    mount --rbind "$host$2" "$new$3"
    [ "$1" = rw ] || mount -o remount,bind,ro "$new$3"
  fi
  shift 3
done
shift
if [ -z "$new" ]; then
  umount -l /.host
  rmdir /.host
fi
: >"$new/.container"
while [ "$1" != -- ]; do
  mount -o remount,bind,ro "$new$1"
  shift
done
shift
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
    pub image: Image,
    pub command: Invocation,
}

/// A command line inside a container.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    pub argv: Vec<String>,
    pub working_dir: String,
    pub env: BTreeMap<String, String>,
    pub security: Security,
}

impl Shape {
    pub(super) fn spec(&self) -> Spec {
        let below = self.image.root.as_deref();
        let new_root = below.map(|_| self.root.join("root").display().to_string());
        Spec::new(&self.name, "nsenter")
            .args(&self.namespaces)
            .args(["unshare", "--mount", "--uts", "/bin/sh", "-c", SCRIPT, "testbed"])
            .arg(&self.root)
            .arg(below.unwrap_or(Path::new("/")))
            .arg(&self.host_name)
            .args(self.mount_words())
            .arg("--")
            .args(self.protected())
            .arg("--")
            .args(self.command.words(new_root.as_deref()))
    }

    fn mount_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |kind: &str, source: &Path, place: &Path| {
            words.extend([OsString::from(kind), source.into(), place.into()]);
        };
        for (source, place) in &self.image.files {
            add("ro", source, place);
        }
        for mount in &self.mounts {
            add(if mount.writable { "rw" } else { "ro" }, &mount.source, &mount.place);
        }
        for program in &self.image.programs {
            let name = Path::new(BIN).join(program.file_name().unwrap_or_default());
            // Only root is sure to get at the program at its place on the machine.
            if self.command.security.user != 0 {
                add("ro", program, &name);
                continue;
            }
            // Where nothing of the machine is seen, a link would lead nowhere.
            if HIDDEN.iter().any(|dir| program.starts_with(dir)) {
                add("ro", program, program);
            }
            add("link", program, &name);
        }
        words
    }

    /// What is made read-only at last: the root, and what the container has for itself, unless a volume is there.
    fn protected(&self) -> Vec<&str> {
        if !self.command.security.read_only_root {
            return Vec::new();
        }
        let own = HIDDEN.into_iter().filter(|_| self.image.root.is_none());
        let own = own.filter(|dir| !self.mounts.iter().any(|mount| mount.place == Path::new(dir)));
        std::iter::once("/").chain(own).collect()
    }
}

impl Invocation {
    /// A command that runs beside the process of that id, in the same container and as its user.
    pub(super) fn beside(&self, pid: u32) -> Command {
        let mut command = Command::new("/usr/bin/nsenter");
        command.args(["--target", &pid.to_string(), "--mount", "--net", "--uts", "--root", "--wd"]);
        if self.security.user != 0 {
            let Security { user, group, .. } = self.security;
            command.arg(format!("--setgid={group}")).arg(format!("--setuid={user}"));
        }
        command.args(&self.argv).env_clear().envs(self.env());
        command
    }

    fn env(&self) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        env
    }

    /// The command line, without the tests' own environment. `root`: what becomes the root with it.
    fn words(&self, root: Option<&str>) -> Vec<String> {
        if root.is_some() || !self.security.is_unlimited() {
            let run = json!({"argv": self.argv, "env": self.env()});
            return self.security.become_words(root, &self.working_dir, &run);
        }
        let mut words = vec!["env".to_owned(), "-i".to_owned(), "-C".to_owned(), self.working_dir.clone()];
        words.extend(self.env().iter().map(|(name, value)| format!("{name}={value}")));
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
    use k8s_openapi::api::core::v1::{Container, PodSpec};

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
        let security = Security::of(&PodSpec::default(), &Container::default(), (0, 0)).expect("security");
        let argv = vec!["etcd".to_owned()];
        let invocation = Invocation { argv, working_dir: "/".to_owned(), env, security };
        let words = ["env", "-i", "-C", "/", "A=b c", &format!("PATH={PATH}"), "etcd"];
        assert_eq!(invocation.words(None), words);
        assert!(invocation.words(Some("/new"))[0].contains("python"));
    }
}

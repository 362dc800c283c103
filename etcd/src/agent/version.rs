//! Whether the program etcd knows the flags that it is given. An older one would end at once, again and again, and say only that a
//! flag is not defined.

use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

/// Flags that came after the oldest etcd that an agent runs (3.5), and the first version that has them.
///
/// etcd 3.5 calls the first one `experimental-peer-skip-client-san-verification`.
const SINCE: &[(&str, Version)] = &[("peer-skip-client-san-verification", Version(3, 6))];
/// How long the program may take to tell its version.
const ANSWER: Duration = Duration::from_secs(10);

/// The first two numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

/// Tells which flag the program is too old for, if there is one. A program that does not tell its version is left to fail by itself.
pub(super) async fn too_old(etcd: &Path, flags: &BTreeMap<String, String>) -> Option<String> {
    let needed = || SINCE.iter().filter(|(flag, _)| flags.contains_key(*flag));
    needed().next()?;
    let found = ask(etcd).await?;
    let (flag, Version(major, minor)) = needed().find(|(_, since)| found < *since)?;
    Some(format!(
        "EtcdTooOld: etcd is {}.{}, and --{flag} needs {major}.{minor} or later; use an image with a later etcd, \
         or do without what asks for the flag",
        found.0, found.1
    ))
}

async fn ask(etcd: &Path) -> Option<Version> {
    let mut command = Command::new(etcd);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(ANSWER, command.output()).await.ok()?.ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads `etcd Version: 3.6.16`.
fn parse(text: &str) -> Option<Version> {
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?.trim();
    let mut numbers = version.split('.');
    Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_by_their_numbers() {
        for (text, expected) in [
            ("etcd Version: 3.6.16\nGit SHA: x\n", Some(Version(3, 6))),
            ("etcd Version: 3.10.0-alpha\n", Some(Version(3, 10))),
            ("etcd version 3.5", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert!(Version(3, 10) > Version(3, 6) && Version(3, 5) < Version(3, 6));
    }
}

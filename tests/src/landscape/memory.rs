//! The memory of this process and of all that it has started, by program.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use crate::process::descendants;

/// Memory and number of the processes of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many processes run.
    pub processes: usize,
    /// Their proportional set size in KiB: pages that several processes map count once in all.
    pub kib: u64,
}

/// The memory of this process and its descendants by the name of the program.
///
/// Errors: when the kernel tells nothing about this process. Processes that end meanwhile are left out.
pub fn usage() -> Result<BTreeMap<String, Usage>> {
    let own = std::process::id();
    proportional_kib(own).context("the kernel does not tell the memory of this process")?;
    let mut programs = BTreeMap::<String, Usage>::new();
    for pid in descendants(own) {
        let Some(kib) = proportional_kib(pid) else { continue };
        let usage = programs.entry(program(pid)).or_default();
        usage.processes += 1;
        usage.kib += kib;
    }
    Ok(programs)
}

/// A table for people: MiB and processes of each program, the largest first, and the sum.
pub fn table(usage: &BTreeMap<String, Usage>) -> String {
    let mut rows: Vec<_> = usage.iter().collect();
    rows.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.kib));
    let line =
        |name: &str, kib: u64, processes: usize| format!("{:>8} MiB {processes:>4}  {name}\n", kib / 1024);
    let all = (usage.values().map(|one| one.kib).sum(), usage.values().map(|one| one.processes).sum());
    let rows = rows.into_iter().map(|(name, usage)| line(name, usage.kib, usage.processes));
    rows.chain([line("in all", all.0, all.1)]).collect()
}

fn program(pid: u32) -> String {
    let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn proportional_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_memory_of_this_process() {
        let usage = usage().expect("the kernel tells it");
        let own = fs::read_link("/proc/self/exe").expect("a program");
        let name = own.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(usage.get(&name).is_some_and(|usage| usage.kib > 100), "{usage:?}");
        assert!(table(&usage).ends_with("in all\n"));
    }
}

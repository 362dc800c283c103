//! Whether the memory limit of this process has room for a profile. Its samples take memory at once, which is not given back: a
//! profile must not end a server that is near its limit.

use std::{fs, path::Path};

/// What the first profile of a process takes, in bytes: measured, and rounded up (`docs/operate/profiling.md`).
const NEEDED: u64 = 192 << 20;
const CGROUPS: &str = "/sys/fs/cgroup";

/// Says why there is too little memory, if there is. Where the system does not tell, there is enough.
pub(super) fn shortage() -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let dir = Path::new(CGROUPS).join(path);
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    shortage_of(&read("memory.max")?, &read("memory.stat")?)
}

/// The same from the files of the cgroup. What can be reclaimed, such as the page cache, counts as free.
fn shortage_of(max: &str, stat: &str) -> Option<String> {
    let limit: u64 = max.trim().parse().ok()?;
    let used: u64 = stat.lines().find_map(|line| line.strip_prefix("anon "))?.trim().parse().ok()?;
    let left = limit.saturating_sub(used);
    let mebibytes = |bytes: u64| bytes >> 20;
    (left < NEEDED).then(|| {
        format!(
            "it takes up to {} MiB of memory, and the limit leaves {} MiB",
            mebibytes(NEEDED),
            mebibytes(left)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_near_is_a_shortage() {
        let stat = |anon: u64| format!("anon {anon}\nfile 900000000\n");
        assert_eq!(shortage_of("max\n", &stat(1 << 40)), None);
        assert_eq!(shortage_of("536870912\n", &stat(100 << 20)), None);
        let why = shortage_of("536870912\n", &stat(400 << 20)).expect("a shortage");
        assert_eq!(why, "it takes up to 192 MiB of memory, and the limit leaves 112 MiB");
        assert_eq!(shortage_of("nonsense", &stat(0)), None);
        assert_eq!(shortage_of("1", "file 1"), None);
    }
}

//! How the system's allocator treats large buffers. glibc takes a buffer for one that will be needed again once it was given back,
//! and from then on keeps as much in each of its arenas: with objects of 24 MiB written 8 at a time that was more than the
//! budget of the server. So large buffers are given back at once. Then each new one is filled page by page, and a fault for each 4 KiB
//! takes longer than to fill them: the kernel is asked for huge pages. glibc is told by environment variables, and only at the start
//! of a process, so the program starts itself again where somebody has not set them.

use std::{env, os::unix::process::CommandExt, process::Command};

const SETTINGS: [(&str, &str); 2] = [
    // Bytes from which a buffer is given back to the system at once.
    ("MALLOC_MMAP_THRESHOLD_", "2097152"),
    // Huge pages for those, where the kernel grants them to who asks (`madvise`).
    ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
];

/// Sees to it that large buffers are given back, and quickly filled; does not return where that takes another start of the program.
pub fn give_large_buffers_back() {
    let unset = SETTINGS.iter().filter(|(variable, _)| env::var_os(variable).is_none());
    let missing: Vec<_> = unset.copied().collect();
    if missing.is_empty() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Comes back only where it failed: the server then serves as it is, and takes a little more memory.
    let _ = again.args(arguments).envs(missing).exec();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_set_the_same() {
        let containerfile = include_str!("../../deploy/image/Containerfile");
        for (variable, value) in SETTINGS {
            let set = format!("{variable}={value}");
            assert!(containerfile.split_whitespace().any(|word| word == set), "images do not set {set}");
        }
    }
}

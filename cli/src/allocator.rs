//! How the system's allocator treats large buffers. glibc takes a buffer for one that will be needed again once it was given back,
//! and from then on keeps as much in each of its arenas: with objects of 24 MiB written 8 at a time that was more than the
//! budget of the server. It is told by an environment variable, and only at the start of a process, so the program starts itself
//! again where nobody has set it.

use std::{env, os::unix::process::CommandExt, process::Command};

const VARIABLE: &str = "MALLOC_MMAP_THRESHOLD_";
/// Bytes from which a buffer is given back to the system at once.
const LARGE: usize = 2 << 20;

/// Sees to it that large buffers are given back; does not return where that takes another start of the program.
pub fn give_large_buffers_back() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Comes back only where it failed: the server then serves as it is, and takes a little more memory.
    let _ = again.args(arguments).env(VARIABLE, LARGE.to_string()).exec();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_set_the_same_threshold() {
        let containerfile = include_str!("../../deploy/image/Containerfile");
        assert!(
            containerfile.contains(&format!("{VARIABLE}={LARGE}\n")),
            "{VARIABLE} is not {LARGE} in images"
        );
    }
}

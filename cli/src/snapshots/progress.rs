//! One line on a terminal that is drawn again and again.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicU64, Ordering},
};

const WIDTH: u64 = 30;
const MIB: u64 = 1 << 20;

/// A bar on standard error; nothing where that is no terminal.
pub struct Bar {
    what: &'static str,
    shown: bool,
    total: AtomicU64,
    done: AtomicU64,
}

impl Bar {
    /// A bar for a task.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            shown: std::io::stderr().is_terminal(),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// So many bytes are to be done in all.
    pub fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// So many more are done.
    pub fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.shown {
            return;
        }
        let total = self.total.load(Ordering::Relaxed).max(done).max(1);
        let filled = done * WIDTH / total;
        let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
        eprint!("\r{} [{bar}] {}/{} MiB", self.what, done / MIB, total / MIB);
    }

    /// A line of its own above the bar; it comes in any case when it matters.
    pub fn say(&self, text: &str) {
        if self.shown {
            eprintln!("\r\x1b[2K{text}");
        }
    }

    /// Ends the line of the bar, where one is shown.
    pub fn end(&self) {
        if self.shown && self.done.load(Ordering::Relaxed) > 0 {
            eprintln!();
        }
    }
}

//! What a person sees while a rehearsal runs: one line for each phase and step, and on a terminal a last line that is redrawn.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use parking_lot::Mutex;
use repot_console::text::{duration, one_line};

/// The last line is no longer than this, so that a terminal does not wrap it.
const STATUS_WIDTH: usize = 79;
const CLEAR: &str = "\r\u{1b}[2K";

/// Lines on standard error, with the time since the beginning.
pub struct Progress {
    begun: Instant,
    is_terminal: bool,
    status: Mutex<String>,
}

impl Progress {
    /// Begins to count the time.
    pub fn start() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { begun: Instant::now(), is_terminal, status: Mutex::new(String::new()) }
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        let status = self.status.lock();
        let line = format!("{:>6}  {}\n", self.time(), one_line(text));
        self.write(&if self.is_terminal { format!("{CLEAR}{line}{status}") } else { line });
    }

    /// Redraws the last line of a terminal; elsewhere nothing is printed.
    pub fn status(&self, text: &str) {
        let mut status = self.status.lock();
        if self.is_terminal {
            *status = one_line(&format!("{:>6}  {text}", self.time())).chars().take(STATUS_WIDTH).collect();
            self.write(&format!("{CLEAR}{status}"));
        }
    }

    /// Removes the last line of a terminal.
    pub fn clear(&self) {
        let mut status = self.status.lock();
        if !status.is_empty() {
            status.clear();
            self.write(CLEAR);
        }
    }

    fn time(&self) -> String {
        duration(i64::try_from(self.begun.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    fn write(&self, text: &str) {
        // Nobody is left to be told when standard error is gone.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

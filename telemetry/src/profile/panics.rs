//! Threads that panic are not sampled while they unwind.
//!
//! For some instructions of unwinding, a stack is not as unwind tables say, and whoever takes it then may read where no memory is. A
//! program that panicked all the time, with a profile at 997 Hz, ended within seconds by SIGSEGV. So the signal of the profiler is
//! blocked in a thread from its panic on.

use std::sync::Once;

use nix::sys::signal::{SigSet, Signal};

/// From now on, threads that panic are not sampled any more.
pub(super) fn shield() {
    static SHIELDED: Once = Once::new();
    SHIELDED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Fails for no signal that there is.
            let _ = signal().thread_block();
            before(info);
        }));
    });
}

/// The panic of this thread was caught: it may be sampled again. A thread for which nobody says so is not, until the process ends.
pub fn caught() {
    let _ = signal().thread_unblock();
}

fn signal() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGPROF);
    set
}

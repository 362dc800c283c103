//! How many Shoots are synchronized at a time: a few with large states, or more with small ones. Each is held in memory whole, as it is
//! in the seed and as it is in the garden, so their sizes bound the memory; their number bounds the requests to the seed.

use std::collections::HashMap;

/// Synchronizations at a time, whatever their size.
const MOST: usize = 16;
/// Bytes of all states that are synchronized at a time. The last one that is started may exceed it.
const MOST_BYTES: usize = 32 << 20;
/// Bytes that a state counts with whose size is not known yet.
const UNKNOWN: usize = 8 << 20;

/// The synchronizations that run, by the namespace of the control plane.
#[derive(Debug, Default)]
pub struct Load {
    /// Size of each state when it was last read, in bytes.
    sizes: HashMap<String, usize>,
    running: HashMap<String, usize>,
}

impl Load {
    /// Whether one more may start.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.running.len() < MOST && self.running.values().sum::<usize>() < MOST_BYTES
    }

    /// Records the start of a synchronization.
    pub fn start(&mut self, namespace: &str) {
        let size = self.sizes.get(namespace).copied().unwrap_or(UNKNOWN);
        self.running.insert(namespace.to_owned(), size);
    }

    /// Records the end of a synchronization, and how many bytes the state has where it was read.
    pub fn end(&mut self, namespace: &str, size: Option<usize>) {
        self.running.remove(namespace);
        if let Some(size) = size {
            self.sizes.insert(namespace.to_owned(), size);
        }
    }

    /// Forgets sizes of states that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.sizes.retain(|namespace, _| is_there(namespace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts what there is room for.
    fn fill(load: &mut Load, prefix: &str) -> Vec<String> {
        let mut started = Vec::new();
        while load.has_room() {
            let name = format!("{prefix}-{}", started.len());
            load.start(&name);
            started.push(name);
        }
        started
    }

    #[test]
    fn small_states_are_synchronized_in_greater_number() {
        let mut load = Load::default();
        let started = fill(&mut load, "a");
        assert_eq!(started.len(), MOST_BYTES / UNKNOWN, "sizes are not known");
        started.iter().for_each(|name| load.end(name, Some(1 << 20)));
        let all: Vec<String> = (0..40).map(|number| format!("a-{number}")).collect();
        all.iter().for_each(|name| load.end(name, Some(1 << 20)));
        assert_eq!(fill(&mut load, "a").len(), MOST);
        all.iter().for_each(|name| load.end(name, Some(12 << 20)));
        assert_eq!(fill(&mut load, "a").len(), 3);
        // A size that was not read anew is the last one.
        all.iter().for_each(|name| load.end(name, None));
        assert_eq!(fill(&mut load, "a").len(), 3);
        all.iter().for_each(|name| load.end(name, None));
        load.retain(|_| false);
        assert_eq!(fill(&mut load, "a").len(), MOST_BYTES / UNKNOWN);
    }
}

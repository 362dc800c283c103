//! How many Shoots are synchronized at a time: a few with large states, or more with small ones. Each is held in memory whole, as it is
//! in the seed and as it is in the garden, so their sizes bound the memory; their number bounds the requests to the seed.

use std::collections::HashMap;

/// Synchronizations at a time, whatever their size.
const MOST: usize = 16;
/// Bytes of all states that are synchronized at a time, as they count. The last one that is started may exceed it.
const MOST_BYTES: usize = 32 << 20;
/// A larger state counts with so many bytes, and one whose size is not known yet: so four of these run at a time, and one that hangs
/// does not keep all others waiting.
const COUNTED: usize = 8 << 20;

/// The synchronizations that run, by the namespace of the control plane.
#[derive(Debug, Default)]
pub struct Load {
    /// What was read of each state in its seed, in bytes.
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
        let size = self.sizes.get(namespace).copied().unwrap_or(COUNTED);
        self.running.insert(namespace.to_owned(), size.min(COUNTED));
    }

    /// Records how many bytes were read of a state; of a part of it, the size is at least that.
    pub fn learn(&mut self, namespace: &str, size: usize, is_whole: bool) {
        let known = self.sizes.get(namespace).copied().filter(|_| !is_whole).unwrap_or(0);
        // Nothing is known of the other parts of a state that was never read whole.
        if is_whole || self.sizes.contains_key(namespace) {
            self.sizes.insert(namespace.to_owned(), size.max(known));
        }
    }

    /// Records the end of a synchronization.
    pub fn end(&mut self, namespace: &str) {
        self.running.remove(namespace);
    }

    /// Forgets sizes of states that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.sizes.retain(|namespace, _| is_there(namespace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts what there is room for, and gives how many these are.
    fn fill(load: &mut Load) -> usize {
        let mut started = 0;
        while load.has_room() {
            load.start(&format!("a-{started}"));
            started += 1;
        }
        started
    }

    /// After 40 Shoots were synchronized, of each of which so much was read.
    fn after(size: usize, is_whole: bool) -> Load {
        let mut load = Load::default();
        for number in 0..40 {
            let name = format!("a-{number}");
            load.start(&name);
            load.learn(&name, size, is_whole);
            load.end(&name);
        }
        load
    }

    #[test]
    fn small_states_are_synchronized_in_greater_number() {
        assert_eq!(fill(&mut Load::default()), 4, "sizes are not known");
        assert_eq!(fill(&mut after(1 << 20, true)), MOST);
        assert_eq!(fill(&mut after(4 << 20, true)), 8);
        assert_eq!(
            fill(&mut after(40 << 20, true)),
            4,
            "one that is large counts like one that is not known"
        );
        let mut forgotten = after(1 << 20, true);
        forgotten.retain(|_| false);
        assert_eq!(fill(&mut forgotten), 4);
    }

    #[test]
    fn part_of_a_state_makes_it_no_smaller() {
        assert_eq!(fill(&mut after(1, false)), 4, "the other parts are not known");
        let mut load = after(4 << 20, true);
        (0..40).for_each(|number| load.learn(&format!("a-{number}"), 1, false));
        assert_eq!(fill(&mut load), 8);
        (0..40).for_each(|number| load.learn(&format!("a-{number}"), 8 << 20, false));
        load.running.clear();
        assert_eq!(fill(&mut load), 4);
    }
}

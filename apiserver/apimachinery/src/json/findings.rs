//! What does not fit, and where.

/// What did not fit. All of it, in document order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// `unknown field "spec.x"`, `duplicate field "spec.y"`: refused or warned of, as the client wishes.
    pub strict: Vec<String>,
    /// `spec.gardener: expected an array, got a string`: always refused.
    pub mismatches: Vec<String>,
    counts: Counts,
}

/// How many there were of each sort. Of each, [`MAX_FINDINGS`] are kept.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    unknown: usize,
    duplicate: usize,
    mismatch: usize,
}

/// Where the reader is, as strict decoding prints it: `spec.gardener[3].data`.
#[derive(Default)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn within_field<T>(&mut self, field: &str, f: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.enter_field(field);
        let result = f(self);
        self.leave_to(outside);
        result
    }

    pub(super) fn within_item<T>(&mut self, at: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.enter_item(at);
        let result = f(self);
        self.leave_to(outside);
        result
    }

    /// Goes into a field, for [`Path::leave_to`] with what is returned; where a closure does not fit.
    pub(super) fn enter_field(&mut self, field: &str) -> usize {
        let outside = self.0.len();
        if outside > 0 {
            self.0.push('.');
        }
        self.0.push_str(field);
        outside
    }

    /// Goes into an item of a list, in the same way.
    pub(super) fn enter_item(&mut self, at: usize) -> usize {
        let outside = self.0.len();
        self.0.push_str(&format!("[{at}]"));
        outside
    }

    pub(super) fn leave_to(&mut self, outside: usize) {
        self.0.truncate(outside);
    }

    pub(super) fn join(&self, field: &str) -> String {
        if self.0.is_empty() { field.to_owned() } else { format!("{}.{field}", self.0) }
    }

    pub(super) fn whole(&self) -> &str {
        if self.0.is_empty() { "the document" } else { &self.0 }
    }
}

/// Findings of one sort beyond this many are counted and not kept: they would only fill answers and memory.
const MAX_FINDINGS: usize = 100;
/// A finding is cut off there, in bytes: keys may be of megabytes.
const MAX_LENGTH: usize = 1024;

impl Findings {
    pub(super) fn unknown(&mut self, finding: impl FnOnce() -> String) {
        keep(&mut self.counts.unknown, &mut self.strict, finding);
    }

    pub(super) fn duplicate(&mut self, finding: impl FnOnce() -> String) {
        keep(&mut self.counts.duplicate, &mut self.strict, finding);
    }

    pub(super) fn mismatch(&mut self, finding: impl FnOnce() -> String) {
        keep(&mut self.counts.mismatch, &mut self.mismatches, finding);
    }

    /// Tells at the end of each list how many are left out.
    pub(crate) fn tell_omitted(&mut self) {
        let Counts { unknown, duplicate, mismatch } = self.counts;
        let strict = unknown.saturating_sub(MAX_FINDINGS) + duplicate.saturating_sub(MAX_FINDINGS);
        let mismatches = mismatch.saturating_sub(MAX_FINDINGS);
        for (list, omitted) in [(&mut self.strict, strict), (&mut self.mismatches, mismatches)] {
            if omitted > 0 {
                list.push(format!("and {omitted} more"));
            }
        }
    }
}

fn keep(count: &mut usize, list: &mut Vec<String>, finding: impl FnOnce() -> String) {
    *count += 1;
    if *count <= MAX_FINDINGS {
        list.push(crate::field::shortened(finding(), MAX_LENGTH));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_sort_a_hundred_are_kept_and_the_others_counted() {
        let mut findings = Findings::default();
        for n in 0..150 {
            findings.duplicate(|| format!("duplicate field {n}"));
            findings.mismatch(|| "x".repeat(10_000));
        }
        findings.unknown(|| "unknown field z".to_owned());
        findings.tell_omitted();
        assert_eq!((findings.strict.len(), findings.mismatches.len()), (102, 101));
        assert!(findings.strict.contains(&"unknown field z".to_owned()), "others have displaced it");
        assert_eq!(findings.strict.last().map(String::as_str), Some("and 50 more"));
        assert!(findings.mismatches.iter().all(|text| text.len() <= MAX_LENGTH + 3));
    }
}

//! What does not fit, and where.

/// What did not fit. All of it, in document order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// `unknown field "spec.x"`, `duplicate field "spec.y"`: refused or warned of, as the client wishes.
    pub strict: Vec<String>,
    /// `spec.gardener: expected an array, got a string`: always refused.
    pub mismatches: Vec<String>,
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

/// Findings beyond this many are not kept: they would only fill answers.
const MAX_FINDINGS: usize = 100;

impl Findings {
    pub(super) fn strict(&mut self, finding: impl FnOnce() -> String) {
        if self.strict.len() < MAX_FINDINGS {
            self.strict.push(finding());
        }
    }

    pub(super) fn mismatch(&mut self, finding: impl FnOnce() -> String) {
        if self.mismatches.len() < MAX_FINDINGS {
            self.mismatches.push(finding());
        }
    }
}

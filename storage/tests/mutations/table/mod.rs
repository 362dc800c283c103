//! The table of mutations: the fault that each one makes, and the test that must find it.

mod backends;
mod keys;
mod store;

/// One change of the source that makes one fault.
pub struct Mutation {
    /// Names the mutation in reports, and in `REPOT_MUTATION`; it is unique.
    pub name: &'static str,
    /// The mutated file, relative to `storage/src`.
    pub file: &'static str,
    /// The text that is replaced: an expression, or statements that end with `;`. It occurs exactly once in the file.
    pub from: &'static str,
    /// The text that replaces it, of the same form and type. An empty one removes a statement.
    pub to: &'static str,
    /// What the mutated code does, for the document.
    pub fault: &'static str,
    /// The test that fails on the mutated code, and passes on the code as it is.
    pub test: Test,
    /// Whether no test without etcd found the fault before, so that this one was written for it.
    pub test_is_new: bool,
}

/// A test, by the name that the test program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// In the unit tests of the crate.
    Lib(&'static str),
    /// In the program `it` of `storage/tests`.
    It(&'static str),
}

impl Test {
    pub fn name(self) -> &'static str {
        match self {
            Self::Lib(name) | Self::It(name) => name,
        }
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lib(name) => f.write_str(name),
            Self::It(name) => write!(f, "it {name}"),
        }
    }
}

/// Every mutation, in the order of the document.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    [keys::ALL, store::ALL, backends::ALL].into_iter().flatten()
}

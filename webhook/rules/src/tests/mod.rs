//! Tables of changes, and properties of all rules.

//! Whether an installation of Repot is well, and what a maintainer needs to know of it.
//!
//! | file | has |
//! |---|---|
//! | `finding.rs` | what a check has found, and the report of all checks |
//! | `survey.rs` | what is installed: kinds, Pods, namespaces, the time of the API server |
//! | `run.rs` | all checks, each within its own time |
//! | `checks/` | one file for each subject |
//! | `redact/` | removes what is secret from texts and objects |
//! | `bundle/` | one archive of findings, objects and logs |

pub mod bundle;
mod checks;
pub mod finding;
pub mod redact;
pub mod run;
pub mod survey;

#[cfg(test)]
use checks::authority as tests_authority;
use checks::certificate_blocks;

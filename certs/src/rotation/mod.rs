//! When authorities and serving certificates are replaced. At each time, whoever connects trusts what it is shown:
//!
//! | step | what happens | when |
//! |---|---|---|
//! | 1 | a new authority is made | there is none, two thirds of the life of the newest are over, or somebody asks for it |
//! | 2 | the bundle names it beside the older ones | at once |
//! | 3 | it signs serving certificates | all who connect have had the bundle for the overlap |
//! | 4 | older authorities are removed | all serving certificates have been signed by it for the overlap |
//!
//! This module decides. Whoever keeps the Secrets acts: reads them, calls [`decide`], writes what it says, and comes again.

mod bundle;
mod plan;
#[cfg(test)]
mod tests;

pub use bundle::bundle;
pub use plan::{AuthorityState, CertificateState, Circumstances, Next, decide};

//! The bad case (GEP-7): the source does not answer.

pub(crate) mod owner;
pub(crate) mod restore;

//! The bad case (GEP-7): the source does not answer.

pub(crate) mod owner_record;
pub(crate) mod permitted;
pub(crate) mod restore;

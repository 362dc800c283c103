//! The layers of the request chain, a file a layer. [`crate::chain`] puts them in order.

pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod client_certificate;
pub mod connection;
pub mod deadline;
pub mod overload;
pub mod request_info;
pub mod user;

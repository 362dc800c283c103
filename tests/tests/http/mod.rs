//! The server as HTTP clients meet it: connections, forms of answers, health, the audit log, and the end of serving.

mod audit;
mod connections;
mod early;
mod forms;
mod limits;
mod starvation;
mod stop;
mod tls;
mod watches;

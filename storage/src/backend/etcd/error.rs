//! What an error of etcd means to a caller. The texts are etcd's own; they are part of its interface.

use std::{error::Error as _, io};

use tonic::{Code, Status};

use super::super::Error;

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Can be repeated at will.
    Read,
    /// May have happened although its answer was lost.
    Write,
}

/// What became of a call that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server never saw it, or said before it began that it would not.
    NotDone(String),
    /// It may have reached the server.
    Lost(String),
    /// The revision is compacted.
    Compacted,
    /// The revision has not happened yet.
    Future,
    /// The lease has expired.
    LeaseGone,
    /// The answer is larger than this client takes.
    AnswerTooLarge,
    /// Anything that needs no more knowledge to be told.
    Other(Error),
}

impl Failure {
    /// Reads an error of the client.
    pub(super) fn of(error: etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => Self::of_status(&status),
            etcd_client::Error::IoError(error) => Self::Lost(error.to_string()),
            etcd_client::Error::TransportError(error) => Self::Lost(chain(&error)),
            etcd_client::Error::LeaseKeepAliveError(_) => Self::LeaseGone,
            etcd_client::Error::WatchError(why) => Self::Lost(why),
            other => Self::Other(Error::Refused(other.to_string())),
        }
    }

    fn of_status(status: &Status) -> Self {
        let text = status.message();
        match status.code() {
            _ if never_sent(status) => Self::NotDone(chain(status)),
            Code::OutOfRange if text.contains("has been compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("future revision") => Self::Future,
            Code::OutOfRange if text.contains("message length too large") => Self::AnswerTooLarge,
            Code::NotFound if text.contains("lease not found") => Self::LeaseGone,
            Code::ResourceExhausted if text.contains("space exceeded") => {
                Self::Other(Error::NoSpace(format!(
                    "etcd's quota is used up ({text}); remove objects or raise --quota-backend-bytes, compact and defragment \
                 etcd, then run `etcdctl alarm disarm`"
                )))
            }
            // Turned away before it was proposed.
            Code::ResourceExhausted => Self::NotDone(text.to_owned()),
            // The interceptor for calls that require a leader, and a member that knows of none.
            Code::Unavailable if text.contains("no leader") => Self::NotDone(text.to_owned()),
            // Raft of the member that was asked dropped it while the leader changed; it was not forwarded.
            Code::Unknown if text.contains("proposal dropped") => Self::NotDone(text.to_owned()),
            Code::InvalidArgument if text.contains("request is too large") => {
                Self::Other(Error::TooLarge { size: 0, limit: super::LIMITS.txn_bytes })
            }
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented
            | Code::FailedPrecondition => Self::Other(Error::Refused(text.to_owned())),
            Code::DataLoss => Self::Other(Error::Corrupt(text.to_owned())),
            _ => Self::Lost(chain(status)),
        }
    }

    /// The error for a caller who asked for no revision.
    pub(super) fn into_error(self, kind: Kind) -> Error {
        match (self, kind) {
            (Self::Lost(why), Kind::Write) => Error::Unknown(why),
            (Self::Lost(why) | Self::NotDone(why), _) => Error::Unavailable(why),
            (Self::LeaseGone, _) => Error::Unavailable("the lease has expired".into()),
            (Self::AnswerTooLarge, _) => Error::Corrupt("an answer is larger than any value may be".into()),
            (Self::Compacted, _) => Error::Unavailable("the revision was compacted meanwhile".into()),
            (Self::Future, _) => Error::Unavailable("the member is behind".into()),
            (Self::Other(error), _) => error,
        }
    }
}

/// Whether the connection could not even be made.
fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| {
            use io::ErrorKind as K;
            matches!(error.kind(), K::ConnectionRefused | K::HostUnreachable | K::NetworkUnreachable)
        }) {
            return true;
        }
        // The type of tonic's own is private.
        if error.to_string().contains("connect error") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error and its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_not_done_from_what_may_have_been() {
        let cases = [
            (Code::Unavailable, "etcdserver: no leader", "unavailable"),
            (Code::Unavailable, "etcdserver: request timed out", "unknown"),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost", "unknown"),
            (Code::Unavailable, "etcdserver: server stopped", "unknown"),
            (Code::Cancelled, "The operation was cancelled", "unknown"),
            (Code::Unknown, "transport error", "unknown"),
            (Code::Unknown, "raft proposal dropped", "unavailable"),
            (Code::DeadlineExceeded, "context deadline exceeded", "unknown"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "unavailable"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "no space"),
            (Code::NotFound, "etcdserver: requested lease not found", "unavailable"),
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", "refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "refused"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "corrupt"),
        ];
        for (code, text, expected) in cases {
            let failure = Failure::of(etcd_client::Error::GRpcStatus(Status::new(code, text)));
            let told = match failure.into_error(Kind::Write) {
                Error::Unavailable(_) => "unavailable",
                Error::Unknown(_) => "unknown",
                Error::NoSpace(_) => "no space",
                Error::TooLarge { .. } => "too large",
                Error::Refused(_) => "refused",
                Error::Corrupt(_) => "corrupt",
                Error::Compacted { .. } | Error::Future { .. } => "revision",
            };
            assert_eq!(told, expected, "{text}");
        }
    }

    #[test]
    fn a_read_that_was_lost_is_only_unavailable() {
        let lost = Failure::of(etcd_client::Error::GRpcStatus(Status::new(Code::Cancelled, "gone")));
        assert!(matches!(lost.into_error(Kind::Read), Error::Unavailable(_)));
    }
}

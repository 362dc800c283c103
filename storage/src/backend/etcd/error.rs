//! What an error of etcd means to a caller.

use tonic::{Code, Status};

use super::{
    super::Error,
    answers::{WriteOutcome, said},
};

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Can be repeated at will.
    Read,
    /// May have happened although its answer was lost.
    Write,
    /// A write that must not be sent again, not even if etcd says that it did not begin: what it expects may be so again.
    Once,
}

/// What became of a call that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection could be made: the server never saw it.
    NotSent(String),
    /// The server says that it did not begin, for a reason that passes.
    NotBegun(String),
    /// It may have reached the server.
    Lost(String),
    /// The revision is compacted.
    Compacted,
    /// The revision has not happened yet.
    Future,
    /// The lease has expired.
    LeaseGone,
    /// The answer is larger than this client takes. A write is done.
    AnswerTooLarge,
    /// An error that etcd does not raise, as it looks by its code. A write may be done.
    Unfamiliar(Error),
    /// Anything that needs no more knowledge to be told.
    Other(Error),
}

impl Failure {
    /// Reads an error of the client.
    pub(super) fn of(error: etcd_client::Error) -> Self {
        use etcd_client::Error as E;
        match error {
            E::GRpcStatus(status) => Self::of_status(&status),
            E::IoError(error) => Self::Lost(error.to_string()),
            E::TransportError(error) => Self::Lost(chain(&error)),
            E::LeaseKeepAliveError(_) => Self::LeaseGone,
            // Found before anything is sent.
            error @ (E::InvalidArgs(_) | E::InvalidUri(_) | E::InvalidMetadataValue(_)) => {
                Self::Other(Error::Refused(error.to_string()))
            }
            other => Self::Lost(other.to_string()),
        }
    }

    fn of_status(status: &Status) -> Self {
        if never_sent(status) {
            return Self::NotSent(chain(status));
        }
        let text = status.message();
        match said(text) {
            WriteOutcome::TryAgain => Self::NotBegun(text.to_owned()),
            WriteOutcome::Refused => Self::Other(Error::Refused(text.to_owned())),
            WriteOutcome::TooLarge => {
                Self::Other(Error::TooLarge { size: 0, limit: super::LIMITS.txn_bytes })
            }
            WriteOutcome::NoSpace => Self::Other(Error::NoSpace(format!(
                "etcd's quota is used up ({text}); remove objects or raise --quota-backend-bytes, compact and \
                 defragment etcd, then run `etcdctl alarm disarm`"
            ))),
            WriteOutcome::Corrupt => Self::Other(Error::Corrupt(text.to_owned())),
            WriteOutcome::Compacted => Self::Compacted,
            WriteOutcome::Future => Self::Future,
            WriteOutcome::LeaseGone => Self::LeaseGone,
            WriteOutcome::AnswerTooLarge => Self::AnswerTooLarge,
            WriteOutcome::Unknown => Self::of_code(status),
        }
    }

    /// An error whose text is not known. HTTP/2 errors, proxies and grpc-go itself use the same codes as etcd, so no code
    /// proves that a write was not done: see [`Failure::into_error`].
    fn of_code(status: &Status) -> Self {
        match status.code() {
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented
            | Code::FailedPrecondition => Self::Unfamiliar(Error::Refused(chain(status))),
            Code::DataLoss => Self::Unfamiliar(Error::Corrupt(chain(status))),
            _ => Self::Lost(chain(status)),
        }
    }

    /// The error for a caller who asked for no revision.
    pub(super) fn into_error(self, kind: Kind) -> Error {
        match (self, kind) {
            (Self::Lost(why), Kind::Write | Kind::Once) => Error::Unknown(why),
            (Self::Unfamiliar(error), Kind::Write | Kind::Once) => Error::Unknown(error.to_string()),
            (Self::AnswerTooLarge, Kind::Write | Kind::Once) => {
                Error::Unknown("the answer is too large to be read".into())
            }
            (Self::NotBegun(why), Kind::Write | Kind::Once) => Error::Declined(why),
            // A transaction of ours names no revision: that it cannot be read is not said of it.
            (Self::Compacted | Self::Future, Kind::Write | Kind::Once) => {
                Error::Unknown("etcd speaks of a revision that was not asked for".into())
            }
            (Self::Lost(why) | Self::NotSent(why) | Self::NotBegun(why), _) => Error::Unavailable(why),
            (Self::LeaseGone, _) => Error::Unavailable("the lease has expired".into()),
            (Self::AnswerTooLarge, _) => Error::Corrupt("an answer is larger than any value may be".into()),
            (Self::Compacted, Kind::Read) => {
                Error::Unavailable("the revision was compacted meanwhile".into())
            }
            (Self::Future, Kind::Read) => Error::Unavailable("the member is behind".into()),
            // An alarm, or a proxy, says nothing of the value that was asked for: it is no proof that this one is damaged.
            (Self::Other(Error::Corrupt(why)), Kind::Read) => Error::Refused(why),
            (Self::Unfamiliar(Error::Corrupt(why)), Kind::Read) => Error::Unavailable(why),
            (Self::Other(error) | Self::Unfamiliar(error), _) => error,
        }
    }
}

/// Whether the connection could not even be made. An I/O error alone does not say so: an established connection can end
/// with `EHOSTUNREACH` or `ECONNREFUSED`, too, when ICMP told so before its retransmissions ended (`tcp_write_err` in Linux).
fn never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
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

    fn told(code: Code, text: &str, kind: Kind) -> &'static str {
        let failure = Failure::of(etcd_client::Error::GRpcStatus(Status::new(code, text)));
        match failure.into_error(kind) {
            Error::Unavailable(_) => "unavailable",
            Error::Unknown(_) => "unknown",
            Error::Declined(_) => "declined",
            Error::NoSpace(_) => "no space",
            Error::TooLarge { .. } => "too large",
            Error::Refused(_) => "refused",
            Error::Corrupt(_) => "corrupt",
            Error::Compacted { .. } | Error::Future { .. } => "revision",
        }
    }

    #[test]
    fn tells_what_was_not_done_from_what_may_have_been() {
        let cases = [
            (Code::Unavailable, "etcdserver: no leader", "declined"),
            (Code::FailedPrecondition, "etcdserver: not capable", "declined"),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", "declined"),
            (Code::Unavailable, "etcdserver: leader changed", "unknown"),
            (Code::FailedPrecondition, "etcdserver: not leader", "unknown"),
            (Code::Unavailable, "etcdserver: request timed out", "unknown"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                "unknown",
            ),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost", "unknown"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, waiting for the applied index took too long",
                "unknown",
            ),
            (Code::Unavailable, "etcdserver: server stopped", "unknown"),
            (Code::Unavailable, "etcdserver: unhealthy cluster", "unknown"),
            (Code::Unknown, "etcdserver: request cancelled", "unknown"),
            (Code::Unknown, "raft: stopped", "unknown"),
            (Code::Cancelled, "The operation was cancelled", "unknown"),
            (Code::Unknown, "transport error", "unknown"),
            (Code::Internal, "stream terminated by RST_STREAM", "unknown"),
            (Code::Unknown, "raft proposal dropped", "declined"),
            (Code::DeadlineExceeded, "context deadline exceeded", "unknown"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "declined"),
            (Code::Unknown, "etcdserver: too many requests", "declined"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "no space"),
            (Code::ResourceExhausted, "h2 protocol error: ENHANCE_YOUR_CALM", "unknown"),
            (Code::ResourceExhausted, "trying to send message larger than max (9 vs. 8)", "unknown"),
            (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", "too large"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", "unknown"),
            (Code::NotFound, "etcdserver: requested lease not found", "unavailable"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "unknown"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "unknown"),
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", "too large"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", "refused"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "declined"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "refused"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "refused"),
            (Code::PermissionDenied, "etcdserver: permission denied", "refused"),
            (Code::PermissionDenied, "h2 protocol error: INADEQUATE_SECURITY", "unknown"),
            (Code::Unauthenticated, "said by a proxy", "unknown"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "corrupt"),
            (Code::DataLoss, "said by a proxy", "unknown"),
        ];
        for (code, text, expected) in cases {
            assert_eq!(told(code, text, Kind::Write), expected, "{text}");
        }
    }

    #[test]
    fn a_write_that_must_not_be_sent_twice_is_not_taken_for_undone_on_the_word_of_etcd() {
        for (code, text, expected) in [
            (Code::Unavailable, "etcdserver: no leader", "declined"),
            (Code::Unknown, "raft proposal dropped", "declined"),
            (Code::Unavailable, "etcdserver: leader changed", "unknown"),
            (Code::Unauthenticated, "said by a proxy", "unknown"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", "unknown"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "unknown"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "unknown"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "no space"),
        ] {
            assert_eq!(told(code, text, Kind::Once), expected, "{text}");
        }
    }

    #[test]
    fn a_read_that_failed_is_never_of_unknown_outcome() {
        for (code, text, expected) in [
            (Code::Cancelled, "gone", "unavailable"),
            (Code::Unauthenticated, "said by a proxy", "refused"),
            (Code::DataLoss, "said by a proxy", "unavailable"),
            (Code::DataLoss, "etcdserver: corrupt cluster", "refused"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "unavailable"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", "corrupt"),
        ] {
            assert_eq!(told(code, text, Kind::Read), expected, "{text}");
        }
    }

    #[test]
    fn an_established_connection_that_ends_is_not_one_that_was_never_made() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (cause, sent) in [
            (Box::new(refused()) as Box<dyn std::error::Error + Send + Sync>, true),
            (Box::new(tonic::ConnectError(Box::new(refused()))), false),
        ] {
            let failure = Failure::of(etcd_client::Error::GRpcStatus(Status::from_error(cause)));
            assert_eq!(matches!(failure, Failure::NotSent(_)), !sent, "{failure:?}");
        }
    }
}

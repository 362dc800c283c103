//! The errors that etcd answers, and what each says about a write.
//!
//! Read from the source of etcd 3.6 (`server/etcdserver`) and 3.5, which raise the same ones. etcd's texts are part of
//! its interface: `api/v3rpc/rpctypes/error.go`. The code of an error is not enough to tell one from another: `too many
//! requests` comes as `Unknown`, and HTTP/2 errors are mapped to codes that etcd uses, too.
//!
//! A write passes these stages, each of which has its errors:
//! 1. interceptors, validation and the quota check of the gRPC layer (`api/v3rpc`), limits on the request
//!    (`processInternalRaftRequestOnce`), the member's own raft (`raft proposal dropped`): nothing was proposed;
//! 2. between the proposal and the answer: timeouts, a cancelled request, a server that stops: it may happen later;
//! 3. the appliers (`apply`): corrupt, capped, auth, quota, backend, in this order. `quotaApplierV3` applies the
//!    transaction first and then answers `database space exceeded`. All others refuse before anything is changed.

/// What an error says about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// Nothing was proposed, for a reason that passes: the same request may be sent again.
    TryAgain,
    /// Refused, and for the same reason the next time.
    Refused,
    /// The request is too large.
    TooLarge,
    /// The quota is used up. The write is refused, or was applied before etcd said so.
    NoSpace,
    /// The alarm of a corrupt member stands.
    Corrupt,
    /// The revision is compacted.
    Compacted,
    /// The revision has not happened yet.
    Future,
    /// The lease of the request does not exist.
    LeaseGone,
    /// The answer is larger than this client takes, or than the server sends.
    AnswerTooLarge,
    /// It may happen, now or later. Also said of every text that is not known.
    Unknown,
}

/// Texts and their meaning. The first that the message contains counts.
#[rustfmt::skip]
const ANSWERS: &[(&str, WriteOutcome)] = &[
    // v3rpc/interceptor.go newUnaryInterceptor, before the handler; a member that just starts, or a learner.
    ("etcdserver: no leader", WriteOutcome::TryAgain),
    ("etcdserver: not capable", WriteOutcome::TryAgain),
    ("etcdserver: rpc not supported for learner", WriteOutcome::TryAgain),
    ("etcdserver: invalid client api version", WriteOutcome::Refused),
    // v3_server.go processInternalRaftRequestOnce, before Propose.
    ("etcdserver: too many requests", WriteOutcome::TryAgain),
    ("etcdserver: request is too large", WriteOutcome::TooLarge),
    // raft.go stepLeader, stepCandidate, stepFollower of the member that was asked: dropped, not forwarded.
    ("raft proposal dropped", WriteOutcome::TryAgain),
    // v3rpc/key.go checkTxnRequest and checkIntervals, before the server.
    ("etcdserver: key is not provided", WriteOutcome::Refused),
    ("etcdserver: key not found", WriteOutcome::Refused),
    ("etcdserver: value is provided", WriteOutcome::Refused),
    ("etcdserver: lease is provided", WriteOutcome::Refused),
    ("etcdserver: invalid sort option", WriteOutcome::Refused),
    ("etcdserver: too many operations in txn request", WriteOutcome::TooLarge),
    ("etcdserver: duplicate key given in txn request", WriteOutcome::Refused),
    // v3rpc/quota.go before the server; apply/apply.go applierV3Capped without, quotaApplierV3 after the change.
    ("database space exceeded", WriteOutcome::NoSpace),
    // auth/store.go: AuthInfoFromCtx before Propose, and apply/apply_auth.go before the change. A revision of the auth
    // store that is old passes: the next request is judged by the new one.
    ("etcdserver: revision of auth store is old", WriteOutcome::TryAgain),
    ("etcdserver: permission denied", WriteOutcome::Refused),
    ("etcdserver: user name is empty", WriteOutcome::Refused),
    ("etcdserver: user name not found", WriteOutcome::Refused),
    ("etcdserver: invalid auth token", WriteOutcome::Refused),
    ("etcdserver: invalid auth management", WriteOutcome::Refused),
    ("etcdserver: authentication failed", WriteOutcome::Refused),
    ("etcdserver: authentication is not enabled", WriteOutcome::Refused),
    // apply/corrupt.go applierV3Corrupt: nothing is changed while the alarm stands.
    ("etcdserver: corrupt cluster", WriteOutcome::Corrupt),
    // txn/txn.go checkTxn, before the change; LeaseGrant.
    ("requested lease not found", WriteOutcome::LeaseGone),
    ("etcdserver: lease already exists", WriteOutcome::Refused),
    ("etcdserver: too large lease TTL", WriteOutcome::Refused),
    ("required revision has been compacted", WriteOutcome::Compacted),
    ("required revision is a future revision", WriteOutcome::Future),
    // grpc-go rpc_util.go: a request that the server does not take, an answer that it does not send.
    ("grpc: received message larger than max", WriteOutcome::TooLarge),
    ("grpc: received message after decompression larger than max", WriteOutcome::TooLarge),
    ("trying to send message larger than max", WriteOutcome::AnswerTooLarge),
    // tonic codec/decode.rs: the answer came.
    ("message length too large", WriteOutcome::AnswerTooLarge),
];

/// What an error says, by the text of its message.
pub(super) fn said(message: &str) -> WriteOutcome {
    ANSWERS.iter().find(|(text, _)| message.contains(text)).map_or(WriteOutcome::Unknown, |(_, said)| *said)
}

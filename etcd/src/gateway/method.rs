//! What a call does, by its path alone.

/// How a call is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Changes data: it waits while writes are held, and is never sent twice.
    Write,
    /// Changes nothing: one that broke is asked again elsewhere.
    Read,
    /// Streams of watches: they go on at another member.
    Watch,
    /// Streams in both directions for as long as the client likes.
    Stream,
    /// Anything else: changes of members, defragmentation, locks that wait. It is not held, since some of it must pass while writes
    /// are, and not sent twice.
    Once,
}

impl Method {
    pub(super) fn of(path: &str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.strip_prefix("etcdserverpb.").unwrap_or(path) {
            "KV/Put" | "KV/DeleteRange" | "KV/Txn" | "KV/Compact" | "Lease/LeaseGrant"
            | "Lease/LeaseRevoke" => Self::Write,
            path if path.starts_with("Auth/") => Self::Write,
            "KV/Range"
            | "Lease/LeaseTimeToLive"
            | "Lease/LeaseLeases"
            | "Cluster/MemberList"
            | "Maintenance/Status"
            | "Maintenance/Hash"
            | "Maintenance/HashKV"
            | "grpc.health.v1.Health/Check" => Self::Read,
            "Watch/Watch" => Self::Watch,
            "Lease/LeaseKeepAlive"
            | "Maintenance/Snapshot"
            | "KV/RangeStream"
            | "v3electionpb.Election/Observe"
            | "grpc.health.v1.Health/Watch" => Self::Stream,
            _ => Self::Once,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_decide() {
        for (path, method) in [
            ("/etcdserverpb.KV/Txn", Method::Write),
            ("/etcdserverpb.KV/Range", Method::Read),
            ("/etcdserverpb.Watch/Watch", Method::Watch),
            ("/etcdserverpb.Lease/LeaseGrant", Method::Write),
            ("/etcdserverpb.Lease/LeaseKeepAlive", Method::Stream),
            ("/etcdserverpb.Auth/UserAdd", Method::Write),
            ("/etcdserverpb.Maintenance/MoveLeader", Method::Once),
            ("/v3lockpb.Lock/Lock", Method::Once),
            ("/", Method::Once),
        ] {
            assert_eq!(Method::of(path), method, "{path}");
        }
    }
}

//! Membership of an etcd: what `repot_plan::etcd::members` decides, asked of etcd itself.

//! Backup, restore and migration of a hosted etcd: `repot_plan::etcd` carried out.

//! The operator of `druid.gardener.cloud/v1alpha1 Etcd`.

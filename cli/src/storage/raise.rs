//! `repot storage bump-revision`: versions go on above those that clients have seen.

use clap::Args;
use repot_storage::{ResourceVersion, Store};

use crate::store::StoreFlags;

/// Raise resource versions, after the store was put back to an older copy of itself.
///
/// Where etcd is restored from an older snapshot, its revisions go back, and versions that clients have seen would come again and
/// mean something else. A server that runs meanwhile notices, answers nothing any more, and names the version to be given here; so
/// does one that starts later and finds a newer version recorded outside of the store (`repot apiserver --high-water-mark`).
/// Stop every server first, and run this before any of them starts again: they then answer whoever comes with a version of
/// before with 410, so that it lists again. A version that is too high does no harm.
#[derive(Args)]
pub(super) struct RaiseFlags {
    /// The largest resource version that any client may have seen
    #[arg(long, alias = "past", value_name = "VERSION")]
    above: u64,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

/// Raises, and tells where versions go on.
pub(super) async fn raise(store: &Store, flags: &RaiseFlags) -> anyhow::Result<()> {
    store.raise_past(ResourceVersion(flags.above)).await?;
    println!("the newest resource version is {}", store.current().await?);
    super::missing::warn(store).await
}

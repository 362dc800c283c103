//! Who a member is in its cluster: written beside its data, so that it finds out later whether it was removed meanwhile
//! ([`identity_recorder`](super::identity_recorder)).

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

/// Beside the log, so that it goes where the data goes.
const FILE: &str = "member/repot-member.json";

/// Ids of a member and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the member; it is never used again once the member was removed.
    pub member: u64,
    /// Of the cluster that the member belongs to.
    pub cluster: u64,
}

/// In hexadecimal, as etcdctl prints them.
#[derive(Serialize, Deserialize)]
struct Form {
    member: String,
    cluster: String,
}

impl Identity {
    /// What is written in a data directory. Nothing, where nothing can be read: then the data is taken as it is.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        let form: Form = serde_json::from_slice(&fs::read(data_dir.join(FILE)).ok()?).ok()?;
        let id = |text: &str| u64::from_str_radix(text, 16).ok().filter(|id| *id != 0);
        Some(Self { member: id(&form.member)?, cluster: id(&form.cluster)? })
    }

    /// Writes it down, as a whole or not at all.
    pub(super) fn write(self, data_dir: &Path) -> io::Result<()> {
        let form = Form { member: format!("{:x}", self.member), cluster: format!("{:x}", self.cluster) };
        let path = data_dir.join(FILE);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&form)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }
}

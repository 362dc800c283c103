//! Which snapshots there are.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, ObjectMeta, ObjectStore as _};
use repot_etcd_core::snapshot::name::{Directory, parse_path};

use super::{Error, Form, Result, Store, Stored, mark, read::is_mark, record};

/// How many objects are asked for their metadata at once.
const PARALLEL: usize = 16;

impl Store {
    /// All snapshots, in the order of their names. Chunks and marked objects are left out; what has no proper name is left out
    /// with a warning.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::Read`].
    pub async fn list(&self) -> Result<Vec<Stored>> {
        let all = self.list_quickly().await?;
        let kept = stream::iter(all).map(|one| async move {
            let marked = self.is_marked(&one).await?;
            Ok::<_, Error>((!marked).then_some(one))
        });
        let kept: Vec<Option<Stored>> = kept.buffered(PARALLEL).try_collect().await?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// As [`Store::list`], but only our own marks are seen: four requests, however many snapshots there are.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn list_quickly(&self) -> Result<Vec<Stored>> {
        let (v2, v1, sealed, beside) = tokio::try_join!(
            self.below(Form::Clear.directory()),
            self.below("v1"),
            self.below(Form::Sealed.directory()),
            self.below(record::DIRECTORY)
        )?;
        let beside: BTreeSet<&str> = beside.iter().filter_map(|meta| meta.location.filename()).collect();
        let mut found: Vec<Stored> =
            v2.into_iter().chain(v1).chain(sealed).filter_map(|meta| self.read_name(meta)).collect();
        found.retain(|one| !beside.contains(format!("{}{}", one.name, record::EXCLUDE).as_str()));
        for one in &mut found {
            one.recorded = beside.contains(format!("{}{}", one.name, one.form.record()).as_str());
            one.ends_owner = beside.contains(format!("{}{}", one.name, mark::OWNER).as_str());
        }
        found.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
        // The same snapshot in two places is one; the sealed one comes first.
        found.dedup_by(|later, earlier| later.name == earlier.name);
        Ok(found)
    }

    async fn below(&self, part: &str) -> Result<Vec<ObjectMeta>> {
        let prefix = self.prefix.clone().join(part);
        let listed = self.objects.list(Some(&prefix)).try_collect().await;
        listed.map_err(|source: object_store::Error| Error::List {
            place: self.place(&prefix),
            source: source.into(),
        })
    }

    fn read_name(&self, meta: ObjectMeta) -> Option<Stored> {
        let whole = meta.location.as_ref();
        let path = whole.strip_prefix(self.prefix.as_ref()).unwrap_or(whole).trim_start_matches('/');
        match parse_path(path) {
            Ok(Directory::Snapshot { name, form }) => Some(Stored {
                name,
                bytes: meta.size,
                recorded: false,
                ends_owner: false,
                form,
                path: meta.location,
                e_tag: meta.e_tag,
            }),
            Ok(Directory::Chunk) => None,
            Err(error) => {
                tracing::warn!(store = self.url, %error, "an object is left out");
                None
            }
        }
    }

    /// Whether other tools are told to leave it out.
    pub(in crate::snapshot) async fn is_marked(&self, snapshot: &Stored) -> Result<bool> {
        if self.directory.is_some() {
            return Ok(false);
        }
        let path = &snapshot.path;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.objects.get_opts(path, options).await {
            Ok(got) => Ok(is_mark(&got.attributes)),
            // It was collected meanwhile.
            Err(object_store::Error::NotFound { .. }) => Ok(true),
            Err(source) => Err(Error::Read { place: self.place(path), source: source.into() }),
        }
    }
}

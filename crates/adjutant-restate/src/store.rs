//! The store of a cluster: a directory that all machines share, or a bucket of an S3 service.
//!
//! No type of `object_store` leaves this file.

use std::fmt;
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_engine::portable::{StoreError, WorkStore};
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;

/// The store of a cluster.
pub struct ClusterStore {
    address: String,
    objects: Arc<dyn ObjectStore>,
    /// The directory of a store of files.
    directory: Option<StoreDirectory>,
    /// Calls of the store block, so they have a runtime of their own.
    runtime: Option<Runtime>,
}

impl ClusterStore {
    /// Opens the store at `file:///DIRECTORY` or `s3://BUCKET/PREFIX`. Keys and the address of an S3 service come from
    /// the usual `AWS_` variables. The directory must exist: a missing mount must not look like an empty store.
    pub fn open(address: &str) -> Result<Self, StoreError> {
        let failed = |text: String| StoreError::Failed(format!("the store {address}: {text}"));
        let mut store_directory = None;
        let objects: Arc<dyn ObjectStore> = match address.split_once("://") {
            Some(("file", path)) => {
                let directory = StoreDirectory::open(Path::new(path));
                let missing = || failed("is not a directory of this machine".to_owned());
                store_directory = Some(directory.ok_or_else(missing)?);
                let files = LocalFileSystem::new_with_prefix(path);
                let files = files.map_err(|error| failed(error.to_string()))?;
                Arc::new(files.with_automatic_cleanup(true))
            }
            Some(("s3", place)) => {
                // The service's own choice of cryptography would be a second one in the program.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
                let is_plain_http =
                    std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
                let service = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_allow_http(is_plain_http)
                    .build()
                    .map_err(|error| failed(error.to_string()))?;
                Arc::new(PrefixStore::new(service, prefix))
            }
            Some(_) | None => {
                return Err(failed("is not file:///DIRECTORY or s3://BUCKET/PREFIX".to_owned()));
            }
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            address: address.to_owned(),
            objects,
            directory: store_directory,
            runtime: Some(runtime),
        })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    fn wait<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if self.directory.as_ref().is_some_and(|directory| !directory.is_there()) {
            return Err(self.unavailable(&"its directory is missing or was replaced"));
        }
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::Unavailable("it is being closed".to_owned()));
        };
        // On a thread of its own: the caller's may drive another runtime, which must not wait for this one.
        let done = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(call)).join());
        done.unwrap_or_else(|_| Err(StoreError::Failed("a call of the store panicked".to_owned())))
    }

    fn unavailable(&self, error: &dyn fmt::Display) -> StoreError {
        StoreError::Unavailable(format!("{}: {error}", self.address))
    }
}

/// The directory of a store, as it was when it was opened.
///
/// If its file system is unmounted, another directory or none is at the path. Writing there would make a second store
/// that lacks the work of the first.
struct StoreDirectory {
    path: PathBuf,
    /// The device and the inode.
    identity: (u64, u64),
}

impl StoreDirectory {
    fn open(path: &Path) -> Option<Self> {
        let identity = Self::identity_of(path).filter(|_| path.is_absolute())?;
        Some(Self { path: path.to_owned(), identity })
    }

    fn is_there(&self) -> bool {
        Self::identity_of(&self.path) == Some(self.identity)
    }

    fn identity_of(path: &Path) -> Option<(u64, u64)> {
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_dir)?;
        Some((found.dev(), found.ino()))
    }
}

impl fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterStore").field(&self.address).finish()
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        // May be dropped inside another runtime, where waiting is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl WorkStore for ClusterStore {
    fn put(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
        self.wait(async {
            let mut from = tokio::fs::File::open(file).await.map_err(failed)?;
            // Uploads a large file in parts; a name appears only with the whole file.
            let mut writer = BufWriter::new(Arc::clone(&self.objects), ObjectPath::from(name));
            let copied = async {
                tokio::io::copy(&mut from, &mut writer).await?;
                writer.shutdown().await
            };
            copied.await.map_err(|error| self.unavailable(&error))
        })
    }

    fn fetch(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
        self.wait(async {
            let found = match self.objects.get(&ObjectPath::from(name)).await {
                Err(Error::NotFound { .. }) => {
                    let text = format!("the store {} has no {name}", self.address);
                    return Err(StoreError::Failed(text));
                }
                found => found.map_err(|error| self.unavailable(&error))?,
            };
            let mut parts = found.into_stream();
            let mut to = tokio::fs::File::create(file).await.map_err(failed)?;
            while let Some(part) = next(&mut parts).await {
                let part = part.map_err(|error| self.unavailable(&error))?;
                to.write_all(&part).await.map_err(failed)?;
            }
            to.flush().await.map_err(failed)
        })
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, StoreError> {
        self.wait(async {
            let directory = ObjectPath::from(directory);
            let listed = self.objects.list_with_delimiter(Some(&directory)).await;
            let listed = listed.map_err(|error| self.unavailable(&error))?;
            let name =
                |object: &object_store::ObjectMeta| object.location.filename().map(str::to_owned);
            Ok(listed.objects.iter().filter_map(name).collect())
        })
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.wait(async {
            match self.objects.delete(&ObjectPath::from(name)).await {
                Err(Error::NotFound { .. }) => Ok(()),
                removed => removed.map_err(|error| self.unavailable(&error)),
            }
        })
    }

    fn remove_all(&self, directory: &str) -> Result<(), StoreError> {
        self.wait(async {
            let mut objects = self.objects.list(Some(&ObjectPath::from(directory)));
            while let Some(object) = next(&mut objects).await {
                let object = object.map_err(|error| self.unavailable(&error))?;
                match self.objects.delete(&object.location).await {
                    Ok(()) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(self.unavailable(&error)),
                }
            }
            Ok(())
        })
    }
}

/// Returns the next item of a stream.
async fn next<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stores_lists_fetches_and_removes() -> Result<(), StoreError> {
        let place = tempfile::tempdir().map_err(|error| StoreError::Failed(error.to_string()))?;
        let store = ClusterStore::open(&format!("file://{}", place.path().display()))?;
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        std::fs::write(&from, "work").map_err(|error| StoreError::Failed(error.to_string()))?;
        assert_eq!(store.list("runs/a/b")?, Vec::<String>::new());
        store.put("runs/a/b/0001-x", &from)?;
        store.put("runs/a/base", &from)?;
        assert_eq!(store.list("runs/a")?, ["base"], "directories are not listed");
        assert_eq!(store.list("runs/a/b")?, ["0001-x"]);
        store.fetch("runs/a/b/0001-x", &to)?;
        assert_eq!(std::fs::read_to_string(&to).ok().as_deref(), Some("work"));
        assert!(matches!(store.fetch("runs/a/none", &to), Err(StoreError::Failed(_))));
        store.remove_all("runs/a")?;
        assert_eq!(store.list("runs/a/b")?, Vec::<String>::new());
        store.remove("runs/a/base")
    }

    #[tokio::test]
    async fn it_can_be_asked_on_a_thread_that_drives_other_work() {
        let place = tempfile::tempdir().map(|it| it.path().to_owned()).unwrap_or_default();
        let made = std::fs::create_dir_all(&place);
        let store = ClusterStore::open(&format!("file://{}", place.display()));
        assert_eq!(store.and_then(|store| store.list("runs")), Ok(Vec::new()), "{made:?}");
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_written() -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
        let place = tempfile::tempdir().map_err(failed)?;
        let (directory, away) = (place.path().join("store"), place.path().join("away"));
        let file = place.path().join("file");
        std::fs::create_dir(&directory).map_err(failed)?;
        std::fs::write(&file, "work").map_err(failed)?;
        let store = ClusterStore::open(&format!("file://{}", directory.display()))?;
        std::fs::rename(&directory, &away).map_err(failed)?;
        assert!(matches!(store.put("runs/a/base", &file), Err(StoreError::Unavailable(_))));
        assert!(!directory.exists(), "no second store is made");
        std::fs::create_dir(&directory).map_err(failed)?;
        assert!(matches!(store.list("runs/a"), Err(StoreError::Unavailable(_))));
        std::fs::remove_dir(&directory).map_err(failed)?;
        std::fs::rename(&away, &directory).map_err(failed)?;
        store.put("runs/a/base", &file)
    }

    #[test]
    fn an_address_that_names_no_store_is_refused() {
        for wrong in ["", "/srv/store", "http://a", "file://store", "file:///no/such/directory"] {
            assert!(matches!(ClusterStore::open(wrong), Err(StoreError::Failed(_))), "{wrong}");
        }
    }
}

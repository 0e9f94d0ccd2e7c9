//! A directory that appears at once, complete.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

/// A directory beside its destination, which goes away unless it is published.
#[derive(Debug)]
pub struct NewDirectory {
    path: PathBuf,
}

impl NewDirectory {
    /// Makes one beside `out`; directories on the way there are made too.
    ///
    /// # Errors
    ///
    /// If `out` is there already and is no empty directory (`AlreadyExists`), or if the operating system refuses.
    pub fn beside(out: &Path) -> io::Result<Self> {
        let is_vacant = match fs::read_dir(out) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let (true, Some(name)) = (is_vacant, out.file_name()) else { return Err(io::ErrorKind::AlreadyExists.into()) };
        let path = out.with_file_name(format!(".{}.{}", name.to_string_lossy(), Uuid::new_v4()));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Where its files are until it is published.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name.
    ///
    /// # Errors
    ///
    /// If the operating system refuses; nothing is left then.
    pub fn publish(self, out: &Path) -> io::Result<()> {
        fs::rename(&self.path, out)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // Once published, nothing is left here; otherwise the error that led here is the one to report.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_appears_once_it_is_published_and_leaves_nothing_otherwise() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("deep").join("out");
        let staging = NewDirectory::beside(&out).unwrap();
        fs::write(staging.path().join("file"), "a").unwrap();
        assert!(!out.exists());
        staging.publish(&out).unwrap();
        assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "a");
        assert_eq!(NewDirectory::beside(&out).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        drop(NewDirectory::beside(&empty).unwrap());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2, "nothing is left behind");
        NewDirectory::beside(&empty).unwrap().publish(&empty).unwrap();
    }
}

//! The identity of a file in its file system, which tells an original from its copy.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use palisade_core::FileId;

/// Returns the id of the file with this `metadata`. The inode number alone is not enough: the number of a deleted file
/// is used again, so a folder that is restored often gets its earlier numbers.
pub fn file_id(metadata: &Metadata) -> FileId {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    FileId { number: metadata.ino(), born_ns: born.map_or(0, |born| born.as_nanos() as u64) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_copy_is_another_file_even_under_the_number_of_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let [path, copy] = ["file", "copy"].map(|name| dir.path().join(name));
        fs::write(&path, "text").unwrap();
        let id = file_id(&fs::metadata(&path).unwrap());
        fs::copy(&path, &copy).unwrap();
        assert_ne!(file_id(&fs::metadata(&copy).unwrap()), id);
        fs::remove_file(&path).unwrap();
        fs::copy(&copy, &path).unwrap();
        assert_ne!(file_id(&fs::metadata(&path).unwrap()), id, "restored");
        let id = file_id(&fs::metadata(&path).unwrap());
        fs::write(&path, "another text").unwrap();
        fs::rename(&path, &copy).unwrap();
        assert_eq!(file_id(&fs::metadata(&copy).unwrap()), id, "written to, renamed");
    }
}

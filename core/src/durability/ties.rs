//! The ties between a state file and its data, by which a start notices that either is a copy.

/// The identity of a file in a file system; a copy has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The inode number. A deleted file may leave its number to the next.
    pub number: u64,
    /// The time of creation in nanoseconds since 1970; 0 if the file system does not say. It is only compared for
    /// equality.
    pub born_ns: u64,
}

/// The AOF file to which an incarnation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofFile {
    /// The identity of the AOF's file.
    pub id: FileId,
    /// The size when the incarnation last wrote to it, in bytes. A shorter file is an older copy.
    pub bytes: u64,
}

/// Names one incarnation of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncarnationId {
    /// The id of the node.
    pub node: u128,
    /// The number of the incarnation.
    pub number: u64,
}

/// Everything found at a start except the content of the state file. It shows whether the loaded data is the data that
/// the state file is about: not a copy, and not used by another incarnation since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The file from which the state was read.
    pub file: Option<FileId>,
    /// The incarnation that used the data last, according to the stamp (a file beside the data).
    pub used_by: Option<IncarnationId>,
    /// The files of the AOF as they were before it was loaded.
    pub aof: Vec<AofFile>,
}

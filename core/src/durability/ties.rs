//! The ties between a state file and its data, by which a copy of either is recognised.

/// The identity of a file in a file system; a copy has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The inode number. A deleted file may leave its number to the next.
    pub number: u64,
    /// The time of creation in nanoseconds since 1970; 0 if the file system does not say. Compared, never calculated
    /// with.
    pub born_ns: u64,
}

/// The AOF file that an incarnation writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofFile {
    /// The file's identity.
    pub id: FileId,
    /// The size when it was last written to, in bytes: a shorter file is an older one.
    pub bytes: u64,
}

/// An incarnation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncarnationId {
    /// The node.
    pub node: u128,
    /// The number of the incarnation.
    pub number: u64,
}

/// The findings of a start other than the content of the state file. They show whether the loaded data is the data that
/// the state file is about: not a copy, and not used by another incarnation since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The file that the state was read from.
    pub file: Option<FileId>,
    /// The incarnation that used the data last.
    pub used_by: Option<IncarnationId>,
    /// The files of the AOF before it was loaded.
    pub aof: Vec<AofFile>,
}

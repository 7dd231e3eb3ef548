//! What ties a state file to the data that it is about: a copy of either is another one.

/// Which file of a file system: a copy of it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Its number (inode). A file that is deleted may leave it to the next.
    pub number: u64,
    /// When it was made, in nanoseconds since 1970; 0 where the file system does not tell. Compared, never counted with.
    pub born_ns: u64,
}

/// The AOF file that an incarnation writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofFile {
    /// Which file.
    pub id: FileId,
    /// It had this many bytes: what is shorter is older.
    pub bytes: u64,
}

/// One incarnation of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncarnationId {
    /// The node.
    pub node: u128,
    /// Which of its incarnations.
    pub number: u64,
}

/// What a start finds beside the state file: whether the data that is loaded is the very data that the state file is about. A copy
/// of either, or data that another incarnation used since, is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Which file the state was read from.
    pub file: Option<FileId>,
    /// Which incarnation used the data last.
    pub used_by: Option<IncarnationId>,
    /// The files of the AOF before it was loaded.
    pub aof: Vec<AofFile>,
}

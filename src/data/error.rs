//! What can go wrong with a data source. Every message says what, where and what to try.

use std::io;
use std::path::PathBuf;

/// A data source that cannot be opened, planned over or generated.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "data folder {path} does not exist; check the path, or make one with `stallscope data generate {path}`"
    )]
    MissingFolder { path: PathBuf },
    #[error(
        "the folder {path} is empty\n  try: a folder of pictures or tar files, or `stallscope demo`, which needs no data"
    )]
    NothingThere { path: PathBuf },
    #[error(
        "the folder {path} holds no data that stallscope reads: no .jpg, .jpeg, .png or .webp in a folder per class, and no \
         file of another format that it reads\n  try: the folder that holds the class folders or tar files directly"
    )]
    NothingKnown { path: PathBuf },
    #[error("the folder {path} holds no data directly\n  try: {inner}")]
    DataFurtherDown { path: PathBuf, inner: PathBuf },
    #[error(
        "the folder {path} holds data of several kinds: {kinds}\n  try: a folder with one of them, or name the kind to \
         use, for example --set source.kind=webdataset (`data pack`: --from webdataset)"
    )]
    SeveralKinds { path: PathBuf, kinds: String },
    #[error(
        "the folders in {path} are the parts of one data set (training, validation), not classes\n  try: {train}"
    )]
    SplitFolders { path: PathBuf, train: PathBuf },
    #[error("{path} is not a folder; give the folder that holds one sub-folder per class")]
    NotAFolder { path: PathBuf },
    #[error(
        "data folder {path} is empty; fill it with one sub-folder of .jpg, .png or .webp images per class, \
         or make one elsewhere with `stallscope data generate`"
    )]
    EmptyFolder { path: PathBuf },
    #[error(
        "{path} has {images} images directly in it but no class folders; move them into a sub-folder \
         (its name becomes the class, e.g. {path}/all), or try `stallscope data generate`"
    )]
    NoClassFolders { path: PathBuf, images: u64 },
    #[error(
        "class folder {path} holds no .jpg, .jpeg, .png or .webp image; remove it or add images \
         (`stallscope data generate` makes a complete folder)"
    )]
    EmptyClass { path: PathBuf },
    #[error(
        "{path} is nested too deeply below its class folder (a link that leads back to its parent?)"
    )]
    TooDeep { path: PathBuf },
    #[error("{path} holds more than {max} images; split it into several roots")]
    TooManyImages { path: PathBuf, max: u32 },
    #[error(
        "neither {path} nor the same with .gz is there; source.path must name the folder that holds MNIST's four files"
    )]
    MissingIdx { path: PathBuf },
    #[error(
        "{path} is not there; source.path must name the folder that holds the .bin files of the binary version of \
         {kind} (not the Python or Matlab one), or the folder above it"
    )]
    MissingCifar { path: PathBuf, kind: &'static str },
    #[error("{path} is not usable as {kind} data: {what}; fetch it again")]
    BrokenImages {
        path: PathBuf,
        kind: &'static str,
        what: String,
    },
    #[error("{path} is not there; source.path must name {want}, or a folder of them")]
    MissingFiles { path: PathBuf, want: &'static str },
    #[error("{path} is not a regular file; source.path must name a data file, or a folder of them")]
    NotAFile { path: PathBuf },
    #[error(
        "folder {path} holds no file to read; source.path must name {want}, or the folder that holds them directly"
    )]
    NoFiles { path: PathBuf, want: &'static str },
    #[error(
        "{path} is not usable as {format}: at byte {offset}, {what}; fetch it again, or write it again"
    )]
    BrokenFile {
        path: PathBuf,
        format: &'static str,
        offset: u64,
        what: String,
    },
    #[error("{path} holds no sample with a picture; {want}")]
    NoPictures { path: PathBuf, want: String },
    #[error(
        "{sample} of {path} has no label, though other samples have one; write one for every sample, or for none"
    )]
    UnlabelledSample { path: PathBuf, sample: String },
    #[error(
        "{path} is not usable as a Parquet file with pictures: {what}; fetch it again if it is damaged, or write it again \
         with a column of pictures and one of labels"
    )]
    BrokenTable { path: PathBuf, what: String },
    #[error(
        "cannot unpack {path} into {folder}: {source}; fetch the file again if it is damaged, or unpack it yourself \
         (`gunzip --keep`, `unzstd`)"
    )]
    Unpack {
        path: PathBuf,
        folder: PathBuf,
        source: io::Error,
    },
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot {action} with {option} = {value}: {want}")]
    BadOption {
        action: &'static str,
        option: &'static str,
        value: String,
        want: &'static str,
    },
    #[error(
        "{path} already holds generated images made with other options ({differences}); \
         choose another folder, or delete this one first"
    )]
    OtherOptions { path: PathBuf, differences: String },
    #[error(
        "{path} already exists and was not written by `stallscope data generate`; \
         choose a folder that does not exist yet"
    )]
    NotOurs { path: PathBuf },
    #[error(
        "another process is {doing} into {path} right now; wait for it, or choose another folder"
    )]
    Busy { doing: &'static str, path: PathBuf },
    #[error(
        "{path} should hold {wanted} images by its manifest but holds {found}; delete it and generate it again"
    )]
    Damaged {
        path: PathBuf,
        wanted: u64,
        found: u64,
    },
    #[error("cannot encode image {index} ({width}x{height}): {reason}")]
    Encode {
        index: u64,
        width: u32,
        height: u32,
        reason: String,
    },
    #[error("cannot read the manifest {path}: {source}; delete the folder and generate it again")]
    Manifest {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(
        "there is no shard and no folder of shards at {path}; check the path, or pack images into it first"
    )]
    MissingShardSet { path: PathBuf },
    #[error(
        "{path} holds no .shard file (unfinished .shard.part files do not count); check the path, \
         or pack images into it first"
    )]
    NoShardFiles { path: PathBuf },
    #[error("{path} is not usable as a shard: {what}; copy it here again, or pack it again")]
    BrokenShard { path: PathBuf, what: String },
    #[error(
        "{path} is a shard of version {found}, and this stallscope reads version {reads}; \
         read it with the stallscope that packed it, or pack it again"
    )]
    ShardVersion {
        path: PathBuf,
        found: u32,
        reads: u32,
    },
    #[error(
        "{one} and {other} belong to different sets of shards ({differences}); \
         give each set a folder of its own"
    )]
    MixedShards {
        one: PathBuf,
        other: PathBuf,
        differences: String,
    },
    #[error("{one} and {other} are both shard {number} of their set; remove one of them")]
    DoubledShard {
        one: PathBuf,
        other: PathBuf,
        number: u32,
    },
    #[error(
        "{path} lacks {missing} of the {shards} shards of its set (numbers {numbers}); \
         copy them here, or pack the images again"
    )]
    IncompleteShards {
        path: PathBuf,
        missing: u32,
        shards: u32,
        numbers: String,
    },
    #[error(
        "the shards at {path} hold no record: every image was left out as unreadable; \
         pack again without skipping to see why"
    )]
    EmptyShards { path: PathBuf },
    #[error(
        "{path} was packed from other images or with other options ({differences}); \
         pack into another folder, or delete its .shard files first"
    )]
    OtherShards { path: PathBuf, differences: String },
    #[error("cannot pack tar files beside {path}; pack into another folder, or delete it first")]
    TarThere { path: PathBuf },
    #[error("stopped; run the same command again to resume")]
    Stopped,
    #[error("cannot pack {name}: {reason}; repair or remove it, or let packing skip bad images")]
    BadSample { name: String, reason: String },
    // end of shards
}

impl DataError {
    /// Wraps an I/O error with what was being done and to which path.
    /// `io` went wrong with the file at `path`.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> DataError {
        let path = path.into();
        move |source| DataError::Io {
            action,
            path,
            source,
        }
    }
}

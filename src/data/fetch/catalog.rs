//! What MNIST, CIFAR-10 and CIFAR-100 consist of: names, sizes and checksums of their files, and who serves them.
//!
//! Invariants: checksums are SHA-256 in lower case. Those of MNIST are of the files that every framework loads (MD5
//! f68b3c2d..., d53e105e..., 9fb629c4..., ec29112d...). Those of CIFAR's archives are the ones TensorFlow Datasets and
//! torchvision for Ruby check, the latter also those of the files in them; <https://www.cs.toronto.edu/~kriz/cifar.html>
//! gives the archives' MD5.
//!
//! May use: nothing else of this crate.

/// A data set that can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedSet {
    Mnist,
    Cifar10,
    Cifar100,
}

/// A data set as it was published. The catalogue's are from [`PublishedSet::release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// What it is called, for messages.
    pub title: String,
    /// Addresses below which its files are served, the one to try first first.
    pub mirrors: Vec<String>,
    pub downloads: Vec<Download>,
}

/// One file that is downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    pub file: KnownFile,
    pub packing: Packing,
}

/// What a download holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packing {
    /// This file, gzipped. It is read gzipped, and stays so.
    Gzip { unpacked: KnownFile },
    /// A gzipped tar file with these in a folder.
    TarGz {
        folder: String,
        members: Vec<KnownFile>,
    },
}

/// A file whose bytes are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    pub name: String,
    pub bytes: u64,
    /// 64 hexadecimal digits, in lower case.
    pub sha256: String,
}

impl KnownFile {
    /// A file by its name, size and checksum.
    pub fn new(name: &str, bytes: u64, sha256: &str) -> KnownFile {
        KnownFile {
            name: name.to_owned(),
            bytes,
            sha256: sha256.to_owned(),
        }
    }
}

impl PublishedSet {
    /// All of them.
    pub const ALL: [PublishedSet; 3] = [
        PublishedSet::Mnist,
        PublishedSet::Cifar10,
        PublishedSet::Cifar100,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PublishedSet::Mnist => "mnist",
            PublishedSet::Cifar10 => "cifar10",
            PublishedSet::Cifar100 => "cifar100",
        }
    }

    /// What it is called, for messages.
    pub fn title(self) -> &'static str {
        match self {
            PublishedSet::Mnist => "MNIST",
            PublishedSet::Cifar10 => "CIFAR-10",
            PublishedSet::Cifar100 => "CIFAR-100",
        }
    }

    /// Its files and who serves them.
    pub fn release(self) -> Release {
        let (mirrors, downloads): (&[&str], _) = match self {
            PublishedSet::Mnist => (&MNIST_MIRRORS, gzipped(MNIST)),
            PublishedSet::Cifar10 => (&CIFAR_MIRRORS, archive("cifar-10-batches-bin", CIFAR10)),
            PublishedSet::Cifar100 => (&CIFAR_MIRRORS, archive("cifar-100-binary", CIFAR100)),
        };
        Release {
            title: self.title().to_owned(),
            mirrors: mirrors.iter().map(|mirror| (*mirror).to_owned()).collect(),
            downloads,
        }
    }
}

const MNIST_MIRRORS: [&str; 2] = [
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
];
const CIFAR_MIRRORS: [&str; 1] = ["https://www.cs.toronto.edu/~kriz/"];

// Tables of SHA-256, bytes and name.

/// Each file as it is served, then what it unpacks to.
const MNIST: &str = "
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609   9912422 train-images-idx3-ubyte.gz
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  47040016 train-images-idx3-ubyte
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c     28881 train-labels-idx1-ubyte.gz
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5     60008 train-labels-idx1-ubyte
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6   1648877 t10k-images-idx3-ubyte.gz
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7   7840016 t10k-images-idx3-ubyte
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6      4542 t10k-labels-idx1-ubyte.gz
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2     10008 t10k-labels-idx1-ubyte
";

/// The archive, then what is in it: batches of ten thousand records of a label and 32x32 pixels in three colours.
const CIFAR10: &str = "
c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd 170052171 cifar-10-binary.tar.gz
cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  30730000 data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  30730000 data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  30730000 data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  30730000 data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  30730000 data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  30730000 test_batch.bin
";

/// The same; a record has a coarse label too.
const CIFAR100: &str = "
58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec 168513733 cifar-100-binary.tar.gz
f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29 153700000 train.bin
d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a  30740000 test.bin
";

/// The files of a table.
fn known_files(table: &str) -> Vec<KnownFile> {
    let known = |line: &str| {
        let mut fields = line.split_whitespace();
        let (sha256, bytes) = (fields.next()?, fields.next()?.parse().ok()?);
        Some(KnownFile::new(fields.next()?, bytes, sha256))
    };
    table.lines().filter_map(known).collect()
}

fn gzipped(table: &str) -> Vec<Download> {
    let files = known_files(table);
    let (pairs, _) = files.as_chunks();
    let download = |[file, unpacked]: &[KnownFile; 2]| Download {
        file: file.clone(),
        packing: Packing::Gzip {
            unpacked: unpacked.clone(),
        },
    };
    pairs.iter().map(download).collect()
}

fn archive(folder: &str, table: &str) -> Vec<Download> {
    let mut files = known_files(table);
    let members = files.split_off(1);
    let download = |file| Download {
        file,
        packing: Packing::TarGz {
            folder: folder.to_owned(),
            members: members.clone(),
        },
    };
    files.into_iter().map(download).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_size_and_a_checksum_of_its_own() {
        let mut sums = Vec::new();
        for set in PublishedSet::ALL {
            let release = set.release();
            assert!(release.mirrors.iter().all(|url| url.ends_with('/')));
            for download in release.downloads {
                let inside = match download.packing {
                    Packing::Gzip { unpacked } => vec![unpacked],
                    Packing::TarGz { members, .. } => members,
                };
                for file in inside.iter().chain([&download.file]) {
                    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                    assert!(file.bytes > 1000, "{file:?}");
                    assert!(
                        file.sha256.len() == 64 && file.sha256.chars().all(digit),
                        "{file:?}"
                    );
                    sums.push(file.sha256.clone());
                }
            }
        }
        let all = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!((all, sums.len()), (18, 18));
    }
}

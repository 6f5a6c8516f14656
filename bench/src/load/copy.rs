//! A mirror's files against the batches they must hold.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::Generator;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// What a mirror holds, all of it compared with the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of its batches.
    pub bytes: u64,
    /// Partitions that are there to their end.
    pub complete: u32,
}

/// Compares every byte of the `.log` files of all partitions in a node's data directory. The node must have
/// been stopped. A partition may hold less than the source, and then ends after a whole batch.
///
/// # Errors
/// What differs, in words.
pub fn compare_copy(generator: &Generator, data: &Path) -> Result<Copied, String> {
    let workload = generator.workload();
    let mut copied = Copied::default();
    for partition in 0..workload.partitions {
        let name = format!("{}-{partition}", workload.topic);
        let batches = compare_partition(generator, partition, &data.join(&name))
            .map_err(|problem| format!("{name} is not the source's: {problem}"))?;
        copied.bytes += batches * generator.batch_bytes() as u64;
        copied.complete += u32::from(batches == workload.batches());
    }
    Ok(copied)
}

fn compare_partition(generator: &Generator, partition: u32, folder: &Path) -> Result<u64, String> {
    let failed = |error: io::Error| format!("{} cannot be read: {error}", folder.display());
    let batch_records = i64::from(generator.workload().batch_records);
    let (mut expected, mut found) = (Vec::new(), vec![0; generator.batch_bytes()]);
    let mut batch = 0;
    for path in log_files(folder).map_err(failed)? {
        let mut file = BufReader::with_capacity(READ_BYTES, File::open(&path).map_err(failed)?);
        loop {
            let filled = fill(&mut file, &mut found).map_err(failed)?;
            if filled == 0 {
                break;
            }
            let offset = batch * batch_records;
            if batch.cast_unsigned() == generator.workload().batches() {
                return Err(format!("there is more behind its end at offset {offset}"));
            }
            expected.clear();
            generator.batch(partition, offset, &mut expected);
            if found[..filled] != expected {
                return Err(format!("the batch at offset {offset} differs"));
            }
            batch += 1;
        }
    }
    Ok(batch.cast_unsigned())
}

/// In the order of their offsets; none when the folder is not there.
fn log_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .filter(|path| {
            let kind = path.as_ref().ok().and_then(|path| path.extension());
            path.is_err() || kind.is_some_and(|kind| kind == "log")
        })
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Fills the buffer unless the file ends before.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Workload;

    #[test]
    fn a_copy_may_be_short_but_not_different() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 2));
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("t-1");
        fs::create_dir(&folder).unwrap();
        let mut bytes = Vec::new();
        for offset in [0, 64, 128] {
            generator.batch(1, offset, &mut bytes);
        }
        let cut = generator.batch_bytes();
        fs::write(folder.join("00000000000000000000.log"), &bytes[..cut]).unwrap();
        fs::write(folder.join("00000000000000000064.log"), &bytes[cut..]).unwrap();
        let copied = compare_copy(&generator, data.path()).unwrap();
        assert_eq!(copied, Copied { bytes: bytes.len() as u64, complete: 0 });

        fs::write(folder.join("00000000000000000064.log"), &bytes[cut..bytes.len() - 1]).unwrap();
        let problem = compare_copy(&generator, data.path()).unwrap_err();
        assert!(problem.contains("t-1") && problem.contains("128"), "{problem}");
        bytes[cut + 1000] ^= 1;
        fs::write(folder.join("00000000000000000064.log"), &bytes[cut..]).unwrap();
        let problem = compare_copy(&generator, data.path()).unwrap_err();
        assert!(problem.contains("offset 64 differs"), "{problem}");
    }

    #[test]
    fn what_is_behind_the_end_is_seen() {
        let generator = Generator::new(Workload::of_size("t", 1, 1));
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(data.path().join("t-0")).unwrap();
        let mut bytes = Vec::new();
        generator.batch(0, 0, &mut bytes);
        let file = data.path().join("t-0/00000000000000000000.log");
        fs::write(&file, &bytes).unwrap();
        assert_eq!(compare_copy(&generator, data.path()).unwrap().complete, 1);
        bytes.push(0);
        fs::write(&file, &bytes).unwrap();
        assert!(compare_copy(&generator, data.path()).unwrap_err().contains("more behind"));
    }
}

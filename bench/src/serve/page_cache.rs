//! What the page cache holds of a topic's `.log` files: filled, emptied, and asked.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::PageCache;
use crate::peers::log_paths;

/// One page in so many bytes is asked for.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Reads, or drops, all of the files, and answers the share that the cache then holds, 0 to 1.
pub(super) fn arrange(data: &Path, topic: &str, wanted: PageCache) -> io::Result<f64> {
    let mut buffer = vec![0; 1 << 20];
    let (mut held, mut asked) = (0_u64, 0_u64);
    for path in log_paths(data, topic) {
        let mut file = File::open(path)?;
        match wanted {
            PageCache::Warm => while file.read(&mut buffer)? > 0 {},
            PageCache::Cold => {
                // What is not on the disk yet cannot be dropped.
                file.sync_data()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
        }
        let length = file.metadata()?.len();
        for position in (0..length).step_by(SAMPLE_BYTES as usize) {
            asked += 1;
            held += u64::from(is_held(&file, position)?);
        }
    }
    Ok(if asked == 0 { 0.0 } else { held as f64 / asked as f64 })
}

/// Whether a byte can be read without going to the disk.
fn is_held(file: &File, position: u64) -> io::Result<bool> {
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    match preadv2(file, &mut slices, position, ReadWriteFlags::NOWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        // A file system that cannot tell: what was arranged is believed.
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_file_is_held() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("t-0")).unwrap();
        std::fs::write(data.path().join("t-0/0.log"), vec![7; 3 << 20]).unwrap();
        let share = arrange(data.path(), "t", PageCache::Warm).unwrap();
        let cold = arrange(data.path(), "t", PageCache::Cold).unwrap();
        assert!((0.0..=1.0).contains(&share) && cold <= share, "{share} {cold}");
        assert_eq!(arrange(data.path(), "other", PageCache::Warm).unwrap(), 0.0);
    }
}

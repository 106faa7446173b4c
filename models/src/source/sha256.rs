//! SHA-256 of files, and of what is written on its way.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// The hexadecimal SHA-256 of a file.
pub(super) fn of_file(file: &Path) -> io::Result<String> {
    copy(&mut File::open(file)?, &mut io::sink()).map(|(_, sum)| sum)
}

/// Copies everything; returns its length and hexadecimal SHA-256.
pub(super) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut length = 0;
    loop {
        let n = from.read(&mut chunk)?;
        if n == 0 {
            break;
        }
        hasher.update(&chunk[..n]);
        to.write_all(&chunk[..n])?;
        length += n as u64;
    }
    let digest = hasher.finalize();
    let sum = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((length, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_nothing_and_of_abc_are_the_known_ones() {
        let sum = |mut text: &[u8]| copy(&mut text, &mut io::sink()).unwrap();
        assert_eq!(
            sum(b"").1,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            sum(b"abc"),
            (
                3,
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned()
            )
        );
    }
}

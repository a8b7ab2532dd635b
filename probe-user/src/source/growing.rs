//! A recording that is still being written, read as it grows.

use std::io::{self, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often it is looked whether there is more.
const POLL: Duration = Duration::from_millis(20);

/// A file that may grow: where it ends, more is waited for. A run writes at least twice a second, so a
/// file that has not grown for `patience` is one that nobody writes any more.
#[derive(Debug)]
pub struct Growing<R> {
    from: R,
    patience: Duration,
}

impl<R> Growing<R> {
    /// Reads `from`, and waits at its end.
    pub const fn new(from: R, patience: Duration) -> Self {
        Self { from, patience }
    }
}

impl<R: Read> Read for Growing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let start = Instant::now();
        loop {
            let got = self.from.read(buffer)?;
            if got > 0 || buffer.is_empty() || start.elapsed() >= self.patience {
                return Ok(got);
            }
            sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Growing;
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Write};
    use std::time::Duration;

    #[test]
    fn what_is_appended_is_read_and_the_end_comes_when_nothing_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut growing = Growing::new(File::open(file.path()).unwrap(), Duration::from_millis(300));
        let path = file.path().to_owned();
        let writer = std::thread::spawn(move || {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            (0..5).for_each(|_| file.write_all(b"more").unwrap());
        });
        let mut got = Vec::new();
        growing.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert_eq!(got, b"more".repeat(5));
    }
}

//! Files that the operator names. What only looks like a file could keep whylag waiting for ever
//! (a FIFO) or never end (`/dev/zero`), so it is refused, and opening never waits.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true), path)
}

/// Reads a regular file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} KiB", most >> 10)));
    }
    Ok(text)
}

/// Makes a file, or takes an empty one: what somebody has written is never written over.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    may_be_created(path)?;
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => empty(path),
        made => made,
    }
}

/// Whether [`create`] would refuse the file that is there now.
pub(crate) fn may_be_created(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) => check_kind(found.file_type()).and_then(|()| check_empty(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn empty(path: &Path) -> io::Result<File> {
    let file = regular(OpenOptions::new().write(true), path)?;
    check_empty(file.metadata()?.len())?;
    Ok(file)
}

fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    check_kind(std::fs::metadata(path)?.file_type())?;
    // Another file may be there by now.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_empty(len: u64) -> io::Result<()> {
    match len {
        0 => Ok(()),
        _ => Err(io::Error::other("it exists; remove it or choose another name")),
    }
}

fn check_kind(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "directory",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        _ => "device",
    };
    Err(io::Error::other(format!("it is a {what}, and must be a regular file")))
}

#[cfg(test)]
mod tests {
    use super::{create, open, read_text};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::Write;
    use std::path::Path;

    #[test]
    fn a_pipe_that_nobody_uses_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("a pipe"));
        assert!(create(&path).unwrap_err().to_string().contains("a pipe"));
    }

    #[test]
    fn devices_and_directories_are_no_files() {
        assert!(read_text(Path::new("/dev/zero"), 10).unwrap_err().to_string().contains("a device"));
        assert!(open(Path::new("/")).unwrap_err().to_string().contains("a directory"));
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[b'#'; 2048]).unwrap();
        assert_eq!(read_text(file.path(), 2048).unwrap().len(), 2048);
        assert!(read_text(file.path(), 1024).unwrap_err().to_string().contains("larger than 1 KiB"));
    }

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        create(&path).unwrap();
        create(&path).unwrap().write_all(b"kept").unwrap();
        assert!(create(&path).unwrap_err().to_string().contains("choose another name"));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}

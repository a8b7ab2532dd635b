//! Files that the operator names. What only looks like a file could keep whylag waiting for ever
//! (a FIFO) or never end (`/dev/zero`), so it is refused, and opening never waits.

use std::fs::{File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Opening never waits, and makes no terminal the process's own.
const NO_WAIT: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// Opens a regular file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).custom_flags(NO_WAIT), path)
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

/// Writes a file that is there whole or not at all; as with [`create`], it must be new or empty. It is
/// another file of the same folder first, which gets the name when all of it is on the disk.
pub(crate) fn write_whole<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let there = may_be_created(path)?;
    let folder = folder_of(path);
    let permissions = there.as_ref().map_or(Permissions::from_mode(0o666), Metadata::permissions);
    let new =
        tempfile::Builder::new().prefix(".whylag-").suffix(".part").permissions(permissions).tempfile_in(folder)?;
    let mut to = BufWriter::new(new);
    fill(&mut to)?;
    let new = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    if let Some(there) = &there {
        keep_owner(new.as_file(), there)?;
    }
    new.as_file().sync_all()?;
    // Somebody may have written there meanwhile.
    let named = if may_be_created(path)?.is_some() { new.persist(path) } else { new.persist_noclobber(path) };
    named.map_err(|error| error.error)?;
    Ok(File::open(folder)?.sync_all()?)
}

/// Who made the empty file that is replaced has chosen who may read it.
fn keep_owner(new: &File, there: &Metadata) -> io::Result<()> {
    new.set_permissions(there.permissions())?;
    let made = new.metadata()?;
    match (made.uid(), made.gid()) == (there.uid(), there.gid()) {
        true => Ok(()),
        false => fchown(new, Some(there.uid()), Some(there.gid())),
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is there now, if it is an empty file, which [`create`] and [`write_whole`] take; `None` if there
/// is nothing.
///
/// A link is refused: what it leads to is for whoever can write its folder to say.
pub(crate) fn may_be_created(path: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(io::Error::other("it is a symbolic link; name the file itself")),
        Ok(found) => check_kind(found.file_type()).and_then(|()| check_empty(found.len())).map(|()| Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_folder(folder_of(path)).map(|()| None),
        Err(error) => Err(error),
    }
}

fn check_folder(folder: &Path) -> io::Result<()> {
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("{} is no folder", folder.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::other(format!("there is no folder {}", folder.display())))
        }
        Err(error) => Err(error),
    }
}

fn empty(path: &Path) -> io::Result<File> {
    let file = regular(OpenOptions::new().write(true).custom_flags(NO_WAIT | libc::O_NOFOLLOW), path)?;
    check_empty(file.metadata()?.len())?;
    Ok(file)
}

fn regular(options: &OpenOptions, path: &Path) -> io::Result<File> {
    check_kind(std::fs::metadata(path)?.file_type())?;
    // Another file may be there by now.
    let file = options.open(path)?;
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
    use super::{create, open, read_text, write_whole};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::io::{self, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
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
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert!(whole(&path, b"other").unwrap_err().to_string().contains("choose another name"));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }

    fn whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
        write_whole(path, |to| to.write_all(bytes))
    }

    #[test]
    fn a_file_that_cannot_be_finished_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let full = write_whole(&path, |to| {
            to.write_all(&[1; 1 << 20])?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of it");
        whole(&path, b"all").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"all");
    }

    #[test]
    fn an_empty_file_that_is_replaced_keeps_its_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
        whole(file.path(), b"all").unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read(file.path()).unwrap(), b"all");
    }

    #[test]
    fn links_are_refused_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [link, empty, nowhere] = ["link", "empty", "nowhere"].map(|name| folder.path().join(name));
        fs::write(&empty, b"").unwrap();
        for target in [&empty, &nowhere] {
            symlink(target, &link).unwrap();
            assert!(create(&link).unwrap_err().to_string().contains("symbolic link"));
            assert!(whole(&link, b"all").unwrap_err().to_string().contains("symbolic link"));
            assert_eq!(&fs::read_link(&link).unwrap(), target);
            fs::remove_file(&link).unwrap();
        }
        assert!(fs::read(&empty).unwrap().is_empty() && !nowhere.exists());
        assert!(create(&folder.path().join("no/new")).unwrap_err().to_string().contains("there is no folder"));
    }
}

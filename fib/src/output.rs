//! Files that are replaced as a whole: readers never see a partial file, and a failure leaves the old one.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 20;

/// Writes a new file with `write`, then moves it to `path`. A device or pipe is written to directly; a link's target is replaced.
///
/// # Errors
/// The error of `write` or of the system.
pub fn write_whole<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
        Ok(there) if !there.is_file() => {
            let mut out = BufWriter::new(File::options().write(true).open(path)?);
            write(&mut out)?;
            return Ok(out.flush()?);
        }
        _ => {}
    }
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = fs::metadata(path).map_or(0o666, |there| there.permissions().mode());
    let file = tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// As [`write_whole`], with `value` as indented JSON.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    write_whole(path, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        fs::write(&path, "old").unwrap();
        let failed = write_whole(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("stop"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_whole(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write_json(&path, &[1]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"[\n  1\n]\n");
    }

    #[test]
    fn devices_and_links_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        write_whole(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_whole(folder.path(), |_| Ok::<(), io::Error>(())).is_err());
    }
}

//! Where a command's result goes: stdout, or a file that appears whole or not at all.

use anyhow::Context as _;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Runs `write` on stdout, or on a new file that takes the place of `path` once all is written. A device or pipe at
/// `path` is written to as it is. A reader of stdout that goes away early is no failure.
///
/// # Errors
/// What `write` gives, or an I/O error with the path.
pub(crate) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(path) = path else {
        let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
        return match write(&mut out).and_then(|()| Ok(out.flush()?)) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            other => other.context("cannot write to stdout"),
        };
    };
    let cannot = || format!("cannot write {}", path.display());
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot),
        Ok(there) if !there.is_file() => {
            let mut out = BufWriter::new(File::options().write(true).open(path).with_context(cannot)?);
            write(&mut out).with_context(cannot)?;
            out.flush().with_context(cannot)
        }
        _ => write_whole(path, write),
    }
}

fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    // A link stays a link: the file it points to is the one that is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = fs::metadata(path).map_or(0o666, |there| there.permissions().mode());
    let file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)
        .with_context(cannot)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out).with_context(cannot)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)?;
    file.persist(path).map_err(|error| error.error).with_context(cannot)?;
    Ok(())
}

/// Whether whoever read the output has gone (`| head`).
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        fs::write(&path, "old").unwrap();
        let failed = write_to(Some(&path), |out| {
            out.write_all(b"half")?;
            anyhow::bail!("stop")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_to(Some(&path), |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn devices_and_links_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_to(Some(&link), |out| Ok(out.write_all(b"new")?)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        write_to(Some(Path::new("/dev/null")), |out| Ok(out.write_all(b"x")?)).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_to(Some(folder.path()), |_| Ok(())).is_err());
    }
}

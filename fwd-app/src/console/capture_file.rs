//! The file of a capture. The client opens it and passes the descriptor; the forwarder opens only paths of its command line.

use anyhow::ensure;
use rustix::fs::{OFlags, PROC_SUPER_MAGIC, fcntl_getfl, fstatfs};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

/// Opens `path` with mode 0600 and without truncation. Refuses links, devices and FIFOs: in a world-writable folder another user
/// may have created them.
///
/// # Errors
/// It is not a regular file, or the system refuses it.
pub(crate) fn open(path: &str) -> anyhow::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path);
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => anyhow::anyhow!("it is a symbolic link, which is not followed"),
        Some(Errno::NXIO) => anyhow::anyhow!("it is not a regular file"),
        _ => error.into(),
    })?;
    let before = file.metadata()?;
    ensure!(before.is_file(), "it is not a regular file");
    ensure!(before.nlink() == 1, "it has several names (hard links)");
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Checks a file opened by a client. Refuses devices and sockets, on which the control thread might block, and files in /proc, where some
/// check the writer's privileges.
pub(super) fn check(file: &File) -> anyhow::Result<()> {
    ensure!(
        file.metadata()?.is_file() && fstatfs(file)?.f_type != PROC_SUPER_MAGIC,
        "it is not a regular file"
    );
    let mode = fcntl_getfl(file)? & OFlags::RWMODE;
    ensure!(mode == OFlags::WRONLY || mode == OFlags::RDWR, "it is not open for writing");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_capture_follows_no_link_waits_at_no_fifo_and_is_private() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let theirs = path("theirs");
        std::fs::write(&theirs, "text").unwrap();
        std::fs::set_permissions(&theirs, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&theirs, path("link")).unwrap();
        std::fs::hard_link(&theirs, path("name")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (name, why) in [
            ("link", "a symbolic link"),
            ("name", "hard links"),
            ("fifo", "not a regular file"),
            (".", "directory"),
        ] {
            let error = open(&path(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        assert_eq!(std::fs::read(&theirs).unwrap(), b"text");
        let _reader = OpenOptions::new().read(true).write(true).open(path("fifo")).unwrap();
        assert!(open(&path("fifo")).unwrap_err().to_string().contains("not a regular file"));
        std::fs::remove_file(path("name")).unwrap();
        for path in [theirs, path("new")] {
            let file = open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
            check(&file).unwrap();
        }
    }

    #[test]
    fn what_a_client_passes_must_be_a_file_that_it_may_write() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let to_write = File::create(&path).unwrap();
        check(&to_write).unwrap();
        let of_proc = OpenOptions::new().write(true).open("/proc/self/oom_score_adj").unwrap();
        for (file, why) in [
            (File::open(&path).unwrap(), "not open for writing"),
            (OpenOptions::new().write(true).open("/dev/null").unwrap(), "not a regular file"),
            (File::open(scratch.path()).unwrap(), "not a regular file"),
            (of_proc, "not a regular file"),
        ] {
            assert_eq!(check(&file).unwrap_err().to_string(), format!("it is {why}"));
        }
    }
}

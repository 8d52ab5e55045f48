//! An in-memory file for readers that take paths: a file on disk would dominate the time of an execution.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

const IN_MEMORY: &str = "/dev/shm";

/// Calls `reader` with the path of a file with this `content`. The file has no name and is deleted with the thread.
///
/// # Panics
/// When the file cannot be created or written.
pub fn with_file<T>(content: &[u8], reader: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FILES: [OnceCell<File>; 2] = const { [const { OnceCell::new() }; 2] };
        static DEPTH: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    let folder = if Path::new(IN_MEMORY).is_dir() { PathBuf::from(IN_MEMORY) } else { std::env::temp_dir() };
    FILES.with(|files| {
        let mut file = files[DEPTH.get()].get_or_init(|| tempfile::tempfile_in(folder).unwrap());
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(content).unwrap();
        DEPTH.set(DEPTH.get() + 1);
        let result = reader(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
        DEPTH.set(DEPTH.get() - 1);
        result
    })
}

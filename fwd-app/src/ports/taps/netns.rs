//! Work in another network namespace: sockets and threads created there belong to it.

use anyhow::{Context as _, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Where `ip netns add` keeps its namespaces.
const NAMED: &str = "/run/netns";

/// The file of a namespace: a path, or a name of `ip netns`.
pub(crate) fn path_of(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) }
}

/// Runs `work` in the network namespace `netns` on a new thread; without a namespace on this thread.
///
/// # Errors
/// The namespace cannot be entered, or `work` fails.
pub(crate) fn within<T: Send>(
    netns: Option<&Path>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let Some(path) = netns else { return work() };
    let cannot = || format!("cannot enter the network namespace {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let enter = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(cannot)?;
        work()
    };
    let result = std::thread::scope(|scope| scope.spawn(enter).join());
    result.unwrap_or_else(|_| Err(anyhow!("the thread in the network namespace has panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        assert_eq!(path_of("frr"), Path::new("/run/netns/frr"));
        assert_eq!(path_of("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }

    #[test]
    fn without_a_namespace_work_is_done_here() {
        let here = std::thread::current().id();
        assert_eq!(within(None, || Ok(std::thread::current().id())).unwrap(), here);
        let error = within(Some(Path::new("/run/netns/none of this name")), || Ok(())).unwrap_err();
        assert!(error.to_string().contains("none of this name"), "{error}");
    }
}

//! The kernel's settings of a TAP (`net.ipv4.conf.NAME`, `net.ipv6.conf.NAME`), so that frames from the wire configure nothing.
//!
//! The kernel takes a new interface for that of a host: it would take addresses, an MTU and a default route from any router
//! advertisement, and routes from redirects. Nor does it forward what comes by a TAP: that is what the forwarder is for.
//!
//! A switch of one interface may depend on that of `all`: IPv4 redirects are accepted where either is on, unless the interface forwards.
//! So that one is off, too.

use anyhow::Context as _;
use std::io::ErrorKind;
use std::path::Path;

/// Where the settings are: those of the network namespace of the thread that opens them.
pub(super) const ROOT: &str = "/proc/sys/net";

/// Family, interface (`None` for the TAP), setting. All of them are to be 0.
const OFF: [(&str, Option<&str>, &str); 9] = [
    ("ipv6", None, "accept_ra"),
    ("ipv6", None, "autoconf"),
    ("ipv6", None, "accept_redirects"),
    ("ipv6", None, "accept_source_route"),
    ("ipv6", None, "forwarding"),
    ("ipv4", None, "accept_redirects"),
    ("ipv4", Some("all"), "accept_redirects"),
    ("ipv4", None, "accept_source_route"),
    ("ipv4", None, "forwarding"),
];

/// Makes the settings of the TAP `name`, which is not up yet. A setting that is right already is not written: in a container it may be
/// read-only.
///
/// # Errors
/// When a setting is another one and cannot be written. A kernel without a family has none of its settings.
pub(super) fn set(root: &Path, name: &str) -> anyhow::Result<()> {
    for (family, interface, setting) in OFF {
        let interface = interface.unwrap_or(name);
        let folder = root.join(family);
        let path = folder.join("conf").join(interface).join(setting);
        let set = match std::fs::read_to_string(&path) {
            Ok(is) if is.trim() == "0" => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => Ok(()),
            Ok(_) => std::fs::write(&path, "0"),
            Err(error) => Err(error),
        };
        set.with_context(|| {
            format!("cannot set net.{family}.conf.{interface}.{setting} to 0, without which the wire configures the TAP")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The settings of a kernel whose interfaces are `all` and `tap0`, all of them 1.
    fn kernel(families: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (family, interface, setting) in OFF {
            if families.contains(&family) {
                let folder = root.path().join(family).join("conf").join(interface.unwrap_or("tap0"));
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(setting), "1\n").unwrap();
            }
        }
        root
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn every_setting_is_off_afterwards() {
        let root = kernel(&["ipv4", "ipv6"]);
        set(root.path(), "tap0").unwrap();
        let all = files(root.path());
        assert_eq!(all.len(), OFF.len());
        assert!(all.iter().all(|path| std::fs::read_to_string(path).unwrap().trim() == "0"), "{all:?}");
        // Nothing is left to be written.
        for path in &all {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        }
        set(root.path(), "tap0").unwrap();
    }

    #[test]
    fn a_kernel_without_ipv6_has_no_settings_of_it() {
        set(kernel(&["ipv4"]).path(), "tap0").unwrap();
    }

    #[test]
    fn a_setting_that_cannot_be_made_is_named() {
        let root = kernel(&["ipv4", "ipv6"]);
        std::fs::remove_file(root.path().join("ipv6/conf/tap0/accept_ra")).unwrap();
        let error = set(root.path(), "tap0").unwrap_err();
        assert!(error.to_string().starts_with("cannot set net.ipv6.conf.tap0.accept_ra to 0"), "{error}");
        let error = set(kernel(&["ipv4", "ipv6"]).path(), "tap1").unwrap_err();
        assert!(error.to_string().contains("tap1"), "{error}");
    }
}

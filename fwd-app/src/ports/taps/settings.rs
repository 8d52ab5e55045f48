//! Kernel settings of a TAP (`net.ipv4.conf.NAME`, `net.ipv6.conf.NAME`), so that frames from the wire configure nothing.
//!
//! By default the kernel treats a new interface as a host's: it accepts addresses, an MTU and a default route from router advertisements,
//! and routes from redirects. It must not forward packets from a TAP either. IPv4 redirects are accepted if the setting of the interface or
//! of `all` is on, unless the interface forwards, so `all` is off too.

use anyhow::Context as _;
use std::io::ErrorKind;
use std::path::Path;

/// Shows the network namespace of the thread that opens it.
pub(super) const ROOT: &str = "/proc/sys/net";

/// Family, interface (`None` for the TAP), and setting; each is set to 0.
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

/// Applies the settings to the TAP `name` before it is up. Correct settings are not written, since they may be read-only in a container.
///
/// # Errors
/// A setting cannot be written. A kernel without a family has none of its settings.
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
            format!("cannot set net.{family}.conf.{interface}.{setting} to 0; hosts on the link could configure the TAP")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
        // No write is necessary now.
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

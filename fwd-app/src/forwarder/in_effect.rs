//! The configuration values in effect, each with its origin: from the start, or from a later reload.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfigValue {
    /// Its table and key, such as `forwarder.rx-burst`.
    pub(crate) path: String,
    pub(crate) value: serde_json::Value,
    /// Where it comes from: `flag`, a variable, a line of a file, or `default`.
    pub(crate) origin: String,
}

/// The paths whose values differ, sorted. Skips devices: keys about a device name it.
pub(crate) fn changed_paths(before: &[ConfigValue], after: &[ConfigValue]) -> Vec<String> {
    let is_device = |path: &str| path.starts_with("port.") && path.ends_with(".device");
    let by_path = |values: &[ConfigValue]| -> BTreeMap<String, serde_json::Value> {
        let values = values.iter().filter(|at| !is_device(&at.path));
        values.map(|at| (at.path.clone(), at.value.clone())).collect()
    };
    let (before, after) = (by_path(before), by_path(after));
    let mut paths: Vec<_> = before.keys().chain(after.keys()).cloned().collect();
    paths.retain(|path| before.get(path) != after.get(path));
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The values in effect after `read` is applied, except that keys for which `stays` holds keep their value of `before`.
pub(super) fn in_effect(
    before: &[ConfigValue],
    read: &[ConfigValue],
    stays: impl Fn(&str) -> bool,
) -> Vec<ConfigValue> {
    let remaining = before.iter().filter(|at| stays(&at.path));
    read.iter().filter(|at| !stays(&at.path)).chain(remaining).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(path: &str, value: u32, origin: &str) -> ConfigValue {
        ConfigValue { path: path.to_owned(), value: value.into(), origin: origin.to_owned() }
    }

    #[test]
    fn what_needs_a_restart_stays_as_it_was() {
        let before = [value("a.same", 1, "f:1"), value("a.restart", 1, "f:2"), value("a.gone", 1, "f:3")];
        let read = [value("a.same", 1, "f:7"), value("a.restart", 2, "f:8"), value("a.new", 2, "f:9")];
        assert_eq!(changed_paths(&before, &read), ["a.gone", "a.new", "a.restart"]);
        let now = in_effect(&before, &read, |path| path == "a.restart" || path == "a.gone");
        let wanted = [
            value("a.same", 1, "f:7"),
            value("a.new", 2, "f:9"),
            value("a.restart", 1, "f:2"),
            value("a.gone", 1, "f:3"),
        ];
        assert_eq!(now, wanted);
    }

    #[test]
    fn devices_are_named_by_their_keys_alone() {
        let (with, without) = ([value("port.p0.device", 1, "f:1"), value("port.p0.mtu", 9, "f:2")], []);
        assert_eq!(changed_paths(&without, &with), ["port.p0.mtu"]);
    }
}

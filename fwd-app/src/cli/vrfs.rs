//! The options of VRFs, which `run` and `replay` share.

use crate::routes::spec::{NamedFile, NamedTable, VrfSpec};
use clap::Args;
use fib::PortRef;

/// VRFs besides the default VRF.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "VRFs")]
pub(crate) struct VrfArgs {
    /// VRF with these ports, by index or name; their packets are looked up in its routes
    ///
    /// PORT.VLAN selects the packets of a port with this VLAN id in the outermost tag. All other ports belong to the default VRF, which
    /// has the routes of --fib. The engine sail-m has one table for all VRFs; other engines have one for each.
    #[arg(long, value_name = "NAME=PORT,..", value_parser = vrf)]
    pub(crate) vrf: Vec<VrfSpec>,

    /// Route file of a VRF, as for --fib; may be given several times
    #[arg(long, value_name = "NAME=FILE", requires = "vrf", value_parser = named_file)]
    pub(crate) vrf_fib: Vec<NamedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VrfValueError {
    #[error("'{text}' is not NAME=PORT,.. such as red=0,1; a name has letters, digits, '-' and '_'")]
    Vrf { text: String },
    #[error("'{text}' is not NAME=FILE such as red=routes.txt")]
    File { text: String },
    #[error("'{text}' is not NAME=TABLE such as red=10; a table is a number above 0")]
    Table { text: String },
}

fn vrf(text: &str) -> Result<VrfSpec, VrfValueError> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let parsed = text.split_once('=').filter(|(name, _)| is_name(name)).map(|(name, ports)| {
        let ports = ports.split(',').map(|port| PortRef::parse(port.trim())).collect::<Vec<_>>();
        VrfSpec { name: name.to_owned(), ports, files: Vec::new() }
    });
    let has_ports = |vrf: &VrfSpec| !vrf.ports.contains(&PortRef::Name(String::new()));
    parsed.filter(has_ports).ok_or_else(|| VrfValueError::Vrf { text: text.to_owned() })
}

pub(super) fn named_file(text: &str) -> Result<NamedFile, VrfValueError> {
    let parsed = text.split_once('=').filter(|(vrf, file)| !vrf.is_empty() && !file.is_empty());
    let (vrf, file) = parsed.ok_or_else(|| VrfValueError::File { text: text.to_owned() })?;
    Ok(NamedFile { vrf: vrf.to_owned(), file: file.into() })
}

pub(super) fn named_table(text: &str) -> Result<NamedTable, VrfValueError> {
    let parsed = text.split_once('=').filter(|(vrf, _)| !vrf.is_empty());
    let parsed = parsed.and_then(|(vrf, table)| Some((vrf, table.parse().ok().filter(|table| *table > 0)?)));
    let (vrf, table) = parsed.ok_or_else(|| VrfValueError::Table { text: text.to_owned() })?;
    Ok(NamedTable { vrf: vrf.to_owned(), table })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_or_refused() {
        let red = vrf("red=0, net_null1,0000:03:00.0").unwrap();
        let ports = ["0", "net_null1", "0000:03:00.0"].map(PortRef::parse);
        assert_eq!((red.name.as_str(), red.ports), ("red", ports.to_vec()));
        for wrong in ["red", "=0", "red=", "red=0,", "a b=0", "red=,1"] {
            assert_eq!(vrf(wrong), Err(VrfValueError::Vrf { text: wrong.to_owned() }));
        }
        for wrong in ["red", "=f", "red="] {
            assert!(named_file(wrong).is_err());
        }
        assert_eq!(named_table("red=1000"), Ok(NamedTable { vrf: "red".to_owned(), table: 1000 }));
        for wrong in ["red", "=10", "red=", "red=0", "red=main", "red=4294967296"] {
            assert_eq!(named_table(wrong), Err(VrfValueError::Table { text: wrong.to_owned() }));
        }
    }
}

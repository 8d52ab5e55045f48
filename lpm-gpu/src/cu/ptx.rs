//! The embedded PTX of the kernels, and their parameter sizes.

pub(super) const ARGUMENTS_MAX: usize = 12;

pub(super) const MODULES: [(&str, &str); 4] = [
    ("gamt", include_str!("../../kernels/gamt.ptx")),
    ("gale", include_str!("../../kernels/gale.ptx")),
    ("sail", include_str!("../../kernels/sail.ptx")),
    ("ceilings", include_str!("../../kernels/ceilings.ptx")),
];

pub(super) fn text(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|module| module.0 == name).map(|module| module.1)
}

pub(super) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(".entry ").skip(1).filter_map(|rest| rest.split_once('(').map(|(name, _)| name.trim()))
}

/// Size of each parameter of kernel `entry`, bytes; `None` for an unknown kernel. Types that are not scalars count as 0.
pub(super) fn parameters(text: &str, entry: &str) -> Option<Vec<u8>> {
    let (_, list) = text.split(".entry ").skip(1).find_map(|rest| {
        let (name, after) = rest.split_once('(')?;
        (name.trim() == entry).then(|| after.split_once(')').map(|(list, _)| (name, list)))?
    })?;
    let declared = list.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    Some(declared.map(size_of_parameter).collect())
}

fn size_of_parameter(declaration: &str) -> u8 {
    if declaration.contains('[') {
        return 0;
    }
    match declaration
        .split_whitespace()
        .find_map(|word| word.strip_prefix(['.']).filter(|word| *word != "param"))
    {
        Some(kind) => match kind.trim_start_matches(['u', 's', 'b', 'f']) {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_off_the_text() {
        let text = ".visible .entry first(\n\t.param .u64 first_param_0,\n\t.param .u32 first_param_1\n)\n{ ret; }\n\
                    .visible .entry none()\n{ ret; }\n\
                    .visible .entry odd(.param .align 8 .b8 odd_param_0[16], .param .u64 .ptr .global .align 4 odd_param_1)\n{}";
        assert_eq!(parameters(text, "first"), Some(vec![8, 4]));
        assert_eq!(parameters(text, "none"), Some(vec![]));
        assert_eq!(parameters(text, "odd"), Some(vec![0, 8]));
        assert_eq!(parameters(text, "fir"), None);
    }

    #[test]
    fn every_kernel_can_be_launched_and_every_lookup_takes_what_the_engine_hands_over() {
        let mut lookups = 0;
        for module in ["gamt", "gale", "sail"] {
            let text = text(module).unwrap();
            for entry in entries(text) {
                let sizes = parameters(text, entry).unwrap();
                assert!(
                    sizes.len() <= ARGUMENTS_MAX && sizes.iter().all(|&bytes| bytes == 4 || bytes == 8),
                    "{entry}"
                );
                if entry.contains("_lookup_") {
                    assert_eq!(sizes, [8, 8, 8, 8, 4], "{entry}");
                    lookups += 1;
                }
            }
        }
        assert!(lookups >= 12, "{lookups} lookup kernels");
        assert_eq!(parameters(text("gamt").unwrap(), "write_words"), Some(vec![8, 8, 4]));
    }
}

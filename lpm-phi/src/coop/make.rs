//! Builds the engine from parameters: the two engines, and how each is driven.

use super::params::CoopParams;
use super::{CoopEngine, Drive, First, Half};
use crate::bloom;
use fib::{EngineError, EngineOptions, Registry};

impl CoopEngine {
    /// The engine that `options` ask for. By default the second half is `bloom`, and the first half the first device engine of `engines`
    /// or, without a device, a group of helper threads over the second half's table.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for parameters out of range, and for `coop` nested in itself; the errors of both engines.
    pub fn make(options: &EngineOptions, engines: &Registry) -> Result<Self, EngineError> {
        let params = CoopParams::from_options(options)?;
        let second = params.second.as_deref().unwrap_or(bloom::NAME);
        if second == Self::GROUP {
            return Err(EngineError::Parameter {
                parameter: "second",
                value: second.to_owned(),
                wanted: "a group can only be the first half, over the table of the second: first=group",
            });
        }
        let second = half(second, "second", &params.second_options, engines)?;
        let first = match params.first.as_deref() {
            Some(Self::GROUP) => First::Group,
            Some(name) => First::Engine(half(name, "first", &params.first_options, engines)?),
            None => match engines.engines().find(|engine| engine.is_device) {
                Some(device) => match half(device.name, "first", &params.first_options, engines) {
                    Ok(half) => First::Engine(half),
                    Err(EngineError::NoDevice { .. }) => group(&params)?,
                    Err(error) => return Err(error),
                },
                None => group(&params)?,
            },
        };
        let engine = Self::new(first, second, params);
        let Some(tell) = engines.notice() else { return Ok(engine) };
        let [first, second] = engine.service().names();
        Ok(engine.with_listener(Box::new(move |name, why| {
            tell(format_args!("engine coop of {first} and {second}: {name} is out of service: {why}"));
        })))
    }
}

fn group(params: &CoopParams) -> Result<First, EngineError> {
    if let Some((name, value)) = params.first_options.parameters.first() {
        return Err(EngineError::Parameter {
            parameter: "engine parameter",
            value: format!("first.{name}={value}"),
            wanted: "without a device the first half is a group over the second half's table; a group has no parameters: name an engine with first=NAME",
        });
    }
    Ok(First::Group)
}

fn half(
    name: &str,
    which: &'static str,
    options: &EngineOptions,
    engines: &Registry,
) -> Result<Half, EngineError> {
    if name == CoopEngine::NAME {
        return Err(EngineError::Parameter {
            parameter: which,
            value: name.to_owned(),
            wanted: "wanted an engine other than coop",
        });
    }
    let drive = if engines.is_device(name) { Drive::Device } else { Drive::Cpu };
    Ok(Half { engine: engines.make(name, options)?, drive })
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::*;
    use fib::oracle::OracleEngine;
    use fib::{ENGINES, Engine, Isa};

    const BLOOM: &[Engine] = &[Engine::cpu("bloom", &Isa::ALL, |options, _| bloom::make(options))];
    const PRESENT: &[Engine] =
        &[Engine::device("gpu", |options, _| Ok(Box::new(OracleEngine::new(options))))];
    const ABSENT: &[Engine] = &[Engine::device("gpu", |_, _| {
        Err(EngineError::NoDevice { engine: "gpu", device: "GPU", reason: String::new() })
    })];

    fn make(device: bool, pairs: &[(&str, &str)]) -> Result<[&'static str; 2], EngineError> {
        let lists: &[&[Engine]] = if device { &[ENGINES, BLOOM, PRESENT] } else { &[ENGINES, BLOOM, ABSENT] };
        CoopEngine::make(&EngineOptions::with_parameters(pairs), &Registry::new(lists))
            .map(|engine| engine.service().names())
    }

    #[test]
    fn the_device_comes_first_where_there_is_one() {
        assert_eq!(make(true, &[]), Ok(["oracle", "bloom"]));
        assert_eq!(make(false, &[]), Ok(["group", "bloom"]));
        assert_eq!(make(true, &[("first", "group")]), Ok(["group", "bloom"]));
        assert_eq!(make(false, &[("first", "bloom"), ("second", "oracle")]), Ok(["bloom", "oracle"]));
        assert_eq!(make(false, &[("second.fpr", "0.1"), ("first", "bloom")]), Ok(["bloom", "bloom"]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(matches!(make(false, &[("first", "gpu")]), Err(EngineError::NoDevice { .. })));
        for pair in
            [("first", "coop"), ("second", "coop"), ("second", "group"), ("first.x", "1"), ("second.x", "1")]
        {
            assert!(matches!(make(false, &[pair]), Err(EngineError::Parameter { .. })), "{pair:?}");
        }
    }
}

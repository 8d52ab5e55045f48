//! Engine-specific figures by name, made from a struct and listed by reports.

use crate::Family;
use serde::Serialize;
use serde_json::{Map, Value};

/// Figures that only one kind of engine has: numbers by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Details(Map<String, Value>);

impl Details {
    /// The fields of `figures`, a struct of numbers.
    #[must_use]
    pub fn new(figures: &impl Serialize) -> Self {
        Self::named(figures, |name| name.to_owned())
    }

    /// The figures of one family's table: `v4_` or `v6_` is put before each name.
    #[must_use]
    pub fn of_family(self, family: Family) -> Self {
        self.prefixed(match family {
            Family::V4 => "v4_",
            Family::V6 => "v6_",
        })
    }

    /// Puts `prefix` before each name.
    #[must_use]
    pub fn prefixed(self, prefix: &str) -> Self {
        Self(self.0.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)).collect())
    }

    /// As [`Self::new`], with other names.
    #[must_use]
    pub fn named(figures: &impl Serialize, name: impl Fn(&str) -> String) -> Self {
        match serde_json::to_value(figures) {
            Ok(Value::Object(fields)) => {
                Self(fields.into_iter().map(|(field, value)| (name(&field), value)).collect())
            }
            _ => Self::default(),
        }
    }

    /// The figure `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Adds the figures of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// These figures and the figures of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.extend(other);
        self
    }

    /// Names and figures.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)))
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Details {
    fn from(figures: [(&str, Value); N]) -> Self {
        Self(figures.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_fields_of_a_struct() {
        #[derive(Serialize)]
        struct ExampleFigures {
            entries: u64,
            share: f64,
        }
        let figures = ExampleFigures { entries: 7, share: 0.5 };
        let both = Details::new(&figures).and(Details::named(&figures, |name| format!("v6_{name}")));
        assert_eq!((both.get("entries"), both.get("v6_share"), both.get("x")), (Some(7.0), Some(0.5), None));
        assert_eq!(both.iter().count(), 4);
        let listed = Details::from([("entries", 7.into()), ("share", 0.5.into())]);
        assert_eq!(both, listed.clone().and(listed.of_family(Family::V6)));
        let json = r#"{"entries":7,"share":0.5,"v6_entries":7,"v6_share":0.5}"#;
        assert_eq!(serde_json::to_string(&both).unwrap(), json);
    }
}

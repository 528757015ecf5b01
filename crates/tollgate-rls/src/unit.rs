//! Envoy's units of time in its messages: their numbers, and their names in JSON.

pub(crate) use tollgate_envoy::Unit;

/// The units with their names in JSON. The first one has the number 1.
const ALL: [(Unit, &str); 7] = [
    (Unit::Second, "SECOND"),
    (Unit::Minute, "MINUTE"),
    (Unit::Hour, "HOUR"),
    (Unit::Day, "DAY"),
    (Unit::Month, "MONTH"),
    (Unit::Year, "YEAR"),
    (Unit::Week, "WEEK"),
];

/// Returns the unit of a number in an override, where weeks do not exist.
pub(crate) fn of_override(number: u64) -> Option<Unit> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    ALL.get(index).map(|(unit, _)| *unit).filter(|unit| *unit != Unit::Week)
}

/// Returns the number of the unit with this name, zero for `UNKNOWN`.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let names = std::iter::once("UNKNOWN").chain(ALL.iter().map(|(_, name)| *name));
    (0..).zip(names).find(|(_, known)| *known == name).map(|(number, _)| number)
}

/// Returns the number of a unit.
pub(crate) fn number(unit: Unit) -> u64 {
    (1..).zip(ALL).find(|(_, (known, _))| *known == unit).map_or(0, |(number, _)| number)
}

/// Returns the name of a unit in JSON.
pub(crate) fn json_name(unit: Unit) -> &'static str {
    ALL.iter().find(|(known, _)| *known == unit).map_or("UNKNOWN", |(_, name)| name)
}

//! Points in time, for people and for programs.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns a moment in this zone, to the second: `2026-11-23 02:13:07`.
pub fn local(ms: u64, zone: &TimeZone) -> String {
    format_moment(ms, zone, "%Y-%m-%d %H:%M:%S")
}

/// Returns a moment for programs, as ISO 8601: `2026-11-23T02:13:07.251+01:00`.
pub fn iso(ms: u64, zone: &TimeZone) -> String {
    format_moment(ms, zone, "%Y-%m-%dT%H:%M:%S%.3f%:z")
}

fn format_moment(ms: u64, zone: &TimeZone, format: &str) -> String {
    let moment = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    moment.map_or("?".to_owned(), |moment| moment.to_zoned(zone.clone()).strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_people_and_for_programs() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(local(1_795_396_387_251, &zone), "2026-11-23 02:13:07");
        assert_eq!(iso(1_795_396_387_251, &zone), "2026-11-23T02:13:07.251+01:00");
        assert_eq!(local(u64::MAX, &zone), "?");
    }
}

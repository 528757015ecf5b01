//! Metrics of the decision log on disk.

use tollgate_records::RecordLogStatus;
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

/// Writes the metrics.
pub(crate) fn write(status: &RecordLogStatus, to: &mut Exposition<'_>) {
    let help = "Decisions that were written to the decision log.";
    to.one("tollgate_records_written_total", Counter, help, status.written);
    let help = "Decisions that were not written to the decision log.";
    to.one("tollgate_records_dropped_total", Counter, help, status.dropped);
    let help = "Attempts to write to the decision log that failed.";
    to.one("tollgate_records_failures_total", Counter, help, status.failures);
    let help = "Whether the decision log can be written.";
    to.one("tollgate_records_writable", Gauge, help, u8::from(status.failure.is_none()));
    to.one("tollgate_records_stored", Gauge, "Decisions in the decision log.", status.records);
    to.one("tollgate_records_bytes", Gauge, "Disk space that the decision log takes.", status.bytes);
    let help = "The time of the oldest decision in the decision log; 0 if it is empty.";
    let oldest = status.oldest.map_or(0, |it| it.as_micros() / 1_000_000);
    to.one("tollgate_records_oldest_timestamp_seconds", Gauge, help, oldest);
}

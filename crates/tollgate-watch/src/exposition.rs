//! The text format of Prometheus.

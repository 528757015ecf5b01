//! Counters that threads do not fight over: each has a stripe of its own.

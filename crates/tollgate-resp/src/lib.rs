//! The Redis protocol in front of Tollgate: `CL.THROTTLE`, `THROTTLE`, `GCRA` and `TG.CHECK`.

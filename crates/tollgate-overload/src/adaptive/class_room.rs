//! The room of priority classes above a learned limit.

/// The room of the classes between the most and the least important one, as a share of the limit.
const MIDDLE_SHARE: f64 = 0.25;

/// The least room of these classes.
const MIN_MIDDLE_ROOM: f64 = 8.0;

/// The room of the most important class above all others, in addition to the limit itself.
const TOP_ROOM: f64 = 16.0;

/// Returns the number of requests in flight up to which a class of this rank (0 is the most important)
/// is admitted, for a limit that is shared by several classes.
///
/// The least important class is admitted up to the limit, so it may use all capacity that no other
/// class uses. Each more important class is admitted a little beyond that: while the less important
/// classes are refused, its requests push those in flight above the limit, and none of them is
/// refused as long as they alone fit the capacity. The most important class has the most room, for
/// bursts. The limit itself sinks if the additional requests wait, because it is learned from
/// latency.
///
/// ```
/// use tollgate_overload::adaptive::class_limit;
///
/// assert_eq!(class_limit(100, 0, 1), 100);        // without classes
/// assert_eq!([0, 1, 2].map(|rank| class_limit(100, rank, 3)), [216, 112, 100]);
/// ```
pub fn class_limit(limit: u32, rank: u8, classes: usize) -> u32 {
    let below = classes.saturating_sub(1).saturating_sub(usize::from(rank));
    if below == 0 {
        return limit;
    }
    let limit = f64::from(limit);
    #[expect(clippy::cast_precision_loss, reason = "numbers of classes are small")]
    let part = below as f64 / (classes - 1) as f64;
    let room = if rank == 0 { limit + TOP_ROOM } else { part * (limit * MIDDLE_SHARE).max(MIN_MIDDLE_ROOM) };
    // Saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of positive numbers")]
    let limit = (limit + room) as u32;
    limit
}

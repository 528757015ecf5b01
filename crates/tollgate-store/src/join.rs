//! Waiting for several futures together.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Awaits all futures together, and returns their results in order. All are started before the first one is done.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<Option<Pin<Box<F>>>> = futures.into_iter().map(|it| Some(Box::pin(it))).collect();
    let mut results: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, result) in pending.iter_mut().zip(&mut results) {
            let Some(running) = future else { continue };
            match running.as_mut().poll(context) {
                Poll::Ready(it) => (*future, *result) = (None, Some(it)),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_are_started_in_order_before_one_is_done() {
        let events = RefCell::new(Vec::new());
        let step = |number: u32| {
            let events = &events;
            async move {
                events.borrow_mut().push(("started", number));
                let mut is_second = number == 2;
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                events.borrow_mut().push(("done", number));
                number * 10
            }
        };
        assert_eq!(pollster::block_on(join_all([1, 2, 3].map(step))), [10, 20, 30]);
        let order = [("started", 1), ("started", 2), ("done", 2), ("started", 3), ("done", 1), ("done", 3)];
        assert_eq!(*events.borrow(), order);
        assert!(pollster::block_on(join_all(Vec::<std::future::Ready<u8>>::new())).is_empty());
    }
}

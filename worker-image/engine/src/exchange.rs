//! Full buffers out of the hot loop and empty ones back, without waiting on either side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

/// A bounded queue for one sender and one receiver. Each place has a lock that is never contended: the two counters tell
/// whose the place is. So neither side ever waits or enters the kernel.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    places: Box<[Mutex<Option<T>>]>,
    sent: AtomicUsize,
    received: AtomicUsize,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let places = (0..capacity).map(|_| Mutex::new(None)).collect();
        Self { places, sent: AtomicUsize::new(0), received: AtomicUsize::new(0) }
    }

    /// Sends; gives the item back where the queue is full.
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        let (sent, received) = (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Acquire));
        if sent.wrapping_sub(received) >= self.places.len() {
            return Err(item);
        }
        match self.places[sent % self.places.len()].try_lock() {
            Ok(mut place) => *place = Some(item),
            Err(TryLockError::Poisoned(place)) => *place.into_inner() = Some(item),
            Err(TryLockError::WouldBlock) => return Err(item),
        }
        self.sent.store(sent.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest item, if there is one.
    pub(crate) fn receive(&self) -> Option<T> {
        let (received, sent) = (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Acquire));
        if received == sent {
            return None;
        }
        let item = match self.places[received % self.places.len()].try_lock() {
            Ok(mut place) => place.take(),
            Err(TryLockError::Poisoned(place)) => place.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        if item.is_some() {
            self.received.store(received.wrapping_add(1), Ordering::Release);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn items_arrive_in_order_from_another_thread_and_a_full_queue_refuses() {
        let queue = Arc::new(Queue::new(4));
        let sender = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                for mut item in 0..10_000_u32 {
                    while let Err(back) = queue.send(item) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            })
        };
        let mut expected = 0;
        while expected < 10_000 {
            match queue.receive() {
                Some(item) => {
                    assert_eq!(item, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        sender.join().unwrap();
        for item in 0..4 {
            assert_eq!(queue.send(item), Ok(()));
        }
        assert_eq!(queue.send(4), Err(4));
    }
}

//! From the cores' threads to the control plane, without ever blocking a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dataplane::{ColdRequest, Event, EventSink};
use tokio::sync::mpsc;

/// Reports of cursors and lanes waiting for the control plane. Beyond, they are dropped, and every
/// mirror looks at everything again once: a lost report must not leave a partition standing.
const REPORTS_MAX: usize = 65_536;

/// The cores' side.
#[derive(Debug)]
pub(crate) struct Sink {
    requests: mpsc::Sender<ColdRequest>,
    reports: mpsc::Sender<Event>,
    lost: Arc<AtomicBool>,
}

/// The control plane's side.
#[derive(Debug)]
pub(crate) struct Events {
    /// Requests to answer.
    pub(crate) requests: mpsc::Receiver<ColdRequest>,
    /// Reports of cursors and lanes.
    pub(crate) reports: Reports,
}

/// Reports of cursors and lanes.
#[derive(Debug)]
pub(crate) struct Reports {
    queue: mpsc::Receiver<Event>,
    lost: Arc<AtomicBool>,
}

/// Two queues: a burst of faults does not hold up a consumer's request, nor the other way round.
/// `connections_max` bounds the requests, as each connection has one here at a time.
pub(crate) fn events(connections_max: usize) -> (Sink, Events) {
    let (requests, requests_in) = mpsc::channel(connections_max.max(1));
    let (reports, queue) = mpsc::channel(REPORTS_MAX);
    let lost = Arc::new(AtomicBool::new(false));
    let sink = Sink { requests, reports, lost: lost.clone() };
    (sink, Events { requests: requests_in, reports: Reports { queue, lost } })
}

impl EventSink for Sink {
    fn deliver(&self, event: Event) {
        match event {
            Event::Request(request) => {
                let peer = request.peer;
                if let Err(error) = self.requests.try_send(request) {
                    // Closed while the node stops; full only if a core breaks its promise of one
                    // request a connection.
                    tracing::debug!(%peer, %error, "a request was not taken");
                }
            }
            // Nothing is kept for a connection: members of groups live by their session timeout.
            Event::ConnectionClosed(_) => {}
            report @ (Event::Fault(_) | Event::LaneClosed(_) | Event::Throttled(..)) => {
                if let Err(mpsc::error::TrySendError::Full(_)) = self.reports.try_send(report) {
                    // The queue is full, so a report is still to be taken, and this seen with it.
                    self.lost.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Reports {
    /// The next report, and whether others were lost before it. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(Event, bool)> {
        let report = self.queue.recv().await?;
        Some((report, self.lost.swap(false, Ordering::AcqRel)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dataplane::LinkId;

    use super::*;

    #[tokio::test]
    async fn reports_beyond_the_room_are_replaced_by_the_news_that_some_were_lost() {
        let (sink, mut events) = events(1);
        let report = || Event::Throttled(LinkId(1), Duration::ZERO);
        for _ in 0..REPORTS_MAX {
            sink.deliver(report());
        }
        assert!(!events.reports.next().await.unwrap().1, "all are there");
        sink.deliver(report());
        sink.deliver(report());
        let mut told = 0;
        for _ in 0..REPORTS_MAX {
            told += u32::from(events.reports.next().await.unwrap().1);
        }
        assert_eq!(told, 1);
        sink.deliver(report());
        assert!(!events.reports.next().await.unwrap().1);
    }
}

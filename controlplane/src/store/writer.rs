//! Batches writes onto one thread that may block.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::{Change, Store, StoreError};

/// Writes waiting for the disk; a writer beyond waits for room.
const QUEUE_MAX: usize = 1_024;
/// Writes joined into one transaction: its memory, and the time until the first of them is answered.
const BATCH_MAX: usize = 256;

struct Write {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// Handle to the writing thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StoreWriter {
    queue: mpsc::Sender<Write>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl StoreWriter {
    /// Starts the thread.
    pub fn start(store: Arc<dyn Store>) -> std::io::Result<Self> {
        let (queue, incoming) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || run(store.as_ref(), incoming))?;
        Ok(Self { queue, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Returns when all changes are durable. They are applied together or not at all, after every
    /// earlier write. A dropped future does not undo the write.
    pub async fn write(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let (done, result) = oneshot::channel();
        let sent = self.queue.send(Write { changes, done }).await;
        sent.map_err(|_| StoreError::Closed)?;
        result.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits for the thread to end, which it does when the last handle is gone: call it on the last.
    pub fn close(self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(self.queue);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked");
        }
    }
}

fn run(store: &dyn Store, mut incoming: mpsc::Receiver<Write>) {
    while let Some(first) = incoming.blocking_recv() {
        let mut changes = first.changes;
        let mut waiting = vec![first.done];
        while waiting.len() < BATCH_MAX
            && let Ok(next) = incoming.try_recv()
        {
            changes.extend(next.changes);
            waiting.push(next.done);
        }
        let result = store.apply(&changes);
        if let Err(error) = &result {
            tracing::error!(%error, "cannot write metadata");
        }
        for done in waiting {
            // The asker may have gone; the write stands.
            let _ = done.send(result.clone());
        }
    }
}

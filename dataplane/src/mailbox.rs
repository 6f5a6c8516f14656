//! Bounded queues into a core, and the wake-ups that go with them.

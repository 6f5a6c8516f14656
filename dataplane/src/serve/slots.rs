//! Slots of a core's connections, each with a generation that tells its tenants apart.

use super::connection::Connection;

/// All connections of a core.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Slots {
    /// Adds a connection.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.connection = Some(Box::new(connection));
        slot
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize)
            && entry.connection.take().is_some()
        {
            self.free.push(slot);
        }
    }

    /// A connection.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    /// The generation of a slot's tenant.
    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |entry| entry.generation)
    }

    /// All slots in use.
    pub(super) fn in_use(&self) -> Vec<u32> {
        let used = |slot: &u32| self.slots[*slot as usize].connection.is_some();
        (0..self.slots.len() as u32).filter(used).collect()
    }

    /// Whether there is no connection.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

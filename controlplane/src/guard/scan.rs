//! Walks a message by its layout and refuses what is not all there.
//!
//! Owns nothing, runs on whichever thread calls it, allocates nothing. Must never accept a count
//! whose elements are not in the message: the decoder behind it believes every count.

use dataplane::wire::{Reader, WireError};

use super::layout::{Field, Kind, Layout};

/// Whether `body` is, as far as lengths and counts go, this message and nothing else.
pub(super) fn check(layout: &Layout, body: &[u8]) -> Result<(), WireError> {
    let mut reader = Reader::new(layout.name, layout.flexible, body);
    let mut walk = Walk { version: layout.version, elements_left: layout.elements_max };
    walk.structure(layout.fields, &mut reader)?;
    reader.finish("end")
}

struct Walk {
    version: i16,
    elements_left: usize,
}

impl Walk {
    fn structure(
        &mut self,
        fields: &'static [Field],
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        for field in fields {
            if field.tag.is_none() && field.versions.contains(&self.version) {
                self.value(field.name, &field.kind, reader)?;
            }
        }
        reader.tagged(|tag, value| {
            self.count_elements(1, "tagged fields", value)?;
            let known =
                |field: &&Field| field.tag == Some(tag) && field.versions.contains(&self.version);
            match fields.iter().find(known) {
                Some(field) => self.value(field.name, &field.kind, value).map(|()| true),
                None => Ok(false),
            }
        })
    }

    fn value(
        &mut self,
        name: &'static str,
        kind: &'static Kind,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        match kind {
            Kind::Fixed(bytes) => reader.take(*bytes, name).map(drop),
            Kind::Text => reader.nullable_string(name).map(drop),
            Kind::Blob => {
                let bytes = reader.bytes_len(name)?.unwrap_or(0);
                reader.take(bytes, name).map(drop)
            }
            Kind::List(element) => {
                for _ in 0..self.count(name, reader)? {
                    self.value(name, element, reader)?;
                }
                Ok(())
            }
            Kind::Structs(fields) => {
                for _ in 0..self.count(name, reader)? {
                    self.structure(fields, reader)?;
                }
                Ok(())
            }
            Kind::Struct(fields) => self.structure(fields, reader),
            // The decoder takes whatever is not 1 for null, Kafka only what is negative: between
            // the two, a walk would part from the decoder.
            Kind::OptionalStruct(fields) => match reader.i8(name)? {
                -1 => Ok(()),
                1 => self.structure(fields, reader),
                other => Err(reader.invalid(name, i64::from(other))),
            },
        }
    }

    /// Every element takes a byte at least, so a walk is never longer than its message.
    fn count(&mut self, name: &'static str, reader: &mut Reader<'_>) -> Result<usize, WireError> {
        let count = reader.nullable_count(1, name)?.unwrap_or(0);
        self.count_elements(count, name, reader)?;
        Ok(count)
    }

    fn count_elements(
        &mut self,
        count: usize,
        name: &'static str,
        reader: &Reader<'_>,
    ) -> Result<(), WireError> {
        let Some(left) = self.elements_left.checked_sub(count) else {
            return Err(reader.invalid(name, count as i64));
        };
        self.elements_left = left;
        Ok(())
    }
}

//! Compact fields, read with every length checked against the bytes at hand, and written.

use bytes::{BufMut, BytesMut};
use dataplane::wire::WireError;

use super::ResponseHead;

/// Entries of any array. More than a node can hold of anything, and small enough that the
/// smallest possible entries (one byte in the message) cannot make a message of the largest frame
/// expand without bound.
const ENTRIES_MAX: usize = 1 << 20;

/// Tagged fields of one struct: no version of any Kafka message has as many.
const TAGS_MAX: u32 = 64;

/// Reads one message's fields in order.
pub(super) struct Reader<'a> {
    message: &'static str,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self { message, bytes }
    }

    /// Checks that nothing follows the message.
    pub(super) fn finish(self) -> Result<(), WireError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(self.invalid("(end)", self.bytes.len() as i64))
    }

    pub(super) fn int16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array::<2>(field).map(i16::from_be_bytes)
    }

    pub(super) fn int32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array::<4>(field).map(i32::from_be_bytes)
    }

    pub(super) fn int64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array::<8>(field).map(i64::from_be_bytes)
    }

    pub(super) fn boolean(&mut self, field: &'static str) -> Result<bool, WireError> {
        self.array::<1>(field).map(|[byte]| byte != 0)
    }

    pub(super) fn string(&mut self, field: &'static str) -> Result<String, WireError> {
        self.nullable_string(field)?.ok_or_else(|| self.invalid(field, -1))
    }

    pub(super) fn nullable_string(
        &mut self,
        field: &'static str,
    ) -> Result<Option<String>, WireError> {
        let Some(len) = self.varint(field)?.checked_sub(1) else { return Ok(None) };
        let bytes = self.take(len as usize, field)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(error) => Err(self.invalid(field, i64::from(bytes[error.valid_up_to()]))),
        }
    }

    /// An array; a null one reads as empty.
    pub(super) fn entries<T>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.varint(field)?.saturating_sub(1) as usize;
        // Every entry takes at least a byte, so a count beyond the bytes left is a lie.
        if count > self.bytes.len() || count > ENTRIES_MAX {
            return Err(self.invalid(field, count as i64));
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(read(self)?);
        }
        Ok(entries)
    }

    /// A struct's tagged fields: `known` is given a reader of each one's bytes, and ignores what it
    /// does not know.
    pub(super) fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let count = self.varint("tagged fields")?;
        if count > TAGS_MAX {
            return Err(self.invalid("tagged fields", i64::from(count)));
        }
        for _ in 0..count {
            let tag = self.varint("tag")?;
            let len = self.varint("tag length")? as usize;
            let bytes = self.take(len, "tagged field")?;
            known(tag, &mut Reader::new(self.message, bytes))?;
        }
        Ok(())
    }

    pub(super) fn no_tags(&mut self) -> Result<(), WireError> {
        self.tags(|_, _| Ok(()))
    }

    pub(super) fn head(&mut self) -> Result<ResponseHead, WireError> {
        Ok(ResponseHead {
            throttle_time_ms: self.int32("throttle_time_ms")?,
            error_code: self.int16("error_code")?,
            error_message: self.nullable_string("error_message")?,
        })
    }

    fn varint(&mut self, field: &'static str) -> Result<u32, WireError> {
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>(field)?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.invalid(field, i64::from(value)))
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let message = self.message;
        let (head, rest) =
            self.bytes.split_first_chunk::<N>().ok_or(WireError::Truncated { message, field })?;
        self.bytes = rest;
        Ok(*head)
    }

    fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let message = self.message;
        let (head, rest) =
            self.bytes.split_at_checked(len).ok_or(WireError::Truncated { message, field })?;
        self.bytes = rest;
        Ok(head)
    }

    fn invalid(&self, field: &'static str, value: i64) -> WireError {
        WireError::Invalid { message: self.message, field, value }
    }
}

pub(super) fn put_varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

pub(super) fn put_string(out: &mut BytesMut, text: &str) {
    put_varint(out, text.len() as u32 + 1);
    out.put_slice(text.as_bytes());
}

pub(super) fn put_nullable_string(out: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => put_varint(out, 0),
    }
}

pub(super) fn put_entries<T>(
    out: &mut BytesMut,
    entries: &[T],
    mut put: impl FnMut(&mut BytesMut, &T),
) {
    put_varint(out, entries.len() as u32 + 1);
    for entry in entries {
        put(out, entry);
    }
}

pub(super) fn put_no_tags(out: &mut BytesMut) {
    put_varint(out, 0);
}

/// The only tagged field of a struct.
pub(super) fn put_one_tag(out: &mut BytesMut, tag: u32, field: &[u8]) {
    put_varint(out, 1);
    put_varint(out, tag);
    put_varint(out, field.len() as u32);
    out.put_slice(field);
}

pub(super) fn put_head(out: &mut BytesMut, head: &ResponseHead) {
    out.put_i32(head.throttle_time_ms);
    out.put_i16(head.error_code);
    put_nullable_string(out, head.error_message.as_deref());
}

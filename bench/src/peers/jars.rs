//! The programs of the peers, as far as they were asked for.

use super::{Cache, ClassPath, PeerError};
use crate::run::Session;

/// What there is to measure with.
#[derive(Debug)]
pub struct Jars {
    /// A real broker's.
    pub kafka: Option<ClassPath>,
    /// MirrorMaker 2's.
    pub mirror_maker: Option<ClassPath>,
}

impl Jars {
    /// Fetches what was asked for, and notes what is left out. MirrorMaker 2 needs a broker to copy from and to.
    ///
    /// # Errors
    /// When something asked for cannot be had.
    pub fn fetch(
        cache: &Cache,
        with_kafka: bool,
        with_mirror_maker: bool,
        session: &Session,
    ) -> Result<Self, PeerError> {
        if !with_kafka && !with_mirror_maker {
            session.leave_out("a real broker as the source: give --with-kafka");
        }
        if !with_mirror_maker {
            session.leave_out("MirrorMaker 2: give --with-mm2");
        }
        let without = if with_kafka { "--with-kafka" } else { "--with-mm2" };
        let kafka = (with_kafka || with_mirror_maker).then(|| cache.kafka(session, without));
        let mirror_maker = with_mirror_maker.then(|| cache.mirror_maker(session));
        Ok(Self { kafka: kafka.transpose()?, mirror_maker: mirror_maker.transpose()? })
    }

    /// The broker's and MirrorMaker 2's, if both are there.
    #[must_use]
    pub fn both(&self) -> Option<(&ClassPath, &ClassPath)> {
        self.kafka.as_ref().zip(self.mirror_maker.as_ref())
    }
}

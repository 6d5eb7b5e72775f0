//! The byte stream behind a fingerprint: every part says where it ends, so no two streams meet.

use sha2::{Digest, Sha256};

#[derive(Clone, Debug)]
pub(super) struct Encoder(Sha256);

impl Encoder {
    pub(super) fn new(domain: &[u8]) -> Self {
        let mut encoder = Self(Sha256::new());
        encoder.field(domain);
        encoder
    }

    /// One byte that says which of several encodings follows.
    pub(super) fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    /// The length of a list; its items follow.
    pub(super) fn list(&mut self, length: usize) {
        self.number(length as u64);
    }

    pub(super) fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.unframed(bytes);
    }

    /// Bytes without their length: the caller adds it, and nothing but it, behind the last of them.
    pub(super) fn unframed(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let digest = |fields: &[&[u8]]| {
            let mut encoder = Encoder::new(b"test");
            fields.iter().for_each(|field| encoder.field(field));
            encoder.finish()
        };
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b"abc"]), digest(&[b"abc", b""]));
    }

    #[test]
    fn the_domain_separates() {
        assert_ne!(Encoder::new(b"a").finish(), Encoder::new(b"b").finish());
    }
}
